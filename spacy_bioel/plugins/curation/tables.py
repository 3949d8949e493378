"""Read ids, and the cells near them, in table rows: CSV, TSV, Excel and Markdown.

An object in JSON or YAML is also read as a row, with its keys as the header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, islice, zip_longest

from spacy_bioel.io.open import ChangedCell, Place, StrPath, curie
from spacy_bioel.io.table import Column, column_indices, header_of
from spacy_bioel.plugins.curation.ids import ID_LABEL, KEY_OF_PREFIX, split_id
from spacy_bioel.plugins.curation.lines import line_records
from spacy_bioel.plugins.curation.name_places import (
    N_RECORDS,
    Entry,
    IdRecord,
    NamePlaces,
    NameValues,
    no_values,
)
from spacy_bioel.plugins.curation.pairs import Cell, Pair
from spacy_bioel.text.normalize import unescape_formula

Lines = Iterable[tuple[Place, str]]
IdColumns = Mapping[int, tuple[int, str]]  # id column -> its name column and prefix

_ID_HEADER = re.compile(
    r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:ids?|curies?|codes?|identifiers?|accessions?|meaning)"
)
_NAME_HEADER = re.compile(r"(?i)(.{0,80}?)[\s_.-]{0,3}(?:labels?|names?|terms?|titles?)")
# Headers of columns whose ids do not belong to the name next to them.
_OTHER_ID = re.compile(r"(?:right|correct|expected|proposed|new|replace\w*|parent)(?![a-z])")
_LISTED = re.compile(r"[^|;,\s](?:[^|;,]*[^|;,\s])?")
_LIST_MARK = re.compile(r"[|;,]|\s(?:and|with)\s")
_TABLE_RULE = re.compile(r"\|?(?:\s{0,9}:?-{1,200}:?\s{0,9}\|)+(?:\s{0,9}:?-{1,200}:?\s{0,9})?")
_EMPHASIS = " *_`"
_N_CELLS_NEAR = 30  # number of cells read before and after an id


@lru_cache(maxsize=1 << 10)
def name_columns(header: tuple[str, ...]) -> dict[int, tuple[int, str]]:
    """Map each id column to its name column ("hpo_id" to "hpo_name") and prefix.

    If the header does not tell which column has the names, the number is -1.
    """
    names: dict[str, int] = {}
    stems: dict[int, str] = {}
    for i, title in enumerate(header):
        if match := _NAME_HEADER.fullmatch(title):
            names.setdefault(match[1].lower(), i)
        elif match := _ID_HEADER.fullmatch(title):
            stems[i] = title.lower() if title.lower() in KEY_OF_PREFIX else match[1].lower()
    only = next(iter(names.values())) if len(stems) == len(names) == 1 else -1
    return {i: (names.get(s, only), s if s in KEY_OF_PREFIX else "") for i, s in stems.items()}


def row_entries(
    cells: Sequence[Cell],
    columns: IdColumns,
    ids: re.Pattern[str],
    own_ids: Collection[int] = (),
) -> Iterator[Entry]:
    """Read the ids in a row's id-only cells, and the texts in the other cells.

    own_ids (Collection): Columns of ids that do not belong to the words near them.
    """
    in_cells = {i: found for i in range(len(cells)) if (found := _ids_in(cells, i, columns, ids))}
    texts = {
        i: cell
        for i, cell in enumerate(cells)
        if i not in in_cells and _is_text(cell) and not ids.search(cell.text)
    }
    for i, found in in_cells.items():
        name = columns.get(i, (-1, ""))[0]
        near = range(i - _N_CELLS_NEAR, i + _N_CELLS_NEAR) if i not in own_ids else ()
        places = [q for q in dict.fromkeys((*near, name)) if q in texts]
        for k, id in enumerate(found):
            at = {
                ("cell", q - i, ""): _names_of_id(texts[q], cells[i], k, len(found)) for q in places
            }
            yield Entry(i, id, at, ("cell", name - i, "") if name in texts else None, k > 0)


def _is_text(cell: Cell) -> bool:
    is_label = re.fullmatch(ID_LABEL, cell.text)
    is_text = not is_label and any(map(str.isalpha, cell.text))
    return is_text and not isinstance(cell.text, ChangedCell)


def _ids_in(cells: Sequence[Cell], i: int, columns: IdColumns, ids: re.Pattern[str]) -> list[Cell]:
    """Return the ids in a cell that contains only ids."""
    if isinstance(cells[i].text, ChangedCell):  # its text is a message, not an id
        return [cells[i]] * (i in columns)
    found = [cells[i].part(m[0], m.start()) for m in _LISTED.finditer(cells[i].text)]
    if prefix := columns.get(i, (-1, ""))[1]:
        spelled = [curie(c.text, "" if ids.fullmatch(c.text) else prefix) for c in found]
        found = [
            c if id == c.text else c._replace(text=id, at=-1)
            for c, id in zip(found, spelled, strict=True)
        ]
    # An id in an id column must have a known prefix, but need not be well formed.
    start = f"{(split_id(cells[i].text) or ('',))[0]}:00000" if i in columns else ""
    is_id = ids.fullmatch(start) or (found and all(ids.fullmatch(c.text) for c in found))
    return found if is_id else []


def _names_of_id(name: Cell, ids: Cell, k: int, n: int) -> tuple[Cell, ...]:
    """Return the possible names of id `k` of the `n` ids in a cell."""
    if n == 1:
        return (name,)
    sign = next(sign for sign in "|;," if sign in ids.text)
    if len(parts := name.text.split(sign)) == n:
        return (name.part(parts[k], len(sign.join(parts[:k])) + bool(k)).stripped(),)
    # The whole name, or part of it, must fit each id.
    return (name, *(Cell(part.strip(), at=-1) for part in _LIST_MARK.split(name.text)))


def rows_records(
    rows: Iterable[Sequence[Cell]],
    columns: IdColumns,
    ids: re.Pattern[str],
    own_ids: Collection[int] = (),
) -> Iterator[IdRecord]:
    """Read the ids in rows; a cell with an id and other words is read as a line of text."""
    for row in rows:
        entries = list(row_entries(row, columns, ids, own_ids))
        yield IdRecord("row", entries)
        read = {entry.position for entry in entries}
        for i, cell in enumerate(row):
            if i not in read and not isinstance(cell.text, ChangedCell) and ids.search(cell.text):
                yield from line_records([cell], ids)


def text_pairs(lines: Lines, ids: re.Pattern[str], values: NameValues) -> Iterator[Pair]:
    """Read pairs from running text and Markdown; Markdown tables are read by row."""
    cells = (Cell(line.rstrip("\r\n"), place) for place, line in lines)
    text = list[Cell]()

    def pairs_in_text() -> Iterator[Pair]:
        yield from NamePlaces(list(line_records(text, ids)), values).pairs()
        text.clear()

    for has_bars, part in groupby(cells, key=lambda cell: "|" in cell.text):
        while batch := list(islice(part, N_RECORDS)):
            rows, header = list[list[Cell]](), tuple[str, ...]()
            if len(text) >= N_RECORDS:
                yield from pairs_in_text()
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
                yield from pairs_in_text()
                yield from _rows_pairs(rows, name_columns(header), ids, values, header=header)
            else:  # the bars are in sentences or templates
                text += batch
    yield from pairs_in_text()


def _linked_id(cell: Cell, ids: re.Pattern[str]) -> Cell | None:
    """Return the id in a cell that is only a link: "[HP:0000001](address)"."""
    match = ids.search(cell.text)
    is_link = match and not any(map(str.isalnum, ids.sub("", cell.text)))
    return cell.part(match[0], match.start()) if match and is_link and "](" in cell.text else None


def _rows_pairs(
    rows: Sequence[Sequence[Cell]],
    columns: IdColumns,
    ids: re.Pattern[str],
    values: NameValues,
    *,
    header: Sequence[str] = (),
    first: Sequence[Cell] = (),
) -> Iterator[Pair]:
    """Read the pairs in rows, or in columns if names are above or below their ids.

    first (Sequence[Cell]): The first row, which may be a header, or the names of the first ids.
    """
    own_ids = {i for i in columns if _OTHER_ID.match(header[i].lower())} if header else ()
    places = NamePlaces(list(rows_records(rows, columns, ids, own_ids)), values)
    if not places.chosen and not columns:
        every = [first, *rows] if first else rows
        turned = zip_longest(*every, fillvalue=Cell("", at=-1))
        by_column = NamePlaces(list(rows_records(turned, {}, ids)), values)
        places = by_column if by_column.chosen else places
    yield from places.pairs()


def table_pairs(
    path: StrPath,
    rows: Iterable[tuple[Place, list[str], str]],
    ids: re.Pattern[str],
    chosen: Mapping[str, Column],
    prefix: str = "",
    values: NameValues = no_values,
) -> Iterator[Pair]:
    """Read pairs from table rows, such as those from `io.table.split_rows`.

    chosen (Mapping): Columns of "id" and "name"; empty: the header decides.
    RAISES BioelError: [B128] if a column is missing, [B262] if a column number is out of range.
    """
    values = no_values if chosen else values  # columns that the user chose are final
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
            header = []
        read.append(row_cells(place, row, record))
        if len(read) == N_RECORDS:
            yield from _rows_pairs(read, columns, ids, values, header=header, first=first)
            read, first = [], []
    yield from _rows_pairs(read, columns or {}, ids, values, header=header, first=first)


def row_cells(place: Place, row: list[str], record: str, marks: str | None = None) -> list[Cell]:
    """Return a row's cells, stripped of `marks`, with their offsets in the record."""
    cells, at = [], 0
    for i, text in enumerate(row):
        quoted = '"{}"'.format(text.replace('"', '""'))
        is_quoted = record.startswith(quoted, at)
        start = at + is_quoted if record else -1
        sheet = f"{place.sheet}!" if place.sheet else ""
        column = max(i - (marks is not None and not row[0].strip()), 0)  # ignores a leading bar
        cell = Cell(text, place, start, f"{sheet}{_letters(column)}{place.line}")
        if not isinstance(text, ChangedCell):
            cell = cell._replace(text=unescape_formula(text)).stripped(marks)
        cells.append(cell)
        at += 1 + len(quoted if is_quoted else row[i])
    return cells


def _letters(column: int) -> str:
    """Return the letters of a spreadsheet column, counting from 0: A, B, ..., Z, AA."""
    before, last = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)
