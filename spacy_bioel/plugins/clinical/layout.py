"""Clinical note layout: sections, lists, tables, key-value pairs, check boxes and sentences.

`read_layout` recognises the layout in one pass over the text, from capitals, colons, bullets,
indents and columns. A text without any of these is read as paragraphs of sentences.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from spacy_bioel.plugins.clinical.tables import is_section_name, note_tables
from spacy_bioel.text.sentences import FULL_LINE_RATIO, sentence_borders

# A key before its value: "Allergies: none", "Fever = yes".
_KEY_NAME = r"[A-Za-z][A-Za-z/&' -]{1,48}?"
_KEY = re.compile(rf"(?P<name>{_KEY_NAME}|[SOAP](?=:))[ \t]{{0,4}}[:=](?![:/=])")
_LATER_KEY = re.compile(
    rf"[ \t](?:(?<=[.;].)[ \t]*+(?P<name>{_KEY_NAME})"
    r"|(?<![ \t:].)[ \t]++(?P<title>[A-Z][A-Z/&' -]{1,48}?))[ \t]{0,4}:(?![:/])"
)
_LINE = re.compile(r"\S[^\n\f]*+")
_BULLET = re.compile(
    r"(?:[*•·▪◦‣](?!\*)|[-–—](?!ve\b|[\d–—-]))[ \t]*+(?=\S)"
    r"|(?:\((?:\d{1,2}|[a-wyz])\)|(?:\d{1,2}|[a-z]|[ivx]{2,4})[.)])[ \t]++(?=\S)"
)
# Markdown around a header: "## Denies", "**Denies:**", "*Denies*".
_MARKUP = re.compile(r"#{1,6}[ \t]+(?=\S)|(?:\*\*|__|[*_])(?=[^*_\n]{1,60}[*_]{1,2}:?\Z)")
_BOX = re.compile(r"[\[(☐☑☒□■](?:(?<=\[)[ \txX✓✔]?\]|(?<=\()[ xX✓✔•]\)|(?<=[☐☑☒□■]))")
_DASHED_KEY = re.compile(r"[A-Z][A-Za-z/&' ]{1,30}[ \t][-–—]{1,2}[ \t]")
_LATER_ITEM = re.compile(r"[ ](?<![ ]{2})[ ]++(?=\d{1,2}[.)][ ])")  # "1) gout  2) asthma"
_YES_OR_NO = re.compile(r"[ \t]*(?:yes|no)\b", re.I)
_RULE = re.compile(r"[\s|:+=_-]{3,}")  # A rule below a title or a table header.
# Cell separators with surrounding white space, each with the characters that cannot precede it:
# "Skin:" in "Skin:  rash" is a key, and a sentence may be followed by two spaces.
_GAPS = {
    "|": (re.compile(r"(?<!\s)\s*+\|\s*+|\|\s*+"), ""),
    "\t": (re.compile(r"(?<! ) *+\t *+"), ":"),
    "  ": (re.compile(r"(?<! ) {2,}+"), ".:;,?!"),
}
_QUESTION = re.compile(r"[\w)\]]\?+\s*\Z")
_DOUBT = re.compile(r"(?:\A|[\s(\[,;:/])\?+\s*\Z")  # the "?" in "? gout" expresses doubt
_VALUES = ("yes no y n", "present absent", "positive negative pos neg", "+ - ++ +++ – −")
_VALUE_KIND = {value: i for i, values in enumerate(_VALUES) for value in values.split()}
_UNFINISHED = re.compile(
    r"(?:[,-]|(?<!\S)(?:no|not|and|or|of|with|without|the|an?|to|for|has|had|is|was|in|on|by))\Z",
    re.I,
)
_CONTINUING = frozenset("and but for in of on or with".split())
_LAST_SIGNS = frozenset("+-–−")
_MAX_WORDS_IN_LIST = 2  # two lines with no more words than this are list items, even in lower case
_MAX_TITLE_LENGTH, _MAX_TITLE_WORDS = 60, 8
_MIN_FULL_LENGTH = 45  # minimum length of a line that may be hard-wrapped
_MAX_NESTING = 20  # maximum number of open nodes; deeper lists are not read as nested
_MAX_COLUMNS, _MAX_AROUND = 50, 1_000  # maximum cells per row; characters read to detect wrapping


@dataclass(slots=True, eq=False)
class Node:
    """Part of a note, with its character offsets.

    kind (str): "note", "section", "list", "item", "table", "row", "cell", "paragraph", "pair" (a
        key and its value), "box" (a check box and its item), "question" or "sentence".
    head (tuple[int, int]): Offsets of the heading: a section's header, the line above a list, the
        first line of an item, the header row of a table, the key of a pair, or the box itself;
        empty at `start` if the node has no heading.
    body (int): Start of the text after the head.
    column (int): Number of a cell's column, from 0.
    parts (list[Node]): The nodes inside, from left to right.
    """

    kind: str
    start: int
    end: int
    head: tuple[int, int] = (0, 0)
    body: int = 0
    column: int = 0
    parts: list[Node] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    def path(self, position: int) -> Iterator[Node]:
        """Yield the nodes that contain `position`, outermost first."""
        node: Node | None = self
        while node is not None:
            yield node
            index = bisect_right(node.parts, position, key=lambda part: part.start) - 1
            inner = node.parts[index] if index >= 0 else None
            node = inner if inner is not None and position < inner.end else None

    def __iter__(self) -> Iterator[Node]:
        """Yield this node and all its descendants, in pre-order."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.parts)


class _Line(NamedTuple):
    """A non-blank line.

    depth (int): Twice the indentation, plus one for items of a list and rows of a table.
    text (int): Start of its text after the bullet.
    cells (Sequence): Offsets of its cells, if it may be a row.
    by (str): What separates the cells: "|", a tab or "  ".
    after_blank (bool): Whether it is the first line after a blank line.
    """

    start: int
    end: int
    depth: int
    text: int
    cells: Sequence[tuple[int, int]]
    by: str
    after_blank: bool

    @property
    def is_item(self) -> bool:
        return self.depth % 2 == 1


@dataclass(slots=True)
class _Open:
    """An open node that accepts lines at `depth` or deeper, and heads deeper than `head_depth`."""

    node: Node
    depth: int
    head_depth: int


@lru_cache(maxsize=64)
def read_layout(text: str) -> Node:
    """Parse a text's layout into a tree."""
    return _Reader(text).read()


@lru_cache
def _terse_end() -> re.Pattern[str]:
    """Return a pattern for the ends of terse sentences: "No fever. pt has ataxia.Since March"."""
    no_abbreviation = "".join(rf"(?<!\b{word}\.)" for word in note_tables()["with_full_stop"])
    return re.compile(rf"\.(?<=[a-z]{{4}}\.){no_abbreviation}(?:\s+(?=[a-z])|(?=[A-Z][a-z]{{2}}))")


class _Reader:
    """Builds the node tree line by line, keeping open nodes on a stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        borders = sentence_borders(text)
        if "?" in text:
            borders = [b for b in borders if not _DOUBT.search(text[max(0, b - 8) : b])]
        more = {end.end() for end in _terse_end().finditer(text)}
        if "  " in text:
            more.update(item.end() for item in _LATER_ITEM.finditer(text))
        borders = sorted(more.union(borders))
        self.borders, self.is_border = borders, frozenset(borders)
        self.boxes = list(_BOX.finditer(text))
        self.lines = list(_lines_of(text))
        longest = max((line.end - line.start for line in self.lines), default=0)
        self.min_full_length = max(_MIN_FULL_LENGTH, FULL_LINE_RATIO * longest)
        below = [
            text[line.start]
            for before, line in pairwise(self.lines)
            if before.end - before.start >= self.min_full_length
            and not (line.after_blank or line.start in self.is_border)
        ]
        # Lines in a list begin with a capital; lines in wrapped prose seldom do.
        self.is_wrapped = len(below) > 1 and 2 * sum(map(str.isupper, below)) <= len(below)
        self.root = Node("note", 0, len(text))
        self.open = [_Open(self.root, -1, -1)]

    def read(self) -> Node:
        index = 0
        while index < len(self.lines):
            line = self.lines[index]
            self._close(line)
            n_rows = self._n_rows(index) if line.by else 0
            last = index + (n_rows or 1)
            while not n_rows and last < len(self.lines) and self._continues(index, last):
                last += 1
            end = self.lines[last - 1].end
            if n_rows:
                self._attach(self._table(self.lines[index:last]), line)
            elif self._is_title(index, last):
                self._open_head(line, end)
            else:
                self._add_line(line, end)
            index = last
        return self.root

    def _continues(self, first: int, index: int) -> bool:
        """Whether line `index` continues the paragraph that starts at line `first`."""
        before, line = self.lines[index - 1 : index + 1]
        if line.after_blank or line.is_item or line.start in self.is_border:
            return False
        if self.boxes and self._boxes_in(before.start, before.end):
            return False
        if _DASHED_KEY.match(self.text, line.start):
            return False
        words, words_below = (self.text[li.start : li.end].split() for li in (before, line))
        if words[-1] == "+" or {words[-1], words_below[-1]} <= _LAST_SIGNS:
            return False
        is_full = before.end - before.start >= self.min_full_length
        is_full &= self.is_wrapped or not self.text[line.start].isupper()
        if is_full or _UNFINISHED.search(self.text[before.start : before.end][-8:]):
            return not self._n_rows(index)
        is_list = max(len(words), len(words_below)) <= _MAX_WORDS_IN_LIST
        is_list |= self.text[self.lines[first].start].islower()
        is_list |= _has_room(self.text, before, words_below[0])
        if self.text[line.start].isupper() or (is_list and words_below[0] not in _CONTINUING):
            return False
        # After a heading, and inside the list below it, each short line is an item.
        top = self.open[-1]
        is_list = top.node.kind == "list" and top.depth > top.head_depth
        is_list |= top.node.kind == "list" and self.text[top.node.body - 1] == ":"
        is_below_head = line.depth > before.depth and not before.is_item
        is_head = self.text[before.end - 1] == ":" or (is_below_head and self._has_title(before))
        return not (is_head or (is_list and before.depth == line.depth) or self._n_rows(index))

    def _has_title(self, line: _Line) -> bool:
        """Whether a line looks like a title."""
        words = self.text[line.start : line.end]
        is_short = len(words) <= _MAX_TITLE_LENGTH and len(words.split()) <= _MAX_TITLE_WORDS
        return is_short and words[0].isupper() and words[-1] not in ".,;?!-" and ":" not in words

    def _is_title(self, index: int, last: int) -> bool:
        """Whether a line is a heading for the lines below it."""
        line = self.lines[index]
        if last > index + 1 or line.is_item or last == len(self.lines):
            return self.text[self.lines[last - 1].end - 1] == ":" and not line.is_item
        if self.text[line.end - 1] == ":":
            return True
        if not self._has_title(line) or (self.boxes and self._boxes_in(line.start, line.end)):
            return False
        below = self.lines[last]
        stands_alone = line.after_blank and not below.after_blank
        return stands_alone or self._is_section(line, line.end) or below.depth > line.depth

    def _is_section(self, line: _Line, end: int) -> bool:
        """Whether a title names a section, or is in capitals with a colon or a blank line above."""
        words = self.text[line.start : end].rstrip(": ")
        is_capital = words.isupper() and (line.after_blank or self.text[end - 1] == ":")
        return is_capital or is_section_name(words)

    def _close(self, line: _Line, *, is_head: bool = False) -> None:
        """Close any open nodes that a line does not belong to."""
        while len(self.open) > 1:
            top = self.open[-1]
            is_below = top.node.kind == "list" and line.depth > top.head_depth
            fits = line.depth >= top.depth or is_below
            fits = fits and not (is_head and line.depth <= top.head_depth)
            if line.after_blank and top.node.kind != "section":
                is_first = len(top.node.parts) < 2 and line.depth > top.head_depth
                fits = fits and ((line.is_item and line.depth == top.depth) or is_first)
            if fits:
                break
            self.open.pop()

    def _attach(self, node: Node, line: _Line) -> None:
        """Add a node to the innermost open node."""
        top = self.open[-1]
        if len(top.node.parts) < 2 and top.node.kind == "list":
            top.depth = max(top.depth, line.depth)
        top.node.parts.append(node)
        for other in self.open[1:]:
            other.node.end = node.end

    def _push(self, node: Node, depth: int, head_depth: int) -> None:
        if len(self.open) <= _MAX_NESTING:
            self.open.append(_Open(node, depth, head_depth))

    def _open_head(self, line: _Line, end: int) -> None:
        """Add a section, or a list with a heading."""
        node = Node("list", line.start, end, (line.start, _without_colon(self.text, end)), end)
        node.parts.append(Node("sentence", line.start, end))
        if self._is_section(line, end):
            node.kind = "section"
            del self.open[1:]
        self._close(line, is_head=True)
        self._attach(node, line)
        self._push(node, *((-1, -1) if node.kind == "section" else (line.depth, line.depth)))

    def _add_line(self, line: _Line, end: int) -> None:
        """Add a paragraph, a list item or a key-value pair."""
        node = Node("item" if line.is_item else "paragraph", line.start, end)
        self._add_text(node, line.text, end)
        if line.is_item:
            node.head, node.body = (line.text, _without_colon(self.text, end)), end
            top = self.open[-1]
            if top.node.kind != "list" or (top.depth < line.depth and len(top.node.parts) > 1):
                items = Node("list", line.start, end, (line.start, line.start), line.start)
                self._attach(items, line)
                self._push(items, line.depth, line.depth)
        elif node.parts[0].kind == "pair":
            name = self.text[slice(*node.parts[0].head)]
            if name.isupper() or is_section_name(name):
                del self.open[1:]
            self._close(line, is_head=True)
        self._attach(node, line)
        if line.is_item:
            self._push(node, line.depth + 1, line.depth)
        elif node.parts[0].kind == "pair":
            self._push(node, line.depth + 1, line.depth)
            self._push(node.parts[0], line.depth + 1, line.depth)

    def _add_text(self, node: Node, start: int, end: int) -> None:
        """Add the key-value pairs, check boxes and sentences in a range of text to a node."""
        boxes = self._boxes_in(start, end) if self.boxes else []
        has_name = boxes and self.text[start : boxes[0].start()].strip()
        if has_name and all(_YES_OR_NO.match(self.text, box.end()) for box in boxes):
            node.parts += self._read_choices(boxes, start, end)
            return
        keys, text = [], self.text
        words = text[start:end]
        if ":" in words or "=" in words:
            if first := _KEY.match(text, start, end):
                keys.append(first)
            later = first.end() if first else start
            if ":" in text[later:end]:
                keys += _LATER_KEY.finditer(text, later, end)
        names = [key.span(key.lastgroup or 0) for key in keys]
        self._add_sentences(node, start, names[0][0] if keys else end)
        for i, (key, name) in enumerate(zip(keys, names, strict=True), 1):
            pair = Node("pair", name[0], names[i][0] if i < len(names) else end, name, key.end())
            self._add_sentences(pair, pair.start, pair.end, first=pair.body)
            node.parts.append(pair)

    def _add_sentences(self, node: Node, start: int, end: int, first: int = -1) -> None:
        """Add the check boxes or sentences in a range of text to a node.

        first (int): Offset after a key, where the first check box may begin; -1: `start`.
        """
        first = max(start, first)
        if self.boxes and (boxes := self._boxes_in(first, end)):
            node.parts += self._read_boxes(boxes, first, end)
            return
        low, high = bisect_right(self.borders, first), bisect_left(self.borders, end)
        for stop in (*self.borders[low:high], end):
            if start < stop:
                tail = self.text[start:stop][-40:]
                is_question = "?" in tail and _QUESTION.search(tail)
                node.parts.append(Node("question" if is_question else "sentence", start, stop))
                start = stop

    def _boxes_in(self, start: int, end: int) -> list[re.Match[str]]:
        """Return the check boxes in a range of text."""
        low, high = (bisect_left(self.boxes, x, key=re.Match.start) for x in (start, end))
        return [box for box in self.boxes[low:high] if box.end() <= end]

    def _read_choices(self, boxes: Sequence[re.Match[str]], start: int, end: int) -> Iterator[Node]:
        """Yield key-value pairs whose value is a ticked box: "Rash [ ] yes [x] no"."""
        ends = [(_YES_OR_NO.match(self.text, box.end()) or box).end() for box in boxes]
        befores = zip(boxes, [start, *ends], strict=False)
        firsts = [i for i, (box, x) in enumerate(befores) if self.text[x : box.start()].strip()]
        for i, k in pairwise([*firsts, len(boxes)]):
            first, last = ends[i - 1] if i else start, ends[k - 1] if k < len(boxes) else end
            ticked = next((box for box in boxes[i:k] if is_ticked(box[0])), None)
            name = (first, boxes[i].start())
            pair = Node("pair", first, last, name, ticked.end() if ticked else last)
            pair.parts = [Node("sentence", *name), Node("sentence", name[1], last)]
            yield pair

    def _read_boxes(self, boxes: Sequence[re.Match[str]], start: int, end: int) -> Iterator[Node]:
        """Yield each check box with its item, then any remaining text."""
        text = self.text
        before = text[start : boxes[0].start()]
        starts = [box.start() for box in boxes]
        last = bisect_right(self.borders, starts[-1])
        ends = [*starts[1:], min([end, *self.borders[last : last + 1]])]
        if before.strip():  # boxes come after their items
            ends = [box.end() for box in boxes]
            starts = [start, *ends[:-1]]
        for box, item_start, item_end in zip(boxes, starts, ends, strict=True):
            yield Node("box", item_start, item_end, box.span(), item_start)
        if ends[-1] < end:
            yield Node("sentence", ends[-1], end)

    def _n_rows(self, index: int) -> int:
        """Return the number of rows in the table that starts at a line, or 0 if there is none."""
        first = self.lines[index]
        last = index
        while last < len(self.lines) and self.lines[last].by == first.by != "":
            line = self.lines[last]
            if last > index and (line.after_blank or not _is_aligned(first, line)):
                break
            last += 1
        n_rows = last - index
        return n_rows if n_rows > 1 or first.by != "  " else 0

    def _table(self, lines: Sequence[_Line]) -> Node:
        table = Node("table", lines[0].start, lines[-1].end)
        table.head = (table.start, table.start)
        rows = [line for line in lines if not _RULE.fullmatch(self.text, line.start, line.end)]
        is_ruled = len(rows) < len(lines)
        columns = [start for start, _ in lines[0].cells]
        for line in rows:
            row = Node("row", line.start, line.end)
            for index, (start, end) in enumerate(line.cells[:_MAX_COLUMNS]):
                column = bisect_right(columns, start - line.cells[0][0] + columns[0] + 1) - 1
                cell = Node("cell", start, end, column=column if line.by == "  " else index)
                self._add_text(cell, start, end)
                row.parts.append(cell)
            table.parts.append(row)
        if len(rows) > 1 and (is_ruled or self._is_header(table.parts[0], table.parts[1])):
            table.head = (rows[0].start, rows[0].end)
        table.body = table.head[1]
        return table

    def _is_header(self, row: Node, next_row: Node) -> bool:
        """Whether a table's first row holds column names rather than values."""
        values = {cell.column: self.text[cell.start : cell.end].lower() for cell in next_row.parts}
        names = [self.text[cell.start : cell.end] for cell in row.parts]
        for cell, name in zip(row.parts, names, strict=True):
            kind = _VALUE_KIND.get(name.lower(), -1)
            is_value = kind >= 0 and kind == _VALUE_KIND.get(values.get(cell.column, ""))
            if is_value or (name and not name[0].isupper()):
                return False
        return sum(map(bool, names)) > 1


def is_ticked(box: str) -> bool:
    """Whether a check box is ticked."""
    return box not in "☐□" and bool(box.strip("[]() \t"))


def _lines_of(text: str) -> Iterator[_Line]:
    after_blank, last = True, 0
    for match in _LINE.finditer(text):
        start, words = match.start(), match[0].rstrip()
        *breaks, indent = text[last:start].replace("\f", "\n").split("\n")
        after_blank |= len(breaks) > 1
        if words[0] in "#*_" and (markup := _MARKUP.match(words)):
            start, words = start + markup.end(), words[markup.end() :].rstrip("*_ \t")
        end, last, text_start, is_item = start + len(words), match.end(), start, False
        if not words[0].isupper():
            if "|" not in words and _RULE.fullmatch(match[0]):
                continue
            if bullet := _BULLET.match(text, start, end):
                text_start = bullet.end()
            is_item = bullet is not None or _BOX.match(text, start) is not None
        cells, by = _cells_of(words, start) if not is_item else ((), "")
        depth = (2 * len(indent.expandtabs(8)) if indent else 0) + (is_item or by != "")
        yield _Line(start, end, depth, text_start, cells, by, after_blank)
        after_blank = False


def _has_room(text: str, before: _Line, word: str) -> bool:
    """Whether a word would fit on the line above it; False if the lines are running text."""
    around = text[max(0, before.start - _MAX_AROUND) : before.end].rpartition("\n\n")[2]
    around += text[before.end : before.end + _MAX_AROUND].partition("\n\n")[0]
    room = max(map(len, around.split("\n"))) - (before.end - before.start)
    return len(word) + 3 < room and not re.search(r"[.!?] [A-Z]", around)


def _cells_of(line: str, start: int) -> tuple[Sequence[tuple[int, int]], str]:
    """Return the cells of a line that may be a table row, and their separator."""
    is_barred = "|" in line and (" |" in line or "| " in line or _RULE.fullmatch(line))
    by = "|" if is_barred else next((gap for gap in ("\t", "  ") if gap in line), "")
    if not by:
        return (), ""
    gap, marks = _GAPS[by]
    limits = [0, *chain.from_iterable(match.span() for match in gap.finditer(line)), len(line)]
    cells = [
        (start + first, start + last)
        for first, last in zip(limits[::2], limits[1::2], strict=True)
        if first < last or 0 < first < len(line)
    ]
    is_prose = any(line[last - start - 1] in marks for first, last in cells[:-1] if first < last)
    is_row = len(cells) > 1 and not is_prose and not (by == "  " and _BOX.search(line))
    return (cells, by) if is_row else ((), "")


def _is_aligned(first: _Line, line: _Line) -> bool:
    """Whether two lines' cells are aligned; always True unless the separator is spaces."""
    if first.by != "  ":
        return True
    columns = [(start - first.start, end - first.start) for start, end in first.cells[1:]]
    starts = [start - line.start for start, _ in line.cells[1:]]
    return first.depth == line.depth and any(
        low - 1 <= start <= max(low + 1, high) for start in starts for low, high in columns
    )


def _without_colon(text: str, end: int) -> int:
    tail = text[max(0, end - 8) : end]
    return end - len(tail) + len(tail.rstrip(": \t"))


@lru_cache(maxsize=64)
def units_of(text: str) -> list[int]:
    """Return the start offsets of a text's smallest parts: sentences, cells and items."""
    return [node.start for node in read_layout(text) if not node.parts]
