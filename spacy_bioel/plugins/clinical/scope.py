"""Find the cues that apply to a mention in a clinical note: cues in the same sentence, cell or
item, and cues from the note's layout.

In a sentence, a cue ("denies", "was ruled out") applies to the mentions after or before it, up to a
word that ends its scope ("but"). A heading ("Family history", "Denies:") applies to the text below
or after it, a column header to its cells, an answer to its question, and a check box to its item.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise

from spacy_bioel.plugins.clinical.answers import AFTER_ANSWER, Mark, find_marks, start_after
from spacy_bioel.plugins.clinical.clauses import Sentence
from spacy_bioel.plugins.clinical.context_rules import (
    AFFIRMED,
    FLAGS,
    NEGATED_IF_PAIRED,
    PERSONS,
    UNKNOWN,
    ContextRules,
)
from spacy_bioel.plugins.clinical.layout import Node, is_ticked, read_layout, units_of
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.plugins.clinical.words import Found

_PEDIGREE_ID = re.compile(r"[IVX]+[-:.]\d+")
# Text between a mention and its answer or sign: either free of commas or an enumeration.
_ENUMERATION = re.compile(r"[^,]*|\s*(?:[,/&]|and\b|or\b).*", re.S)
_HISTORY = re.compile(r"(?:(fam\w*)|past|previous|prior)\b.*\b(?:history|hx|h/o)")
_PAST = re.compile(r"pmh|hx|s/p|p\w+ \w+ history:", re.I)
_ITEM = re.compile(r"[,;\n]|\.(?=\s)")
_DATED = re.compile(
    r"\b(?:19|20)\d\d\b|\baged? \d|\bago\b|\bas (?:an? )?(?:kid|child|baby|teen)|\bprev|ectomy",
    re.I,
)
_MAX_SCOPE = 500
_MAX_UNIT = 2_000  # characters
_PURPOSE = re.compile(r"\b(?:for|to|because|due|regarding|re)\b", re.I)  # words of a task
_COMMENT = re.compile(r"(?<=[\w+-])\s*\([^()]*\)\Z|(?<=\w),.*\Z")  # "Proband (II-1)", "yes, mild"
_RELATION = re.compile(
    r"\b(?:effects?|influence|impact|associations?|correlations?|relation\w*|interactions?|role"
    r"|differen\w+|changes?|mention)\b",
    re.I,
)
_RULING = frozenset(("section", "list", "item", "pair", "row", "box"))  # kinds of nodes with cues
_MAX_HEAD_LENGTH = 120


def contexts(
    text: str,
    rules: ContextRules,
    mentions: Sequence[tuple[int, int]],
    words: Container[tuple[int, int]] = (),
) -> list[Context]:
    """Return the context of each mention. Mentions are (start, end) offsets, and may overlap.

    words (Container): Mentions to treat as ordinary words that may be cues.
    """
    note = _Note(text, rules, [mention for mention in mentions if mention not in words])
    return [Context() if place in words else note.context(*place) for place in mentions]


class _Note:
    """A text with its layout, and the cues in each of its sentences, cells and items."""

    def __init__(self, text: str, rules: ContextRules, mentions: Sequence[tuple[int, int]]) -> None:
        self.text, self.rules = text, rules
        self.layout = read_layout(text)
        self.is_study = rules.is_study(text)
        self.units = _bounded(text, units_of(text))
        self.mentions = _merged(mentions)
        self.marks: dict[int, list[Mark]] = defaultdict(list)
        for mark in find_marks(text, rules, mentions, self.units):
            self.marks[self.unit_of(mark.place)].append(mark)
        self._sentences: dict[int, Sentence] = {}
        self._heads: dict[tuple[int, int], list[Found]] = {}
        self._ends: dict[Node, int] = {}
        self._ticked: dict[Node, bool] = {}

    def unit_of(self, position: int) -> int:
        """Return the index of the sentence, cell or item that contains `position`."""
        return max(0, bisect_right(self.units, position) - 1)

    def context(self, start: int, end: int) -> Context:
        unit = self.unit_of(start)
        cues = list(self._cues_in_unit(start, end, unit))
        if any(status == AFFIRMED for *_, status in cues):
            answer = next(cue[0] for cue in cues if cue[2] == AFFIRMED)
            cues = [c for c in cues if c[2] not in (AFFIRMED, "negated") and c[0] <= answer]
        # A finding belongs to the nearest relative before it or, failing that, after it.
        cues.sort(key=lambda cue: (cue[0] >= end, abs(cue[0] - start)))
        path = list(self.layout.path(start))
        for depth in range(len(path) - 1, -1, -1):
            for cue in self._cues_of_layout(path, depth, start):
                is_past = cue[2] == "historical" and self._is_current(unit)
                is_over = cue[2] == "negated" and self._sentence(unit).is_contrary(start)
                is_over |= cue[2] == "family" and self._sentence(unit).is_of_patient(start)
                if cue[2] != AFFIRMED and not (is_past or is_over):
                    cues.append(cue)
        layout = ", ".join(
            node.kind for node in path[1:] if node.kind not in ("paragraph", "sentence")
        )
        if not cues:
            return Context(layout=layout)
        cues = self._decided(cues, path, start, end, unit)
        statuses = {status for *_, status in cues}
        if UNKNOWN in statuses:
            said = tuple(sorted(set(cues)))
            return Context(None, None, None, None, layout=layout, cues=said)
        experiencer = next((person for person in PERSONS if person in statuses), "patient")
        relatives = (self.rules.relative(self.text[a:b]) for a, b, s in cues if s == "family")
        return Context(
            **{flag: flag in statuses for flag in FLAGS},
            experiencer=experiencer,
            relative=next(filter(None, relatives), ""),
            layout=layout,
            cues=tuple(sorted(set(cues))),
        )

    def _decided(
        self, cues: list[Found], path: Sequence[Node], start: int, end: int, unit: int
    ) -> list[Found]:
        """Drop the cues that a mention's other cues overrule."""
        behind = [c for c in cues if c[0] >= end and c[2] in ("negated", "uncertain")]
        if len({status for *_, status in behind}) > 1:  # "was suspected, but ruled out"
            last = max(behind)[2]
            cues = [c for c in cues if c not in behind or c[2] == last]
        past = [
            at
            for at, to, status in cues
            if status == "historical" and not self.text[at:to].lower().startswith("used")
        ]
        is_over = not past or not (
            self._goes_on(path, start, end, unit, past) or self._sentence(unit).goes_on(start)
        )
        left_out: tuple[str, ...] = () if is_over else ("historical",)
        if self.is_study:
            cues = [cue for cue in cues if self._is_in_study(cue, start)]
        return [cue for cue in cues if cue[2] not in left_out]

    def _is_in_study(self, cue: Found, start: int) -> bool:
        """Whether a cue in an abstract says that a finding does not exist, or may occur.

        Study abstracts do not give the history of patients or relatives. "Not in women", "no
        effect on X" and "suggests that X" are about relations between things that exist.
        """
        first, last, status = cue
        if status == "negated":
            is_contrast = self.text[first:last].lower() in ("not", "rather than")
            return not (is_contrast or _RELATION.search(self.text, first, max(first, start)))
        return status in ("hypothetical", UNKNOWN)

    def _sentence(self, unit: int) -> Sentence:
        """Return the sentence, cell or item at an index, with its mentions' cues; cached."""
        if unit not in self._sentences:
            start = self.units[unit]
            end = self.units[unit + 1] if unit + 1 < len(self.units) else len(self.text)
            first, last = (bisect_left(self.mentions, (place,)) for place in (start, end))
            inside = self.mentions[max(0, first - 1) : last]
            mentions = [(max(a, start), min(b, end)) for a, b in inside if b > start]
            marks = [
                mark
                for number in ((unit - 1, unit) if self.marks else ())
                for mark in self.marks.get(number, ())
                if mark.place < end
                and start < mark.end
                and not any(a < mark.end and mark.place < b for a, b in mentions)
            ]
            sentence = Sentence(self.rules.cue_words, self.text, (start, end), mentions, marks)
            sentence.read()
            self._sentences[unit] = sentence
        return self._sentences[unit]

    def _cues_in_unit(self, start: int, end: int, unit: int) -> Iterator[Found]:
        """Yield the cues in a sentence, cell or item that apply to a mention in it."""
        for mark in self.marks.get(unit, ()):
            if 0 <= mark.reach < end <= mark.start:
                if _ENUMERATION.fullmatch(self.text, end, mark.place):
                    yield mark.start, mark.end, mark.status
        merged = self.mentions[bisect_right(self.mentions, (start, len(self.text))) - 1]
        place = max(merged[0], self.units[unit]) if self.units else merged[0]
        yield from self._sentence(unit).found.get(place, ())

    def _goes_on(
        self, path: Sequence[Node], start: int, end: int, unit: int, past: Iterable[int]
    ) -> bool:
        """Whether a past disease has no date but nearby ones do: "HTN, stroke 2011"."""
        if not any(p < self.units[unit] or _PAST.match(self.text, p) for p in past):
            return False
        ruling = (n for n in reversed(path) if n.kind in ("list", "pair", "section"))
        node = next(ruling, None)
        last = self.units[unit + 1] if unit + 1 < len(self.units) else len(self.text)
        first, last = node.span if node else (self.units[unit], last)
        first, last = max(first, start - _MAX_SCOPE), min(last, start + _MAX_SCOPE)
        here = _ITEM.search(self.text, end, last)
        low = max(self.text.rfind(sign, first, start) for sign in ",;\n:")
        own = self.text[max(low, first) : here.start() if here else last]
        return bool(_DATED.search(self.text, first, last)) and not _DATED.search(own)

    def _is_current(self, unit: int) -> bool:
        end = self.units[unit + 1] if unit + 1 < len(self.units) else len(self.text)
        return bool(self.rules.patterns["now"].search(self.text, self.units[unit], end))

    def _cues_of_layout(self, path: Sequence[Node], depth: int, start: int) -> Iterable[Found]:
        """Return the cues that a layout node, such as a section, gives a mention inside it.

        path (Sequence[Node]): The nodes that contain the mention, from the outermost.
        depth (int): Index of the node whose cues are returned.
        """
        node = path[depth]
        if node.kind not in _RULING:
            return ()
        if node.kind == "row" and depth + 1 < len(path):
            return self._cues_of_row(path[depth - 1], node, path[depth + 1])
        if node.kind == "box":
            return self._cues_of_box(path, depth, start)
        if node.kind == "pair" and start < node.head[1]:
            if [part.kind for part in node.parts] == ["box"]:  # "Confused: [ ]"
                return self._cues_of_box([*path[: depth + 1], node.parts[0]], depth + 1, start)
            is_box = self.text[node.body - 1] in "])☑☒■✓"
            value = self.rules.patterns["value"].match(self.text, node.body) if is_box else None
            return [(*value.span("mark"), self._status_of(value))] if value else []
        if node.kind == "row" or start < node.body:
            return []
        if node.kind in ("section", "pair") and start >= self._end_of_scope(node):
            return []
        return self._cues_of_head(*node.head)

    def _cues_of_head(self, start: int, end: int) -> list[Found]:
        """Return the cues in a heading that has only cues and fillers: "None of the following"."""
        if end - start > _MAX_HEAD_LENGTH:
            return []
        if (cues := self._heads.get((start, end))) is not None:
            return cues
        rules, cues, place = self.rules, [], (start, end)
        start, end = self._without_comment(start, end)
        start = max(start, start_after(".;", self.text, end))
        name = " ".join(self.text[start:end].lower().split())
        known = [
            names[name] for names in (rules.heads, rules.sections, rules.answers) if name in names
        ]
        if known and len(name) > 1:
            cues = [(start, end, known[0])]
        elif history := _HISTORY.fullmatch(name):  # "family psych hx"
            cues = [(start, end, "family" if history[1] else "historical")]
        else:
            words = Sentence(rules.cue_words, self.text, (start, end), [(end, end)], is_head=True)
            if words.says_only_cues(rules.fillers):
                cues = words.read().get(end, [])
        self._heads[place] = cues
        return cues

    def _end_of_scope(self, node: Node) -> int:
        """Return the offset where a section header or key stops applying, e.g. before "She has"."""
        if node not in self._ends:
            opens, empty = (self.rules.patterns[name] for name in ("opens", "empty"))
            first, last = bisect_left(self.units, node.body), bisect_left(self.units, node.end)
            is_empty = empty.match(self.text, node.body)
            ends = (u for u in self.units[first:last] if is_empty or opens.match(self.text, u))
            self._ends[node] = next(ends, node.end)
        return self._ends[node]

    def _cues_of_box(self, path: Sequence[Node], depth: int, start: int) -> Iterator[Found]:
        """Yield a negation if a mention's check box is empty but others nearby are ticked."""
        box = path[depth].head
        block = next(n for n in reversed(path[:depth]) if n.kind in ("list", "section", "note"))
        if block not in self._ticked:
            boxes = (node.head for node in block if node.kind == "box")
            self._ticked[block] = any(is_ticked(self.text[slice(*head)]) for head in boxes)
        is_task = _PURPOSE.search(self.text, min(box[1], start), start)
        if self._ticked[block] and not is_ticked(self.text[slice(*box)]) and not is_task:
            yield (*box, "negated")

    def _cues_of_row(self, table: Node, row: Node, cell: Node) -> list[Found]:
        """Return the cues for a mention in a table cell, taken from other cells and the header."""
        header, is_first = self._header(table), cell is row.parts[0]
        if row.start < table.body:  # the column name is a finding, and each row is about a person
            rows = [other.parts for other in table.parts[1:]]
            values = [
                (self._cues_of_head(*first.span), self._is_patient(first), value)
                for first, *others in rows
                for value in others
                if value.column == cell.column
            ]
            is_who = any(
                own or {s for *_, s in says}.intersection(PERSONS) for says, own, _ in values
            )
            return self._cues_of_values(values) if is_who and not is_first else []
        column = self._cues_of_column(table, cell)
        is_named = any(says != AFFIRMED for *_, says in column)
        if not is_first or is_named or any(map(self._is_patient, header[:1])):
            before = [part for part in row.parts if part.end <= cell.start]
            said = [
                cue
                for part in before
                for cue in self._cues_of_head(*part.span)
                if part is row.parts[0] or cue[2] in PERSONS
            ]
            return [*column, *([] if is_first else said)]
        patients = [name.column for name in header if self._is_patient(name)]
        return self._cues_of_values(
            [
                (
                    self._cues_of_column(table, value),
                    not patients or value.column in patients,
                    value,
                )
                for value in row.parts[1:]
            ]
        )

    def _cues_of_values(self, values: Sequence[tuple[list[Found], bool, Node]]) -> list[Found]:
        """Return the cues for a finding, taken from the cells in its row or column.

        values (Sequence): For each cell, the cues of the column, whether the column may be about
            the patient, and the cell itself.
        """
        cues: list[Found] = []
        affected: list[list[Found]] = []  # relatives
        unaffected: list[list[Found]] = []
        for column, may_be_patient, value in values:
            if value.start == value.end:
                continue
            status = self._status_of_cell(value)
            if any(says in PERSONS for *_, says in column):
                if status == "negated":
                    unaffected.append([*column, (*value.span, status)])
                elif status in (AFFIRMED, None):
                    affected.append(column)
            elif may_be_patient:
                if status is None:  # other words: "mild", "mother"
                    return cues or self._cues_of_head(*value.span)
                says = next((says for *_, says in column), AFFIRMED)
                if status == AFFIRMED:
                    status = says
                elif status == says == "negated":
                    status = AFFIRMED
                cues.append((*value.span, status))
        if any(status == AFFIRMED for *_, status in cues):
            return []
        if all(status == "uncertain" for *_, status in cues):
            return next(iter((*affected, *unaffected)), cues)
        return cues

    def _header(self, table: Node) -> list[Node]:
        return table.parts[0].parts if table.head[0] < table.head[1] else []

    def _cues_of_column(self, table: Node, cell: Node) -> list[Found]:
        names = (name for name in self._header(table) if name.column == cell.column)
        return [cue for name in names for cue in self._cues_of_head(*name.span)]

    def _is_patient(self, cell: Node) -> bool:
        return self.text[slice(*self._without_comment(*cell.span))].lower() in self.rules.patient

    def _without_comment(self, start: int, end: int) -> tuple[int, int]:
        """Return the offsets of a cell or heading, excluding a comment such as "(II-1)"."""
        comment = _COMMENT.search(self.text, start, end)
        if comment is None:
            return start, end
        if _PEDIGREE_ID.fullmatch(self.text, start, comment.start()):  # "II-1 (proband)"
            return self.text.find("(", start, end) + 1, end - 1
        return start, comment.start()

    def _status_of_cell(self, cell: Node) -> str | None:
        """Return the status of a cell that holds an answer, sign or tick; None for other cells."""
        start, end = self._without_comment(*cell.span)
        words = self.text[start:end].lower()
        if words in ("x", "✓", "✔") or not words.strip("+"):
            return AFFIRMED
        if words == "0":
            return "negated"
        if words in self.rules.signs:
            status = self.rules.signs[words]
            return "negated" if status == NEGATED_IF_PAIRED else status
        value = self.rules.patterns["value"].match(self.text, start, end)
        is_whole = value and (value.end() == end or AFTER_ANSWER.match(self.text, value.end()))
        return self._status_of(value) if value and is_whole else None

    def _status_of(self, value: re.Match[str]) -> str:
        return self.rules.answers[value["mark"].lower()]


def _bounded(text: str, units: Sequence[int]) -> list[int]:
    """Return unit starts, splitting long units so that run time stays linear even in a text without
    sentences."""
    bounded: list[int] = []
    for start, end in pairwise([*units, len(text)]):
        bounded.append(start)
        while end - bounded[-1] > _MAX_UNIT:
            bounded.append(text.rfind(" ", bounded[-1] + 1, bounded[-1] + _MAX_UNIT) + 1)
            if bounded[-1] <= bounded[-2]:
                bounded[-1] = bounded[-2] + _MAX_UNIT
    return bounded


def _merged(mentions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping mentions, and return the resulting offsets."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(mentions):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
