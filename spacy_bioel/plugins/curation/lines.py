"""Read ids in lines of text, and the strings that may be their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from itertools import islice, pairwise
from typing import NamedTuple

from spacy_bioel.plugins.curation.ids import ID_LABEL
from spacy_bioel.plugins.curation.name_places import (
    MAX_NAME_LENGTH,
    SENTENCE,
    Entry,
    IdRecord,
    NamePlace,
)
from spacy_bioel.plugins.curation.pairs import Cell, Pair

_AROUND_NAMES = " \t#*_`\"'“”„,:=–—-([{"  # white space, emphasis, quotes, separators and brackets
LIST_MARK = re.compile(r"\s{0,99}(?:[-*•>#+]{1,6}|\d{1,3}[.)])\s{1,9}")
# The full stops in "E. coli", "St. Louis" and "graft vs. host" do not end a clause.
_NOT_SHORT = "".join(rf"(?<!\b{word})" for word in "[A-Z] St Dr sp spp var subsp vs cf".split())
_STOP = rf"(?:[!?]|{_NOT_SHORT}\.)(?:\s|$)"
_CLAUSE_START = re.compile(rf"[;|•\t\])}}]|:\s|{_STOP}")
_CLAUSE = re.compile(rf"(?:\([^()]{{0,200}}\)|(?!{_STOP})[^;|•\t\])}}(])*")
# Text between a name and its id: a footnote, an opening bracket or a label such as "HPO id:".
_BEFORE_ID = re.compile(
    rf"(?:\[\^?\w{{1,9}}\]\s?)?([(\[])?[ *_`\"']{{0,9}}(?:(?<!\w){ID_LABEL}[\s*_`:=,]{{0,9}})?$"
)
_NAME_LABEL = re.compile(r"(?:[\s*_`,;|—–-]{0,9}(?:[Nn]ame|[Ll]abel|[Tt]erm)[*_` ]{0,9}:)?")
_OPEN = re.compile(r"\([^()]*$")
_PART = re.compile(r"[^;,]+")
# Words between a name and its id: "were not seen", ", coded as".
_VERB_PHRASE = re.compile(r"(?:\b(?:is|are|was|were)|,)(?:\s\w{1,20}){1,2}\W{0,9}$")
# Text between ids that share a name: ", " or " and ".
BETWEEN_IDS = re.compile(r"[\s,;/|&*_`]{0,9}(?:(?:and|or)\b)?[\s,;/|&*_`]{0,9}")
_BANG = re.compile(r"[\s`*]{0,9}!")
_NAME_IN_BRACKETS = re.compile(r"[\s*_`]{0,9}\(([^()]{2,200})\)")
_MAX_LOOK_BACK = 300  # number of characters before an id that are searched for its name
_MAX_WORDS = 12  # Maximum number of words in a name before or after an id.
# A line's last character and the next line's first, if a sentence continues across them.
_CONTINUES = re.compile(r"[\w,;][a-z\d]|\w[(\[]")
_N_PARTS, _N_LINES_NEAR = 20, 12
_MAX_INDENT = 4  # maximum indent of a name's second line
_N_ITEMS = 4  # number of items read at each end of a list
_N_NEAR = 6  # number of texts read before and after an id in a line
_PART_SEPARATOR = re.compile(
    r"\t|\||(?<!\[)\^|</?[A-Za-z][\w:-]*|/?>|[\"“”{}]|(?<![\w'])'|'(?![\w'])|\s&\s|(?<=\S)\s{2,}(?=\S)"
)
_AROUND = " \t*_`'#>:=,;.–—-([{)]}!/\\+•&~"
_KEY_OF_VALUE = re.compile(r"(?:.*:|[^=]{1,80}=)", re.S)
_CONTENT = re.compile(r"[^\W_](?:.*[^\W_])?[)\],.;]*", re.S)
_REPEATED_MARKS = re.compile(r"(.{2,40}?)\1+")
_NOT_SPACES = re.compile(r"\S+")
# Words that indicate running text: a line with one of them has more than a name and an id.
_PROSE = re.compile(
    r"\b(?:is|are|was|were|as|see|use[ds]?|has|have|had|the|this|that|which|under|by|from|code[sd]?)\b",
    re.I,
)


def line_pairs(cell: Cell, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the pairs in a line: "name (CURIE)", "CURIE ! name", "[name](address)" and others."""
    line, matches = cell.text, list(ids.finditer(cell.text))
    starts = [*(match.start() for match in matches[1:]), len(line)]
    shared: Sequence[Cell] = ()  # by all ids in a bracket
    left, names_follow = 0, False
    for match, right in zip(matches, starts, strict=False):
        between, start, last = line[left : match.start()], match.start(), left
        left = match.end()
        if last and between == "](":
            continue  # the address of a link whose text is an id
        names, has_name = shared, True
        if not (shared and between and BETWEEN_IDS.fullmatch(between)):
            names, has_name = _names_at(line, last, start, left, right)
            is_before = bool(names) and names[0].at < start
            shared = names if has_name and is_before else ()
            if not last:
                names_follow = bool(names) and not is_before
            elif names_follow and not has_name:
                names = [name for name in names if name.at > start]
        yield Pair(
            cell.part(match[0], start),
            tuple(cell.part(name.text, name.at) for name in names),
            has_name and bool(names),
        )


def _names_at(line: str, left: int, start: int, end: int, right: int) -> tuple[list[Cell], bool]:
    """Return the possible names of the id at start:end, and whether one must be its name."""
    if match := _BANG.match(line, end, right):
        return _names(line, match.end(), right), True
    if line.endswith("](", left, start):
        return _names(line, line.rfind("[", left, start) + 1, start - 2), True
    label = _BEFORE_ID.search(line, max(left, start - 60), start)
    stop, is_opened = label.start(), bool(label[1])  # type: ignore[union-attr, index]
    first = max(left, stop - _MAX_LOOK_BACK)
    # "ataxia (clumsy gait; HP:0001251)": the name is before an open bracket, or inside it.
    bracket = _OPEN.search(line, first, stop)
    outer = bracket.start() if bracket else stop
    for clause in _CLAUSE_START.finditer(line, first, outer):
        first = clause.end() if line[clause.end() : outer].strip(_AROUND_NAMES) else first
    if bullet := LIST_MARK.match(line, first, outer):
        first = bullet.end()
    first = BETWEEN_IDS.match(line, first, outer).end()  # type: ignore[union-attr]
    parts = (part.span() for part in _PART.finditer(line, outer + 1, stop))
    spans = dict.fromkeys([(first, outer), *parts, (first, stop)])
    if stated := _VERB_PHRASE.search(line, first, stop):
        spans[first, stated.start()] = None
    before = [name for span in spans for name in _names(line, *span, last=_MAX_WORDS)]
    if is_opened and before:
        return before, True
    if brackets := _NAME_IN_BRACKETS.match(line, end, right):
        return _names(line, *brackets.span(1)) + before, not before
    skipped = end + (is_opened and line[end : end + 1] in (")", "]"))
    skipped = _NAME_LABEL.match(line, skipped, right).end()  # type: ignore[union-attr]
    clause_end = _CLAUSE.match(line, skipped, right).end()  # type: ignore[union-attr]
    after = _names(line, skipped, clause_end, first=_MAX_WORDS)
    # Require these words to be a name only if the line has no other words.
    rest = line[clause_end if after else end :].strip(_AROUND_NAMES + ".)]}")
    is_whole = bool(before) != bool(after) and not left and not rest
    words = line[first:stop] if before else line[skipped:clause_end]
    # "Parent: HP:1", "Suggested HPO: HP:1"
    key = line[:stop].rstrip(_AROUND_NAMES.replace(":", ""))
    is_label = ":" in label[0] and not line[:stop].rstrip().endswith((",", ";"))  # type: ignore[index]
    is_key = key.endswith(":") or is_label
    return before + after, is_whole and not is_key and not _PROSE.search(words)


def _names(line: str, start: int, end: int, *, first: int = 0, last: int = 0) -> list[Cell]:
    """Return the possible names in part of a line, longest first.

    first, last (int): Maximum length in words of a name before, or after, other words; 0: none.
    """
    spans = [(start, end)]
    if first:
        words = islice(_NOT_SPACES.finditer(line, start, end), first)
        spans = [(start, match.end()) for match in words][::-1]
    elif last:
        spans = [(match.start(), end) for match in _NOT_SPACES.finditer(line, start, end)][-last:]
    after = _AROUND_NAMES + ".;" * bool(first)
    cells = (Cell(line[a:b].rstrip(after), at=a).stripped(_AROUND_NAMES) for a, b in spans)
    return [cell for cell in dict.fromkeys(cells) if any(map(str.isalpha, cell.text))]


class _SplitLine(NamedTuple):
    """A line, the marks between its words, and its parts (ids and possible names)."""

    cell: Cell
    marks: str
    parts: list[tuple[Cell, bool]]
    has_ids: bool


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
    shown = _REPEATED_MARKS.sub(r"\1+", "".join(marks))
    return _SplitLine(cell, shown, parts, any(is_id for _, is_id in parts))


def _readings_of(cell: Cell) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield possible names: the whole text or a list item, with and without its key."""
    while mark := LIST_MARK.match(cell.text):  # "### 1. "
        cell = cell.part(cell.text[mark.end() :], mark.end())
    spans = {"whole": (0, len(cell.text))}
    for sign in ",;":
        ends = [-1, *(i for i, c in enumerate(cell.text) if c == sign), len(cell.text)]
        items = [(start + 1, end) for start, end in pairwise(ends)]
        if len(items) > 1:
            spans |= {f"{sign}{k}": span for k, span in enumerate(items[:_N_ITEMS])}
            spans |= {f"{sign}-{k}": span for k, span in enumerate(items[: -_N_ITEMS - 1 : -1])}
    for reading, (start, end) in spans.items():
        texts = [cell.part(cell.text[start:end], start)]
        if key := _KEY_OF_VALUE.match(cell.text, start, end):
            texts.append(cell.part(cell.text[key.end() : end], key.end()))
        if found := tuple(filter(None, (_as_name(text, cell) for text in texts))):
            yield reading, found


def _as_name(cell: Cell, around: Cell) -> Cell | None:
    """Strip the marks around a text; return None if the rest cannot be a name."""
    part = cell.stripped(_AROUND)
    if part.text.count(")") < part.text.count("(") and f"{part.text})" in around.text:
        part = part._replace(text=f"{part.text})")  # restore the closing bracket
    if "\\u" in part.text:  # an escape of JSON
        text = re.sub(r"\\u([\da-fA-F]{4})", lambda m: chr(int(m[1], 16)), part.text)
        part = part._replace(text=text, at=-1)
    if "&" in part.text or ("_" in part.text and " " not in part.text):
        part = part._replace(text=unescape(part.text).replace("_", " "), at=-1)
    is_name = 1 < len(part.text) <= MAX_NAME_LENGTH and any(map(str.isalpha, part.text))
    return part if is_name else None


def _texts_around(
    lines: Sequence[_SplitLine], number: int, index: int
) -> dict[NamePlace, tuple[Cell, ...]]:
    """Return the texts around an id in a line, keyed by place."""
    parts = lines[number].parts
    before = parts[max(0, index - _N_PARTS) : index][::-1]
    found: dict[tuple[str, int], Cell] = {}
    for kind, cells in (("before", before), ("after", parts[index + 1 : index + 1 + _N_PARTS])):
        texts = islice((cell for cell, is_id in cells if not is_id), _N_NEAR)
        found |= {(kind, n): cell for n, cell in enumerate(texts)}
    below = lines[number + 1 : number + 1 + _N_LINES_NEAR]
    for step, nearby in ((-1, lines[max(0, number - _N_LINES_NEAR) : number][::-1]), (1, below)):
        seen: Counter[str] = Counter()  # number of lines with the same marks so far
        for line in nearby:
            if line.has_ids:
                if step > 0 and seen:  # any further lines belong to the next id
                    break
                continue
            seen[line.marks] += 1
            n = step * seen[line.marks]
            if len(line.parts) == len(parts) > 1:
                found[f"column {line.marks}", n] = line.parts[index][0]
            elif len(line.parts) <= _N_NEAR:
                inside = enumerate(cell for cell, _ in line.parts)
                found |= {(f"{k} of {line.marks}", n): cell for k, cell in inside}
    return {
        (kind, n, reading): (*_wrapped(texts[0], lines[number].cell, below), *texts)
        if kind in ("before", "after") and reading == "whole"
        else texts
        for (kind, n), cell in found.items()
        for reading, texts in _readings_of(cell)
    }


def _wrapped(part: Cell, line: Cell, below: Sequence[_SplitLine]) -> Iterator[Cell]:
    """Yield a text joined to the lines below it in the same column, longest first."""
    longer, text, at = list[str](), part.text, part.at - line.at
    for other in below:
        stripped = [(cell.stripped(), other.cell.at) for cell, _ in other.parts]
        same = (c.text for c, start in stripped if 0 <= c.at - start - at <= _MAX_INDENT)
        if other.has_ids or part.at < 0 or not (rest := next(same, "")):
            break
        longer.append(text := f"{text} {rest}")
    yield from (Cell(text, at=-1) for text in reversed(longer))


def line_records(lines: Iterable[Cell], ids: re.Pattern[str]) -> Iterator[IdRecord]:
    """Read the ids in lines of text, and the texts around them."""
    split = [_split_line(cell, ids) for cell in lines if cell.text.strip()]
    for number, line in enumerate(split):
        if not line.has_ids:
            continue
        entries = list[Entry]()
        in_sentence = _sentence_pairs(line.cell, split[number - 1].cell if number else None, ids)
        by_id = {pair.id: pair for pair in in_sentence}
        end = -1  # end of the previous id
        for index, (id, is_id) in enumerate(line.parts):
            if is_id:
                pair = by_id.get(id, Pair(id))
                texts = _texts_around(split, number, index)
                texts |= {SENTENCE: pair.names} if pair.names else {}
                between = line.cell.text[end : id.at - line.cell.at]
                shares = end > 0 and bool(BETWEEN_IDS.fullmatch(between))
                end = id.at - line.cell.at + len(id.text)
                place = SENTENCE if pair.has_name else None
                entries.append(Entry(len(entries), id, texts, place, shares))
        yield IdRecord(line.marks, entries)


def _sentence_pairs(line: Cell, before: Cell | None, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read a line's pairs as part of a sentence that may begin on the previous line."""
    lead = ""
    is_next = before and before.place.line + 1 == line.place.line
    if (
        before
        and is_next
        and _CONTINUES.fullmatch(f"{before.text.rstrip()[-1:]}{line.text.lstrip()[:1]}")
    ):
        words = before.text[max((m.end() for m in ids.finditer(before.text)), default=0) :].split()
        lead = "".join(f"{word} " for word in words[-_MAX_WORDS:])
    start = len(lead)

    def in_line(cell: Cell) -> Cell:
        if cell.at < start:  # partly or wholly on the previous line
            return Cell(" ".join(cell.text.split()), at=-1)
        return line.part(cell.text, cell.at - start)

    for id, names, has_name in line_pairs(Cell(lead + line.text), ids):
        yield Pair(in_line(id), tuple(map(in_line, names)), has_name)
