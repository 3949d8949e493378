"""Read pairs of a name and an id from the rows of tables: CSV, TSV, Excel and Markdown.

An object in JSON or YAML is read as a row, too, whose header is its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from spacy_bioel.curation.ids import split_id
from spacy_bioel.curation.lines import line_pairs
from spacy_bioel.curation.pairs import Pair, Reading, Style
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import ChangedCell, Place, StrPath, curie, read_workbook
from spacy_bioel.io.table import Column, column_indices, header_of
from spacy_bioel.text.normalize import unescape_formula

Lines = Iterable[tuple[Place, str]]

_ID_HEADER = re.compile(
    r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:ids?|curies?|codes?|identifiers?|accessions?|meaning)"
)
_NAME_HEADER = re.compile(r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:labels?|names?|terms?|titles?)")
_SEVERAL = re.compile(r"\s*[|;,]\s*")
_TABLE_RULE = re.compile(r"\|?(?:\s{0,9}:?-{1,200}:?\s{0,9}\|)+(?:\s{0,9}:?-{1,200}:?\s{0,9})?")
_QUOTED_CELL = re.compile('"((?:[^"]|"")*)"')
_MARKUP = " *_`"
UNQUOTED = "\t|"  # separators of tables in which quotes belong to the names
_MAX_CELLS = 20  # between an id and its name
_NEAREST = -2  # the closest cell with words has the name
_MAX_LINES_OF_ROW = 1000  # beyond which a quote was not closed


class Cell(NamedTuple):
    """A value and its place.

    at (int): Offset of the text in the record; -1 if it cannot be replaced.
    name (str): Such as "B7", or a path.
    """

    text: str
    place: Place
    at: int = -1
    name: str = ""


class TableOptions(NamedTuple):
    """How to read tables.

    columns (Mapping): Columns of "id" and "name"; empty: by header.
    prefix (str): Prefix for ids without one.
    """

    columns: Mapping[str, Column] = {}
    prefix: str = ""


@lru_cache(maxsize=1 << 10)
def name_columns(header: tuple[str, ...]) -> dict[int, int]:
    """Map each column of ids to that of their names: "disease_id" to "disease_name".

    If there is none, the value is -1, or `_NEAREST` if this is the only column of ids.
    """
    names: dict[str, int] = {}
    stems: dict[int, str] = {}
    for i, title in enumerate(header):
        if match := _NAME_HEADER.fullmatch(title):
            names.setdefault(match[1].lower(), i)
        elif match := _ID_HEADER.fullmatch(title):
            stems[i] = match[1].lower()
    only = -1
    if len(stems) == 1 and len(names) < 2:
        only = next(iter(names.values()), _NEAREST)
    return {i: names.get(stem, only) for i, stem in stems.items()}


def row_pairs(
    cells: Sequence[Cell],
    columns: Mapping[int, int],
    ids: re.Pattern[str],
    style: Style,
    prefix: str = "",
) -> Iterator[Pair]:
    """Read the pairs in a row.

    columns (Mapping[int, int]): Column of the names of each column of ids (see `name_columns`).
    prefix (str): Prefix for ids without one.
    """
    has_column = False
    for i in sorted(range(len(cells)), key=lambda i: i not in columns):
        cell, text = cells[i], cells[i].text.strip()
        if not text or isinstance(cell.text, ChangedCell):
            continue
        parts = _SEVERAL.split(text)
        if i in columns and prefix:
            parts = [curie(part, prefix) for part in parts]
        if all(map(ids.fullmatch, parts)) or (i in columns and _is_id(text, ids)):
            has_column |= i in columns
            name = cells[columns[i]] if -1 < columns.get(i, -1) < len(cells) else None
            is_table = style in (Style.TEXT, Style.CSV)
            if is_table and (columns[i] == _NEAREST if i in columns else not has_column):
                name = _nearest_name(cells, i, ids)
            yield from _cell_pairs(cell, parts, name, style)
        elif ids.search(text):
            for pair in line_pairs(cell.text, cell.place, ids):
                yield _moved(pair, cell, style)


def _is_id(text: str, ids: re.Pattern[str]) -> bool:
    parts = split_id(text)
    return parts is not None and ids.fullmatch(f"{parts[0]}:00000") is not None


def _cell_pairs(
    cell: Cell, parts: Sequence[str], name: Cell | None, style: Style
) -> Iterator[Pair]:
    names = _SEVERAL.split(name.text.strip()) if name and len(parts) > 1 else []
    for n, part in enumerate(parts):
        readings: tuple[Reading, ...] = ()
        if name and any(map(str.isalpha, name.text)) and len(parts) == 1:
            words, offset = name.text.strip(), len(name.text) - len(name.text.lstrip())
            at = name.at + offset if name.at >= 0 else -1
            readings = (Reading(words, at, line=name.place.line),)
        elif len(names) == len(parts):
            readings = (Reading(names[n]),)
        at = cell.at + cell.text.find(part) if cell.at >= 0 and part in cell.text else -1
        yield Pair(part, cell.place, at, readings, cell.name, style)


def _nearest_name(cells: Sequence[Cell], column: int, ids: re.Pattern[str]) -> Cell | None:
    """Return the closest cell with letters before an id, or else after it."""
    before = cells[max(column - _MAX_CELLS, 0) : column]
    for cell in (*reversed(before), *cells[column + 1 : column + _MAX_CELLS]):
        if any(map(str.isalpha, cell.text)) and not ids.search(cell.text):
            return cell
    return None


def _moved(pair: Pair, cell: Cell, style: Style) -> Pair:
    """Move a pair from the text of a cell to its record."""
    offset = cell.at if cell.at >= 0 else None
    readings = tuple(
        r if r.at < 0 else replace(r, at=-1 if offset is None else r.at + offset)
        for r in pair.readings
    )
    at = -1 if offset is None else pair.at + offset
    return replace(pair, at=at, readings=readings, cell=cell.name, style=style)


def text_pairs(lines: Lines, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read pairs from running text and Markdown, whose tables are read by row."""
    header: tuple[str, ...] = ()
    before: tuple[str, ...] = ()  # cells of the line before
    for place, line in lines:
        line = line.rstrip("\r\n")
        if "|" not in line:
            header = before = ()
            yield from line_pairs(line, place, ids)
            continue
        cells = [_unmarked(cell) for cell in _split(line, "|", place, is_quoted=False)]
        if _TABLE_RULE.fullmatch(line.strip()):
            header = before
        before = tuple(cell.text for cell in cells)
        yield from row_pairs(cells, name_columns(header), ids, Style.TEXT)


def _unmarked(cell: Cell) -> Cell:
    """Return a cell of a Markdown table without emphasis and code marks."""
    text = cell.text.lstrip(_MARKUP)
    return Cell(text.rstrip(_MARKUP), cell.place, cell.at + len(cell.text) - len(text))


def table_pairs(
    path: StrPath,
    rows: Iterable[list[Cell]],
    ids: re.Pattern[str],
    options: TableOptions,
    style: Style = Style.CSV,
) -> Iterator[Pair]:
    """Read pairs from the rows of a table, by its header or by `options.columns`.

    style (Style): TEXT if quotes belong to the names.
    RAISES BioelError: [B128] if a column is missing, [B262] if there is no column of a number.
    """
    columns: dict[int, int] | None = None
    for cells in rows:
        if columns is None:
            if len(cells) == 1 and cells[0].text.startswith("#"):
                continue
            header = header_of([cell.text for cell in cells])
            columns = name_columns(tuple(header))
            if options.columns:
                indices = column_indices(path, options.columns, header)
                columns = {indices["id"][0]: indices.get("name", [-1])[0]}
            has_names = any(isinstance(column, str) for column in options.columns.values())
            if has_names or not (options.columns or any(map(ids.search, header))):
                continue
        yield from row_pairs(cells, columns, ids, style, options.prefix)


def delimited_rows(lines: Lines, separator: str) -> Iterator[list[Cell]]:
    """Split lines into rows of cells, in which double quotes protect commas and line ends.

    RAISES BioelError: [B126] if a quote is not closed.
    """
    is_quoted = separator not in UNQUOTED
    record, is_open, first, place = "", False, Place(""), Place("")
    for place, line in lines:
        first = first if record else place
        record += line
        is_open ^= is_quoted and bool(line.count('"') % 2)
        if is_open and place.line - first.line > _MAX_LINES_OF_ROW:
            break
        if not is_open:
            if record.strip():
                yield list(_split(record.rstrip("\r\n"), separator, first, is_quoted=is_quoted))
            record = ""
    if is_open:
        message = Errors.B126.format(where=first, end=place.line, error="a quote is open")
        raise BioelError(message)


def _split(record: str, separator: str, place: Place, *, is_quoted: bool) -> Iterator[Cell]:
    start = column = 0
    while start <= len(record):
        quoted = _QUOTED_CELL.match(record, start) if is_quoted else None
        end = record.find(separator, quoted.end() if quoted else start)
        end = len(record) if end < 0 else end
        text, at = record[start:end], start
        if quoted:
            text, at = quoted[1].replace('""', '"'), start + 1
        yield Cell(unescape_formula(text), place, at, f"{_letters(column)}{place.line}")
        start, column = end + 1, column + 1


def _letters(column: int) -> str:
    """Return the letters of a column in a spreadsheet, counted from 0: A, B, ..., Z, AA."""
    before, last = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def workbook_rows(path: StrPath) -> Iterator[list[Cell]]:
    """Stream the rows of a workbook. RAISES BioelError: The same errors as `read_workbook`."""
    for place, row in read_workbook(path):
        yield [Cell(text, place, -1, f"{_letters(i)}{place.line}") for i, text in enumerate(row)]
