"""Read pairs of a name and an id from the rows of tables: CSV, TSV, Excel and Markdown.

An object in JSON or YAML is read as a row, too, whose header is its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, islice, zip_longest

from spacy_bioel.io.open import ChangedCell, Place, StrPath, curie
from spacy_bioel.io.table import Column, column_indices, header_of
from spacy_bioel.plugins.curation import name_places
from spacy_bioel.plugins.curation.ids import ID_LABEL, KEY_OF_PREFIX, split_id
from spacy_bioel.plugins.curation.lines import line_pairs
from spacy_bioel.plugins.curation.name_places import NameValues, no_values
from spacy_bioel.plugins.curation.pairs import Cell, Pair, named_pair
from spacy_bioel.text.normalize import unescape_formula

Lines = Iterable[tuple[Place, str]]

_ID_HEADER = re.compile(
    r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:ids?|curies?|codes?|identifiers?|accessions?|meaning)"
)
_NAME_HEADER = re.compile(r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:labels?|names?|terms?|titles?)")
# Of ids that are not those of the words next to them.
_OTHER_ID = re.compile(r"(?:right|correct|expected|proposed|new|replace\w*|parent)(?![a-z])")
# Headers of columns without names.
_NO_NAMES = re.compile(r"(?i)(?:verdict|status|source|vocabulary|ur[il]|comment|remark|note)s?")
_AND = re.compile(r"\s(?:and|with)\s")
_LISTED = re.compile(r"[^|;,\s](?:[^|;,]*[^|;,\s])?")
_TABLE_RULE = re.compile(r"\|?(?:\s{0,9}:?-{1,200}:?\s{0,9}\|)+(?:\s{0,9}:?-{1,200}:?\s{0,9})?")
_EMPHASIS = " *_`"
_N_ROWS = 4000  # that are compared at a time
_MAX_CELLS = 20  # between an id and its name
_NEAREST = -2  # the closest cell with words has the name


@lru_cache(maxsize=1 << 10)
def name_columns(header: tuple[str, ...]) -> dict[int, tuple[int, str]]:
    """Map each column of ids to that of their names, and their prefix: "hpo_id" to "hpo_name", hpo.

    If there are no names, the number is -1, or `_NEAREST` if this is the only column of ids.
    """
    names: dict[str, int] = {}
    stems: dict[int, str] = {}
    for i, title in enumerate(header):
        if match := _NAME_HEADER.fullmatch(title):
            names.setdefault(match[1].lower(), i)
        elif match := _ID_HEADER.fullmatch(title):
            stems[i] = title.lower() if title.lower() in KEY_OF_PREFIX else match[1].lower()
    only = -1
    if len(stems) == 1 and len(names) < 2:
        no_name = -1 if any(map(_OTHER_ID.match, stems.values())) else _NEAREST
        only = next(iter(names.values()), no_name)
    return {i: (names.get(s, only), s if s in KEY_OF_PREFIX else "") for i, s in stems.items()}


def row_pairs(
    cells: Sequence[Cell],
    columns: Mapping[int, tuple[int, str]],
    ids: re.Pattern[str],
    *,
    header: Sequence[str] | None = None,
) -> Iterator[Pair]:
    """Read the pairs in a row.

    columns (Mapping): Columns of ids, as from `name_columns`.
    header (Sequence | None): Of a table, in which a name may be in any column.
    """
    is_nearest = header is not None  # for ids in other columns
    for i in sorted(range(len(cells)), key=lambda i: i not in columns):
        cell, (column, prefix) = cells[i], columns.get(i, (-1, ""))
        if isinstance(cell.text, ChangedCell):  # no id of a vocabulary looks like its message
            yield from [Pair(cell)] * (i in columns)
            continue
        parts = _values_in(cell)
        if prefix:
            whole = [(p, curie(p.text, "" if ids.fullmatch(p.text) else prefix)) for p in parts]
            parts = [p if id == p.text else p._replace(text=id, at=-1) for p, id in whole]
        # The id in a column of ids has a known prefix, but perhaps not the form of its vocabulary.
        start = f"{(split_id(cell.text) or ('',))[0]}:00000" if i in columns else ""
        if ids.fullmatch(start) or (parts and all(ids.fullmatch(part.text) for part in parts)):
            is_nearest &= i not in columns
            name = cells[column] if -1 < column < len(cells) else None
            if header is not None and (is_nearest or column == _NEAREST):
                name = _nearest_name(cells, i, ids, header)
                if name and not parts[1:]:  # perhaps something else
                    yield named_pair(parts[0], name)._replace(has_name=False)
                    continue
            names = _values_in(name) if name and parts[1:] else []
            if len(names) == len(parts):
                yield from map(named_pair, parts, names)
                continue
            shared = named_pair(cell, name)
            if names and shared.names:  # the name, or a part of it, must fit each
                within = (Cell(text, at=-1) for n in names for text in _AND.split(n.text))
                shared = Pair(cell, (*shared.names, *within), True)
            yield from (shared._replace(id=part) for part in parts)
        elif parts and ids.search(cell.text):
            yield from line_pairs(cell, ids)


def _values_in(cell: Cell) -> list[Cell]:
    """Split a cell with several values."""
    return [cell.part(match[0], match.start()) for match in _LISTED.finditer(cell.text)]


def _nearest_name(
    cells: Sequence[Cell], column: int, ids: re.Pattern[str], header: Sequence[str]
) -> Cell | None:
    """Return the closest cell with letters before an id, or else after it."""
    after = range(column + 1, min(column + _MAX_CELLS, len(cells)))
    for i in (*range(column - 1, max(column - _MAX_CELLS, 0) - 1, -1), *after):
        is_id = re.fullmatch(ID_LABEL, text := cells[i].text) or ids.search(text)
        is_named = not any(map(_NO_NAMES.fullmatch, header[i : i + 1]))
        if any(map(str.isalpha, text)) and is_named and not is_id:
            return cells[i]
    return None


def text_pairs(lines: Lines, ids: re.Pattern[str], values: NameValues) -> Iterator[Pair]:
    """Read pairs from running text and Markdown, whose tables are read by row."""
    cells = (Cell(line.rstrip("\r\n"), place) for place, line in lines)
    text = list[Cell]()
    for has_bars, part in groupby(cells, key=lambda cell: "|" in cell.text):
        while batch := list(islice(part, _N_ROWS)):
            rows, header = list[list[Cell]](), tuple[str, ...]()
            if len(text) >= _N_ROWS:
                yield from name_places.pairs_in_lines(text, ids, values)
                text = []
            if not has_bars:
                text += batch
                continue
            for cell in batch:
                if _TABLE_RULE.fullmatch(cell.text.strip()):
                    header = tuple(c.text for c in rows.pop()) if rows else header
                else:
                    split = cell.text.split("|")
                    in_row = row_cells(cell.place, split, cell.text, marks=_EMPHASIS)
                    rows.append([_linked_id(part, ids) or part for part in in_row])
            if any(ids.fullmatch(cell.text) for row in rows for cell in row):
                yield from name_places.pairs_in_lines(text, ids, values)
                yield from _rows_pairs(rows, header, name_columns(header), ids, values)
                text = []
            else:  # a bar in a sentence, or of a template
                text += batch
    yield from name_places.pairs_in_lines(text, ids, values)


def _linked_id(cell: Cell, ids: re.Pattern[str]) -> Cell | None:
    """Return the id in a cell that is only a link: "[HP:0000001](address)"."""
    match = ids.search(cell.text)
    is_link = match and not any(map(str.isalnum, ids.sub("", cell.text)))
    return cell.part(match[0], match.start()) if match and is_link and "](" in cell.text else None


def _rows_pairs(
    rows: Sequence[Sequence[Cell]],
    header: Sequence[str],
    columns: Mapping[int, tuple[int, str]],
    ids: re.Pattern[str],
    values: NameValues,
    *,
    first: Sequence[Cell] = (),
) -> Iterator[Pair]:
    """Read the pairs in rows, or in columns if names are above or below their ids.

    first (Sequence[Cell]): The row that is perhaps a header, or the names of the first ids.
    """

    def learned(rows: Sequence[Sequence[Cell]]) -> dict[int, int]:
        n = max(map(len, rows), default=0)
        are_ids = [
            p
            for p in range(n)
            if (cells := [row[p].text for row in rows if p < len(row) and row[p].text])
            and 2 * sum(map(bool, map(ids.fullmatch, cells))) > len(cells)
        ]
        return name_places.choose_columns(rows, are_ids, values)

    found = learned(rows)
    if not found and rows and not columns:
        every = [first, *rows] if first else rows
        turned = list(zip_longest(*every, fillvalue=Cell("", at=-1)))
        if names := learned(turned):
            by_row = {p: (q, "") for p, q in names.items()}
            for column in turned:
                yield from row_pairs(column, by_row, ids)
            return
    columns = {**columns, **{p: (q, columns.get(p, (-1, ""))[1]) for p, q in found.items()}}
    for row in rows:
        yield from row_pairs(row, columns, ids, header=header)


def table_pairs(
    path: StrPath,
    rows: Iterable[tuple[Place, list[str], str]],
    ids: re.Pattern[str],
    chosen: Mapping[str, Column],
    prefix: str = "",
    values: NameValues = no_values,
) -> Iterator[Pair]:
    """Read pairs from the rows of a table, as from `io.table.split_rows`.

    chosen (Mapping): Columns of "id" and "name"; empty: by header.
    RAISES BioelError: [B128] if a column is missing, [B262] if there is no column of a number.
    """
    values = no_values if chosen else values  # what the user chose is not compared with others
    columns: dict[int, tuple[int, str]] | None = None
    header: list[str] = []
    first = list[Cell]()
    read = list[list[Cell]]()
    for place, row, record in rows:
        if columns is None:
            if len(row) == 1 and row[0].startswith("#"):
                continue
            header = header_of(row)
            columns = name_columns(tuple(header))
            if chosen:
                indices = column_indices(path, chosen, header)
                i = indices["id"][0]
                columns = {i: (indices.get("name", [-1])[0], columns.get(i, (-1, ""))[1])}
            columns = {i: (name, known or prefix) for i, (name, known) in columns.items()}
            has_names = any(isinstance(column, str) for column in chosen.values())
            if has_names or not (chosen or any(map(ids.search, header))):
                first = row_cells(place, row, record)
                continue
        read.append(row_cells(place, row, record))
        if len(read) == _N_ROWS:
            yield from _rows_pairs(read, header, columns, ids, values, first=first)
            read, first = [], []
    yield from _rows_pairs(read, header, columns or {}, ids, values, first=first)


def row_cells(place: Place, row: list[str], record: str, marks: str | None = None) -> list[Cell]:
    """Return the cells of a row without `marks` around them, with their offsets in the record."""
    cells, at = [], 0
    for i, text in enumerate(row):
        quoted = '"{}"'.format(text.replace('"', '""'))
        is_quoted = record.startswith(quoted, at)
        start = at + is_quoted if record else -1
        sheet = f"{place.sheet}!" if place.sheet else ""
        column = max(i - (marks is not None and not row[0].strip()), 0)  # not of a bar before all
        cell = Cell(text, place, start, f"{sheet}{_letters(column)}{place.line}")
        if not isinstance(text, ChangedCell):
            cell = cell._replace(text=unescape_formula(text)).stripped(marks)
        cells.append(cell)
        at += 1 + len(quoted if is_quoted else row[i])
    return cells


def _letters(column: int) -> str:
    """Return the letters of a column in a spreadsheet, counted from 0: A, B, ..., Z, AA."""
    before, last = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)
