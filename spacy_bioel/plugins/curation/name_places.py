"""Find out where in a file the names of ids are, by what is written there.

A file repeats its layout: "name (id)" in each line, a name above each id, an id in the second cell
of a row and its name in the fourth. Of all places near an id, its name is in the place whose texts
are most often names of concepts, and of the concept with the id if the ids are right. A place that
suits all ids of a line is preferred: in "name: id, name: id", no id has the name after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from spacy_bioel.plugins.curation.lines import BETWEEN_IDS, LIST_MARK, line_pairs
from spacy_bioel.plugins.curation.pairs import Cell, Pair, named_pair

AGREES, NAMES = 2.0, 1.0  # values of a name of the concept with the id, and of another concept
# Returns the values of (id, text) pairs: AGREES, NAMES or 0.
NameValues = Callable[[Iterable[tuple[str, str]]], Mapping[tuple[str, str], float]]
NamePlace = tuple[str, int, str]  # as seen from an id: ("before", 1, "whole")
_IdsInLine = list[tuple[Cell, dict[NamePlace, Cell]]]  # with the texts around each id


def no_values(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Know no name of any concept."""
    return dict.fromkeys(pairs, 0.0)


_MIN_SCORE = 0.5  # of a place: the mean value of its texts, less its cost
_MIN_RECORDS = 3  # of a layout in which no name agrees with its id
_N_LINES = 4000  # that are compared at a time
_MAX_WORDS_BEFORE = 6  # of a name that begins in the line before
_N_PARTS, _N_LINES_NEAR = 20, 12
_N_NEAR, _N_COLUMNS = 8, 30  # texts, lines and columns before and after an id
_MAX_NAME_LENGTH = 200
_PART_SEPARATOR = re.compile(
    r"\t|\||</?[A-Za-z][\w:-]*|/?>|[\"“”{}]|(?<![\w'])'|'(?![\w'])|\s&\s|(?<=\S)\s{2,}(?=\S)"
)
_AROUND = " \t*_`'#>:=,;.–—-([{)]}!/\\+•&~"
_KEY_OF_VALUE = re.compile(r"(?:.*:|[^=]{1,80}=)", re.S)
_CONTENT = re.compile(r"[^\W_](?:.*[^\W_])?", re.S)
_REPEATED_MARKS = re.compile(r"(.{2,40}?)\1+")


class _SplitLine(NamedTuple):
    """A line, its marks without words, and its parts: ids, and texts that may be names."""

    cell: Cell
    marks: str
    parts: list[tuple[Cell, bool]]

    @property
    def has_ids(self) -> bool:
        return any(is_id for _, is_id in self.parts)


def _split_line(cell: Cell, ids: re.Pattern[str]) -> _SplitLine:
    parts, marks, start = list[tuple[Cell, bool]](), list[str](), 0

    def add(end: int) -> None:
        piece = cell.text[start:end]
        marks.append(_CONTENT.sub("T", " ".join(piece.split())))
        if any(map(str.isalpha, piece)):
            parts.append((cell.part(piece, start), False))

    for match in [*ids.finditer(cell.text), None]:
        if match and start and cell.text[start : match.start()] == "](":
            continue  # the address of a link whose text is an id
        end = match.start() if match else len(cell.text)
        for mark in _PART_SEPARATOR.finditer(cell.text, start, end):
            add(mark.start())
            marks.append(mark[0])
            start = mark.end()
        add(end)
        if match:
            parts.append((cell.part(match[0], match.start()), True))
            marks.append("I")
            start = match.end()
    return _SplitLine(cell, _REPEATED_MARKS.sub(r"\1+", "".join(marks)), parts)


def _readings_of(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """Yield the parts of a text that may be a name: all of it, what follows a key, an item."""
    while mark := LIST_MARK.match(cell.text):  # "### 1. "
        cell = cell.part(cell.text[mark.end() :], mark.end())
    whole = cell.stripped(_AROUND)
    spans = {"whole": (0, whole.text)}
    if key := _KEY_OF_VALUE.match(whole.text):
        spans["value"] = key.end(), whole.text[key.end() :]
    for sign in ",;":
        first, found, _ = whole.text.partition(sign)
        head, _, last = whole.text.rpartition(sign)
        if found:
            spans |= {f"first{sign}": (0, first), f"last{sign}": (len(head) + 1, last)}
    for name, (start, text) in spans.items():
        part = whole.part(text, start).stripped(_AROUND)
        if part.text.count(")") < part.text.count("("):  # whose end was stripped
            part = whole.part(f"{part.text})", start) if f"{part.text})" in cell.text else part
        if "&" in part.text:
            part = part._replace(text=unescape(part.text), at=-1)
        if 1 < len(part.text) <= _MAX_NAME_LENGTH and any(map(str.isalpha, part.text)):
            yield name, part


def _places_of(lines: Sequence[_SplitLine], number: int, index: int) -> dict[NamePlace, Cell]:
    """Return the texts around an id in a line, by their place."""
    parts = lines[number].parts
    before = parts[max(0, index - _N_PARTS) : index][::-1]
    found: dict[tuple[str, int], Cell] = {}
    for kind, cells in (("before", before), ("after", parts[index + 1 : index + 1 + _N_PARTS])):
        texts = islice((cell for cell, is_id in cells if not is_id), _N_NEAR)
        found |= {(kind, n): cell for n, cell in enumerate(texts, 1)}
    for step in (-1, 1):
        n = 0
        nearby = lines[max(0, number - _N_LINES_NEAR) : number][::-1]
        if step > 0:
            nearby = lines[number + 1 : number + 1 + _N_LINES_NEAR]
        for line in nearby:
            if line.has_ids:
                continue
            n += step
            if len(line.parts) == len(parts) > 1:
                found["column", n] = line.parts[index][0]
            elif len(line.parts) <= 3:
                found |= {(f"line {k}", n): cell for k, (cell, _) in enumerate(line.parts)}
            if abs(n) == _N_NEAR:
                break
    return {
        (kind, n, name): part
        for (kind, n), cell in found.items()
        for name, part in _readings_of(cell)
    }


def _cost_of_place(place: NamePlace) -> float:
    """Return how much a place is less likely than the closest one."""
    kind, n, reading = place
    cost = {"before": 0.0, "after": 0.01}.get(kind, 0.05 if n < 0 else 0.06)
    return cost + 0.02 * (abs(n) - 1) + 0.03 * (reading != "whole")


def pairs_in_lines(
    lines: Iterable[Cell], ids: re.Pattern[str], values: NameValues
) -> Iterator[Pair]:
    """Read the pairs in lines of text."""
    iterator = iter(lines)
    while batch := list(islice(iterator, _N_LINES)):
        split = [_split_line(cell, ids) for cell in batch if cell.text.strip()]
        records = {
            number: [
                (cell, _places_of(split, number, i))
                for i, (cell, is_id) in enumerate(line.parts)
                if is_id
            ]
            for number, line in enumerate(split)
            if line.has_ids
        }
        known = values(
            (id.text, text.text)
            for record in records.values()
            for id, places in record
            for text in places.values()
        )
        layouts: dict[str, list[_IdsInLine]] = defaultdict(list)
        for number, record in records.items():
            layouts[split[number].marks].append(record)
        chosen = {marks: _choose(same, known) for marks, same in layouts.items()}
        names = {
            (id, number): name
            for number, record in records.items()
            for id, name in _names_of(
                split[number].cell, record, chosen[split[number].marks], known
            )
        }
        owners: dict[Cell, set[str]] = defaultdict(set)  # ids that a text agrees with
        for (id, _), name in names.items():
            if name:
                owners[name].update({id.text} if known[id.text, name.text] == AGREES else ())
        for number, record in records.items():
            before = split[number - 1].cell if number else None
            in_sentence = {
                pair.id: pair for pair in _sentence_pairs(split[number].cell, before, ids)
            }
            for id, places in record:
                name = names[id, number]
                if name is None or (owners[name] and id.text not in owners[name]):
                    yield in_sentence.get(id, Pair(id)) if name is None else Pair(id)
                elif known[id.text, name.text]:
                    yield named_pair(id, name)
                else:
                    near = (*places.values(), *in_sentence.get(id, Pair(id)).names)
                    free = (cell for cell in near if cell not in owners)
                    others = (c for c in free if known.get((id.text, c.text)) != NAMES)
                    yield Pair(id, (name, *others), True)


def _names_of(
    line: Cell,
    record: _IdsInLine,
    chosen: Sequence[NamePlace | None],
    known: Mapping[tuple[str, str], float],
) -> Iterator[tuple[Cell, Cell | None]]:
    """Yield the ids in a line with the texts in their places; None: not there, or of another id."""
    before: Cell | None = None  # the name of the id before
    wanted = [
        place and places.get(place) for (_, places), place in zip(record, chosen, strict=False)
    ]
    for i, ((id, _), name) in enumerate(zip(record, wanted, strict=True)):
        if i and name and name == wanted[i - 1] and known[id.text, name.text] < AGREES:
            last = record[i - 1][0]
            between = line.text[last.at - line.at + len(last.text) : id.at - line.at]
            name = name if before and BETWEEN_IDS.fullmatch(between) else None
        before = name
        yield id, name


def _sentence_pairs(line: Cell, before: Cell | None, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the pairs in a line as in a sentence, which may begin in the line before."""
    words = before.text.split()[-_MAX_WORDS_BEFORE:] if before else []
    for pair in line_pairs(line, ids):
        first = [name for name in pair.names if not line.text[: name.at - line.at].strip()]
        longer = (
            Cell(" ".join([*words[k:], name.text]), at=-1)
            for name in first[:1]
            for k in range(len(words))
        )
        yield pair._replace(names=(*longer, *pair.names)) if first else pair


def _choose(
    records: Sequence[_IdsInLine],
    known: Mapping[tuple[str, str], float],
) -> list[NamePlace | None]:
    """Choose the place of the name of each id in the lines of one layout."""
    n = max(map(len, records))
    places = {place for record in records for _, of_id in record for place in of_id}
    scores = [{place: _score_place(records, i, place, known) for place in places} for i in range(n)]
    totals = {place: sum(of_id[place].total for of_id in scores) for place in places}
    joint = max(places, key=lambda p: (totals[p], p), default=None)
    if joint is None:
        return [None] * n
    # A text is the name of one id: what is after an id may be before the next.
    cells = {cell for record in records for _, of_id in record if (cell := of_id.get(joint))}
    for place in sorted(places, key=lambda p: (-totals[p], p)):
        of_place = {cell for record in records for _, of_id in record if (cell := of_id.get(place))}
        if 2 * len(cells & of_place) > len(cells | of_place):
            names, others = (sum(of_id[p].names for of_id in scores) for p in (place, joint))
            if (names, -_cost_of_place(place)) > (others, -_cost_of_place(joint)):
                joint = place
    chosen = [
        max(places, key=lambda p: (of_id[p].total, p)) if of_id[joint].total < _MIN_SCORE else joint
        for of_id in scores
    ]
    return [
        place
        if of_id[place].total >= _MIN_SCORE
        and (len(records) >= _MIN_RECORDS or any(s[place].agrees for s in scores))
        else None
        for place, of_id in zip(chosen, scores, strict=True)
    ]


class _Score(NamedTuple):
    """How well a place suits an id: its score, and the numbers of names and of right names."""

    total: float
    names: int
    agrees: int


def _score_place(
    records: Sequence[_IdsInLine],
    i: int,
    place: NamePlace,
    known: Mapping[tuple[str, str], float],
) -> _Score:
    pairs = [record[i] for record in records if len(record) > i]
    found = [known[id.text, text.text] for id, of_id in pairs if (text := of_id.get(place))]
    total = sum(found) / len(pairs) - _cost_of_place(place)
    return _Score(total, sum(x >= NAMES for x in found), sum(x == AGREES for x in found))


def choose_columns(
    rows: Sequence[Sequence[Cell]], id_columns: Sequence[int], values: NameValues
) -> dict[int, int]:
    """Return the column of the names of each column of ids, leaving out those that have none.

    Names come in the order of their ids, and belong to one column of ids, or agree with both.
    """
    others = frozenset(id_columns)
    near = {
        p: [q for q in range(max(0, p - _N_COLUMNS), p + _N_COLUMNS) if q not in others]
        for p in id_columns
    }
    texts = [
        (p, q, row[p].text, row[q].text)
        for row in rows
        for p, columns in near.items()
        for q in columns
        if max(p, q) < len(row) and row[p].text and 1 < len(row[q].text) <= _MAX_NAME_LENGTH
    ]
    known = values((id, text) for _, _, id, text in texts)
    values_at: dict[tuple[int, int], list[float]] = defaultdict(list)
    for p, q, id, text in texts:
        values_at[p, q].append(known[id, text])
    n = {p: max(1, sum(p < len(row) and bool(row[p].text) for row in rows)) for p in id_columns}
    scores: dict[int, dict[int, float]] = defaultdict(dict)
    for (p, q), found in values_at.items():
        mean = sum(found) / n[p]
        if mean >= _MIN_SCORE and (n[p] >= _MIN_RECORDS or AGREES in found):
            scores[p][q] = mean - 0.01 * abs(p - q) - 0.005 * (q > p)
    # The best assignments for the columns of ids so far, by their last column of names.
    best: dict[int, tuple[float, dict[int, int]]] = {-1: (0.0, {})}
    for p in sorted(scores):
        so_far = dict(best)
        for q, score in scores[p].items():
            earlier = (found for last, found in so_far.items() if last < q)
            total, assigned = max(earlier, key=itemgetter(0))
            if q not in best or total + score > best[q][0]:
                best[q] = total + score, {**assigned, p: q}
    _, chosen = max(best.values(), key=itemgetter(0))
    for p, of_id in scores.items():
        for q in of_id:
            if 2 * values_at[p, q].count(AGREES) > n[p]:
                chosen.setdefault(p, q)
    return chosen
