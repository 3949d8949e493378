"""Which cues apply to a mention in a clinical note: those in its sentence, cell or item, and those
that the layout of the note gives it.

In a sentence, a cue ("denies", "was ruled out") applies to the mentions after or before it, up to a
word that ends its scope ("but"). A head ("Family history", "Denies:") applies to what is below or
after it, the header of a column to its cells, an answer to its question, and a box to its item.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, takewhile

from spacy_bioel.plugins.clinical.answers import (
    AFTER_ANSWER,
    CLAUSE_END,
    Phrase,
    start_after,
    with_marks,
)
from spacy_bioel.plugins.clinical.context_rules import (
    AFFIRMED,
    ALL_STATUSES,
    FLAGS,
    NEGATED_IF_PAIRED,
    PERSONS,
    ContextRules,
)
from spacy_bioel.plugins.clinical.layout import Node, is_ticked, read_layout, units_of
from spacy_bioel.plugins.clinical.status import Context

Cue = tuple[int, int, str]  # start, end and status

_IN_BRACKETS = re.compile(r"\([^()]*\w[^()]*\Z")
# "absent" before a noun: "hypotonia with absent reflexes".
_ATTRIBUTE = re.compile(
    r" (?!(?:and|at|bilaterally|both|but|currently|during|for|from|in|now|on|or|since|this"
    r"|throughout|today)\b)[a-z]"
)
_SINGULAR, _PLURAL = ("has ", "is ", "was "), ("are ", "have ", "were ")
_LAST_ITEM = re.compile(r"(?:\b(?:and|or|nor)\b|&)[^,]*\Z")
_AFFIRMED_ITEM = re.compile(
    r",\s*+(?:(?:mild|moderate|severe|marked|profound|slight|gross|obvious|brisk)(?:ly)?\s"
    r"|(?:(?!(?:and|for|in|last|no|or|over|past|since|x)\b)[\w-]++\s++){1,4}?"
    r"(?:\+|(?:\d++(?:[./]\d++)*+)"
    r"(?=\s*(?:cm|mm|kg|%|bpm|mmHg|times|[.,;]|\Z))|(?:present|noted|twice)\b"
    r"|(?:is|was|are|were)\s(?!absent|neg|not|nil)|(?:could not|can ?not)\sbe\b)|[\w ]{2,25}:\s)",
    re.I,
)
_NEXT_CLAUSE = re.compile(r"[.;:\n]|\bno\b|\Z")
_MAX_ITEM = 40  # characters after a mention in which its item may be affirmed
_PEDIGREE_ID = re.compile(r"[IVX]+[-:.]\d+")
_OR = re.compile(r"\bn?or\b")  # "No A or B," is a complete list
# Text between a mention and its answer or sign, which has no comma or is an enumeration; and text
# between a mention and a cue with the direction "behind", and between "next" and a mention.
_ENUMERATION = re.compile(r"[^,]*|\s*(?:[,/&]|and\b|or\b).*", re.S)
_COORDINATION = re.compile(r"\s*(?:(?:[/&]|and\b|or\b)[^.,;:]*)?")
_NO_COMMA = re.compile(r"(?:[^,; ]| (?!/))*")
_NEXT = re.compile(r"[^.,;:()]{0,40}")
# The end of an item, or of a condition at the start of a sentence: a comma without an "or" behind.
_CONDITION_END = re.compile(r",(?!(?:[^,.;]{0,40},){0,4}[^,.;]{0,40}\bor\b)|\bthen\b|;")
_PURPOSE = re.compile(r"\b(?:for|to|because|due|regarding|re)\b", re.I)  # in an item to be done
_COMMENT = re.compile(r"(?<=[\w+-])\s*\([^()]*\)\Z|(?<=\w),.*\Z")  # "Proband (II-1)", "yes, mild"
_AFTER_WORD = re.compile(r"[\w)\]]")
_WORD = re.compile(r"[^\W\d_]+")
_RULING = frozenset(("section", "list", "item", "pair", "row", "box"))  # parts that may have cues
# Limits, so that the running time is linear even if a text has no sentence boundaries.
_MAX_PHRASES = 30  # phrases to check before and after a mention
_MAX_SCOPE = 2_000  # characters between a cue and a mention
_MAX_HEAD_LENGTH = 120
_MAX_LOOKAHEAD = 250  # characters after a comma in which an enumeration must end


def contexts(
    text: str, rules: ContextRules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Context]:
    """Return the context of each mention.

    phrases (Sequence[Phrase]): The rules' phrases in the text, in order, without overlaps.
    mentions (Sequence): Start and end of each mention; mentions may overlap.
    """
    note = _Note(text, rules, phrases, mentions)
    return [note.context(*mention) for mention in mentions]


class _Note:
    """A text with its layout, and the cues in each of its sentences, cells and items."""

    def __init__(
        self,
        text: str,
        rules: ContextRules,
        phrases: Sequence[Phrase],
        mentions: Sequence[tuple[int, int]],
    ) -> None:
        self.text, self.rules = text, rules
        self.layout = read_layout(text)
        self.units = units_of(text)
        outside = _outside(phrases, mentions)
        self.phrases = with_marks(text, rules, outside, mentions, self.units)
        self.by_unit: dict[int, list[Phrase]] = defaultdict(list)
        for phrase in self.phrases:
            self.by_unit[self.unit_of(phrase.place)].append(phrase)
        self._heads: dict[tuple[int, int], list[Cue]] = {}
        self._ends: dict[Node, int] = {}
        self._ticked: dict[Node, bool] = {}

    def unit_of(self, position: int) -> int:
        """Return the index of the sentence, cell or item that contains a character."""
        return max(0, bisect_right(self.units, position) - 1)

    def context(self, start: int, end: int) -> Context:
        unit = self.unit_of(start)
        cues = list(self._cues_in_unit(start, end, unit))
        if any(status == AFFIRMED for *_, status in cues):
            answer = next(cue[0] for cue in cues if cue[2] == AFFIRMED)
            cues = [c for c in cues if c[2] not in (AFFIRMED, "negated") and c[0] <= answer]
        # The nearest relative before a mention has it, or else the nearest one after it.
        cues.sort(key=lambda cue: (cue[0] >= end, abs(cue[0] - start)))
        path = list(self.layout.path(start))
        for depth in range(len(path) - 1, -1, -1):
            for cue in self._cues_of_layout(path, depth, start):
                is_past = cue[2] == "historical" and self._is_current(unit)
                is_over = cue[2] == "negated" and self._is_ended(cue[2], start, unit)
                if cue[2] != AFFIRMED and not (is_past or is_over):
                    cues.append(cue)
        layout = ", ".join(
            node.kind for node in path[1:] if node.kind not in ("paragraph", "sentence")
        )
        if not cues:
            return Context(layout=layout)
        statuses = {status for *_, status in cues}
        experiencer = next((person for person in PERSONS if person in statuses), "patient")
        relatives = (self.rules.relative(self.text[a:b]) for a, b, s in cues if s == "family")
        return Context(
            **{flag: flag in statuses for flag in FLAGS},
            experiencer=experiencer,
            relative=next(filter(None, relatives), ""),
            layout=layout,
            cues=tuple(sorted(set(cues))),
        )

    def _is_ended(self, status: str, start: int, unit: int) -> bool:
        """Whether a phrase before a mention in its unit ends the scope of a head: "but has"."""
        before = takewhile(lambda phrase: phrase.end <= start, self.by_unit[unit])
        words = (phrase for phrase in before if phrase.name[:1].isalpha())
        return any(_ends_scope(phrase, status, self.rules) for phrase in words)

    def _is_current(self, unit: int) -> bool:
        end = self.units[unit + 1] if unit + 1 < len(self.units) else len(self.text)
        return bool(self.rules.patterns["now"].search(self.text, self.units[unit], end))

    def _cues_of_layout(self, path: Sequence[Node], depth: int, start: int) -> Iterable[Cue]:
        """Return the cues outside its sentence that apply to a mention.

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

    def _cues_of_head(self, start: int, end: int) -> list[Cue]:
        """Return the cues in a head that says nothing else: "None of the following"."""
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
        else:
            rest, position = [], start
            first = bisect_left(self.phrases, (start,))
            for phrase in takewhile(lambda p: p.start < end, islice(self.phrases, first, None)):
                rest.append(self.text[position : phrase.start])
                position = phrase.end
                cues += [
                    (phrase.start, phrase.end, status)
                    for status, direction in rules.cues.get(phrase.name, ())
                    if direction not in ("next", "final", "behind")
                ]
            rest.append(self.text[position:end])
            if not rules.fillers.issuperset(_WORD.findall(" ".join(rest).lower())):
                cues = []
        self._heads[place] = cues
        return cues

    def _end_of_scope(self, node: Node) -> int:
        """Return where the header of a section or a key ceases to apply: before "She has"."""
        if node not in self._ends:
            opens, empty = (self.rules.patterns[name] for name in ("opens", "empty"))
            first, last = bisect_left(self.units, node.body), bisect_left(self.units, node.end)
            is_empty = empty.match(self.text, node.body)
            ends = (u for u in self.units[first:last] if is_empty or opens.match(self.text, u))
            self._ends[node] = next(ends, node.end)
        return self._ends[node]

    def _cues_of_box(self, path: Sequence[Node], depth: int, start: int) -> Iterator[Cue]:
        """Yield a negation if the box of a mention is empty, and others beside it are ticked."""
        box = path[depth].head
        block = next(n for n in reversed(path[:depth]) if n.kind in ("list", "section", "note"))
        if block not in self._ticked:
            boxes = (node.head for node in block if node.kind == "box")
            self._ticked[block] = any(is_ticked(self.text[slice(*head)]) for head in boxes)
        is_task = _PURPOSE.search(self.text, min(box[1], start), start)
        if self._ticked[block] and not is_ticked(self.text[slice(*box)]) and not is_task:
            yield (*box, "negated")

    def _cues_of_row(self, table: Node, row: Node, cell: Node) -> list[Cue]:
        """Return the cues that a table has for a mention in a cell."""
        header, is_first = self._header(table), cell is row.parts[0]
        if row.start < table.body:  # a finding as the name of a column, with a person in each row
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
            return [*column, *([] if is_first else self._cues_of_head(*row.parts[0].span))]
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

    def _cues_of_values(self, values: Sequence[tuple[list[Cue], bool, Node]]) -> list[Cue]:
        """Return the cues that the cells of a finding have for it.

        values (Sequence): For each cell, the cues of its column, whether the column may be the
            patient's, and the cell.
        """
        cues: list[Cue] = []
        affected: list[list[Cue]] = []  # relatives
        unaffected: list[list[Cue]] = []
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

    def _cues_of_column(self, table: Node, cell: Node) -> list[Cue]:
        names = (name for name in self._header(table) if name.column == cell.column)
        return [cue for name in names for cue in self._cues_of_head(*name.span)]

    def _is_patient(self, cell: Node) -> bool:
        return self.text[slice(*self._without_comment(*cell.span))].lower() in self.rules.patient

    def _without_comment(self, start: int, end: int) -> tuple[int, int]:
        """Return the place of the words in a cell or head: "Proband" in "Proband (II-1)"."""
        comment = _COMMENT.search(self.text, start, end)
        if comment is None:
            return start, end
        if _PEDIGREE_ID.fullmatch(self.text, start, comment.start()):  # "II-1 (proband)"
            return self.text.find("(", start, end) + 1, end - 1
        return start, comment.start()

    def _status_of_cell(self, cell: Node) -> str | None:
        """Return the status of a cell that is an answer, a sign or a tick, or None."""
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

    def _cues_in_unit(self, start: int, end: int, unit: int) -> Iterator[Cue]:
        """Yield the cues in a sentence, cell or item that apply to a mention in it."""
        text, rules = self.text, self.rules
        in_unit = self.by_unit[unit]
        middle = bisect_right(in_unit, (start,))
        near = in_unit[max(0, middle - _MAX_PHRASES) : middle + _MAX_PHRASES]
        for cue in near:
            if cue.reach >= 0:
                if cue.reach < end <= cue.start and _ENUMERATION.fullmatch(text, end, cue.place):
                    yield cue.start, cue.end, str(cue.status)
                continue
            if cue.start < start < cue.end:  # "no change in" before the mention "change in vision"
                name, cue_end = " ".join(text[cue.start : start].lower().split()), start
                cue = Phrase(cue.start, cue_end, name)
            readings = rules.cues.get(cue.name, ())
            if cue.status:
                readings = [(cue.status, "forward")]
            for status, direction in readings:
                if cue.end <= start and direction in ("forward", "both", "next", "item", "initial"):
                    first, last = cue.end, start
                elif end <= cue.start and direction in ("backward", "both", "behind", "final"):
                    first, last = end, cue.start
                else:
                    continue
                if last - first > _MAX_SCOPE or not self._reaches(first, last, direction):
                    continue
                if direction in ("backward", "final") and status in ("negated", "uncertain"):
                    if not self._reaches_back(cue, first):
                        continue
                if not self._fits(cue, direction, [d for _, d in readings], unit):
                    continue
                is_before = last == start
                if is_before and status == "negated" and self._is_affirmed(first, start, end):
                    continue
                between = (p for p in near if first <= p.start and p.end <= last)
                if not any(_ends_scope(phrase, status, rules) for phrase in between):
                    yield cue.start, cue.end, status

    def _fits(self, cue: Phrase, direction: str, directions: Sequence[str], unit: int) -> bool:
        """Whether a cue stands where it has to stand for one of its directions."""
        text = self.text
        if "initial" in directions:
            before = text[max(self.units[unit], cue.start - 8) : cue.start]
            return (direction == "initial") == (not before.strip(" \t\n-*•([\"'"))
        if "final" in directions or "backward" in directions:
            is_last = CLAUSE_END.match(text, cue.end) is not None
            if direction in ("forward", "item", "final"):
                return is_last == (direction == "final")
        if not cue.name[:1].isalnum() and {"next", "backward"}.issubset(directions):
            is_attached = _AFTER_WORD.match(text, cue.start - 1) if cue.start else None
            is_number = text[cue.end : cue.end + 1].isdigit()
            return bool(is_attached) == (direction == "backward") and not is_number
        return True

    def _reaches(self, first: int, last: int, direction: str) -> bool:
        """Whether a cue with a direction reaches over the text between it and a mention."""
        if direction in ("item", "initial"):
            end = _CONDITION_END.search(self.text, first, last + _MAX_LOOKAHEAD)
            return end is None or end.start() >= last
        patterns = {"behind": _COORDINATION, "next": _NEXT, "final": _NO_COMMA}
        pattern = patterns.get(direction)
        return pattern is None or pattern.fullmatch(self.text, first, last) is not None

    def _reaches_back(self, cue: Phrase, first: int) -> bool:
        """Whether a cue applies to the mention that ends at `first`: one that is no verb in the
        plural only to the last item of a list without "and", as in "tremor, ataxia absent"."""
        between = self.text[first : cue.start]
        if _IN_BRACKETS.search(between):
            return False
        if cue.name == "absent" and _ATTRIBUTE.match(self.text, cue.end):
            return False
        is_last = not cue.name.startswith(_SINGULAR) and _LAST_ITEM.search(between)
        return "," not in between or cue.name.startswith(_PLURAL) or bool(is_last)

    def _is_affirmed(self, scope_start: int, start: int, end: int) -> bool:
        """Whether a mention after "no" or an item before it is affirmed: "No ataxia, tremor 3/4",
        "No A or B, C present"."""
        affirmed = _AFFIRMED_ITEM.search(self.text, scope_start, end + _MAX_ITEM)
        if affirmed and affirmed.start() < start:
            clause = _NEXT_CLAUSE.search(self.text, end)
            if not _OR.search(self.text, affirmed.start(), clause.start() if clause else end):
                return True
        says = self.rules.answers and self.rules.patterns["affirmed"].match(self.text, end)
        last_item = _OR.search(self.text, scope_start, start) if says else None
        return last_item is not None and self.text.find(",", last_item.end(), start) >= 0


def _outside(phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]) -> list[Phrase]:
    """Return the phrases that are not part of a mention: "absent speech and seizures"."""
    places = sorted(mentions)
    starts = [start for start, _ in places]
    last_ends = [-1, *accumulate((end for _, end in places), max)]
    return [p for p in phrases if last_ends[bisect_right(starts, p.start)] < p.end]


def _ends_scope(phrase: Phrase, status: str, rules: ContextRules) -> bool:
    if phrase.status is not None:
        return status == "negated"
    return not {ALL_STATUSES, status}.isdisjoint(rules.ends.get(phrase.name, ()))
