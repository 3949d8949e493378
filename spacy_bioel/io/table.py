"""Tables of concepts: CSV or TSV with any columns, and the vocabularies of CTD."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.open import (
    Place,
    StrPath,
    curie,
    first_line,
    numbered_lines,
    one_record,
    split_ids,
    tree_types,
    unique_names,
)
from spacy_bioel.types import Concept

_LOGGER = logging.getLogger(__name__)

Column = str | int | tuple[str, ...]
_Rows = Iterator[tuple[Place, list[str]]]

COLUMN_KEYS = (
    "id", "name", "synonyms", "types", "trees", "parents", "definition", "alt_ids", "replaced_by",
    "xrefs",
)  # fmt: skip

# Vocabularies of the Comparative Toxicogenomics Database, recognised by their header. Since 2024
# chemicals have two columns of synonyms; both layouts are in use.
_CTD_CHEMICALS: dict[str, Column] = {
    "id": "ChemicalID", "name": "ChemicalName", "trees": "TreeNumbers", "parents": "ParentIDs",
    "definition": "Definition", "synonyms": "Synonyms",
}  # fmt: skip
_CTD: tuple[dict[str, Column], ...] = (
    {
        "id": "DiseaseID", "name": "DiseaseName", "synonyms": "Synonyms", "trees": "TreeNumbers",
        "parents": "ParentIDs", "definition": "Definition", "alt_ids": "AltDiseaseIDs",
    },
    _CTD_CHEMICALS | {"synonyms": ("MESHSynonyms", "CTDCuratedSynonyms")},
    _CTD_CHEMICALS,
)  # fmt: skip
_SEPARATORS = {".tsv": "\t", ".tab": "\t", ".rrf": "|"}
_MULTI = "|"  # between the values of a cell


def read_rows(path: StrPath, *, separator: str, quoted: bool) -> _Rows:
    """Stream the rows of a table with their places; blank lines are skipped.

    quoted (bool): Whether double quotes protect separators and line ends, as in CSV. In other
        tables quotes are part of the names, and a single one would swallow the rows after it.
    """
    lines = numbered_lines(path)
    if not quoted:
        yield from ((place, line.split(separator)) for place, line in lines if line.strip())
        return
    where = Place(path)

    def placed() -> Iterator[str]:
        nonlocal where  # the reader's own count leaves out lines that were skipped
        for place, line in lines:
            where = place
            yield f"{line}\n"

    reader = csv.reader(placed(), delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = BioelError(Errors.B126.format(where=where, error=error))
            if "expected after" not in str(error):  # a quote that nothing closes swallows rows
                raise problem from None
            with one_record(where):
                raise problem from None
            continue
        if row is None:
            return
        if any(row):
            yield where, row


def read_table(
    path: StrPath, *, columns: Mapping[str, Column], prefix: str = ""
) -> Iterator[Concept]:
    """Stream the concepts of a table, one per row.

    Lines that start with "#" are comments; one of them may be the header, as in CTD. The separator
    of cells follows from the extension, else from the first row.

    columns (Mapping[str, str | int | tuple[str, ...]]): From "id" and any of "name", "synonyms",
        "types", "trees" (MeSH tree numbers), "parents", "definition", "alt_ids", "replaced_by",
        "xrefs" to the name of the column in the header (or several names), or its number from 1.
        If all are numbers, the table has no header.
    YIELDS (Concept): One per row, and one without names for each alternate id. When most cells of
        synonyms have a semicolon and none a bar, a warning says so [W478].
    """
    if "id" not in columns or not columns.keys() <= set(COLUMN_KEYS):
        known = ", ".join(COLUMN_KEYS)
        raise BioelError(Errors.B127.format(path=path, found=list(columns), known=known))
    separator = _separator(path)
    # Tables separated by tabs or bars have no quoting, see `read_rows`.
    quoted = separator not in "\t|"
    rows = read_rows(path, separator=separator, quoted=quoted)
    has_header = not all(isinstance(column, int) for column in columns.values())
    indices = _indices(path, columns, _read_header(path, rows, columns) if has_header else [])
    n_cells, n_semicolons, n_bars = 0, 0, 0
    for where, row in rows:
        if not row[0].startswith("#"):
            cells = {
                key: _MULTI.join(row[i].strip() for i in places if i < len(row))
                for key, places in indices.items()
            }
            n_cells += bool(synonyms := cells.get("synonyms", ""))
            n_semicolons, n_bars = n_semicolons + (";" in synonyms), n_bars + (_MULTI in synonyms)
            with one_record(where):
                yield from _concepts(where, cells, prefix)
    if 2 * n_semicolons > n_cells and not n_bars:
        _LOGGER.warning(Warnings.W478.format(path=path, n=n_semicolons))


def read_ctd(path: StrPath, *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream CTD_diseases or CTD_chemicals, as .csv or .tsv, recognised by the header."""
    for _, line in numbered_lines(path):
        if not line.startswith("#"):
            break
        cells = line.lstrip("# ").replace(",", "\t").split("\t")
        for columns in _CTD:
            if _column_names(columns) <= set(cells):
                yield from read_table(path, columns=columns, prefix=prefix)
                return
    raise BioelError(Errors.B130.format(path=path))


def read_header_table(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream a table whose header has the keys of `read_table`: id, name, synonyms, ..."""
    header = [cell.strip(' #"') for cell in first_line(path).split(_separator(path))]
    columns: dict[str, Column] = {key: key for key in COLUMN_KEYS if key in header}
    if "id" not in columns:
        raise BioelError(Errors.B141.format(path=path, header=header))
    yield from read_table(path, columns=columns, prefix=prefix)


def _separator(path: StrPath) -> str:
    """Separator by extension, else by the first row; tabs win, since names may have commas."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in (".gz", ".zst")]
    suffix = suffixes[-1].lower() if suffixes else ""
    if suffix in _SEPARATORS:
        return _SEPARATORS[suffix]
    is_csv = suffixes[-1:] == [".csv"]
    for _, line in numbered_lines(path):
        if line.strip() and not line.startswith("#"):
            if is_csv:  # spreadsheets write semicolons in locales with decimal commas
                return ";" if "," not in line else ","
            return "\t" if "\t" in line else max(",;", key=line.count)
    return "," if is_csv else "\t"


def _names_of(column: Column) -> tuple[str, ...]:
    """Names of a column in the header; none for a number."""
    if isinstance(column, int):
        return ()
    return (column,) if isinstance(column, str) else column


def _column_names(columns: Mapping[str, Column]) -> set[str]:
    return {name for column in columns.values() for name in _names_of(column)}


def _read_header(path: StrPath, rows: _Rows, columns: Mapping[str, Column]) -> list[str]:
    """Find the header: the first comment with all names, or the first row; a comment with more of
    the names than that row is the header of a table that lacks some."""
    wanted = _column_names(columns)
    best: list[str] = []
    for _, row in rows:
        header = [row[0].strip().lstrip("# "), *(cell.strip() for cell in row[1:])]
        if len(wanted & set(header)) > len(wanted & set(best)):
            best = header
        if wanted <= set(best):
            return best
        if not row[0].strip().startswith("#"):
            return best or header
    raise BioelError(Errors.B128.format(path=path, missing=sorted(wanted), header=best))


def _indices(
    path: StrPath, columns: Mapping[str, Column], header: list[str]
) -> dict[str, list[int]]:
    missing = sorted(_column_names(columns) - set(header))
    if missing:
        raise BioelError(Errors.B128.format(path=path, missing=missing, header=header))
    for key, column in columns.items():
        if isinstance(column, int) and column < 1:
            raise BioelError(Errors.B262.format(path=path, key=key, column=column))
    return {
        key: [column - 1] if isinstance(column, int) else list(map(header.index, _names_of(column)))
        for key, column in columns.items()
    }


def _concepts(where: Place, cells: dict[str, str], prefix: str) -> Iterator[Concept]:
    """Yield the concept of a row, then its alternate ids."""

    def values(key: str) -> list[str]:
        return [value.strip() for value in cells.get(key, "").split(_MULTI) if value.strip()]

    def ids(key: str) -> tuple[str, ...]:
        # Ids may have other separators than the names in the table, e.g. commas.
        return tuple(dict.fromkeys(i for value in values(key) for i in split_ids(value, prefix)))

    concept_id = curie(cells["id"], prefix)
    names = unique_names([cells.get("name", ""), *values("synonyms")])
    replaced_by = curie(cells.get("replaced_by", ""), prefix)
    if not concept_id or not (names or replaced_by):
        raise BioelError(Errors.B129.format(where=where, id=concept_id))
    types = dict.fromkeys([*values("types"), *tree_types(values("trees"))])
    definition, xrefs = cells.get("definition", ""), tuple(dict.fromkeys(values("xrefs")))
    yield Concept(concept_id, names, tuple(types), ids("parents"), definition, replaced_by, xrefs)
    for alternate in ids("alt_ids"):
        yield Concept(alternate, (), replaced_by=concept_id)
