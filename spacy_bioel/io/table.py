"""Tables of concepts: CSV or TSV with any columns, and the vocabularies of CTD."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.mesh import tree_types
from spacy_bioel.io.open import first_line, numbered_lines
from spacy_bioel.io.records import curie, one_record, split_ids, unique_names
from spacy_bioel.types import Concept


def read_rows(
    path: str | os.PathLike[str], *, separator: str, quoted: bool, encoding: str = "utf8"
) -> Iterator[tuple[int, list[str]]]:
    """Stream the rows of a table; blank lines are skipped.

    separator (str): One character between cells.
    quoted (bool): Whether double quotes protect separators and line ends, as in CSV. In other
        tables quotes are part of the names, and a single one would swallow the rows after it.
    YIELDS (tuple[int, list[str]]): Line number from 1, and cells.
    RAISES BioelError: [B126] broken quoting; errors of `open_text`.
    """
    lines = numbered_lines(path, encoding=encoding)
    if not quoted:
        for number, line in lines:
            if line.strip():
                yield number, line.split(separator)
        return
    number = 0

    def numbered() -> Iterator[str]:
        nonlocal number  # the reader's own count leaves out lines that were skipped
        for place, line in lines:
            number = place
            yield f"{line}\n"

    reader = csv.reader(numbered(), delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = Errors.B126.format(path=path, line=number, error=error)
            if "expected after" not in str(error):  # a quote that nothing closes swallows rows
                raise BioelError(problem) from None
            with one_record(path, number):
                raise BioelError(problem) from None
            continue
        if row is None:
            return
        if any(row):
            yield number, row


Column = str | int | tuple[str, ...]

COLUMN_KEYS = (
    "id", "name", "synonyms", "types", "trees", "parents", "definition", "alt_ids", "replaced_by",
    "xrefs",
)  # fmt: skip

# Vocabularies of the Comparative Toxicogenomics Database, recognised by their header. Since 2024
# chemicals have two columns of synonyms; both layouts are in use.
CTD_COLUMNS: dict[str, dict[str, Column]] = {
    "diseases": {
        "id": "DiseaseID", "name": "DiseaseName", "synonyms": "Synonyms", "trees": "TreeNumbers",
        "parents": "ParentIDs", "definition": "Definition", "alt_ids": "AltDiseaseIDs",
    },
    "chemicals": {
        "id": "ChemicalID", "name": "ChemicalName", "trees": "TreeNumbers",
        "synonyms": ("MESHSynonyms", "CTDCuratedSynonyms"),
        "parents": "ParentIDs", "definition": "Definition",
    },
    "chemicals_before_2024": {
        "id": "ChemicalID", "name": "ChemicalName", "synonyms": "Synonyms",
        "trees": "TreeNumbers", "parents": "ParentIDs", "definition": "Definition",
    },
}  # fmt: skip

_SEPARATORS = {".tsv": "\t", ".tab": "\t", ".rrf": "|"}


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, Column],
    prefix: str = "",
    separator: str | None = None,
    multi: str = "|",
    encoding: str = "utf8",
) -> Iterator[Concept]:
    """Stream the concepts of a table, one per row.

    Lines that start with "#" are comments; one of them may be the header, as in CTD.

    columns (Mapping[str, str | int | tuple[str, ...]]): From "id" and any of "name", "synonyms",
        "types", "trees" (MeSH tree numbers), "parents", "definition", "alt_ids", "replaced_by",
        "xrefs" to the name of the column in the header (or several names), or its number from 1.
        If all are numbers, the table has no header.
    prefix (str): Vocabulary of ids without a prefix.
    separator (str | None): Separator of cells; None: by the extension, else by the first row.
    multi (str): Separator of the values in a cell.
    encoding (str): Encoding of the file, e.g. "latin-1".
    YIELDS (Concept): One per row, and one without names for each alternate id.
    RAISES BioelError: [B127] unknown key or no "id", [B128] no such column, [B262] column number
        below 1, [B129] row without id or name; errors of `read_rows`.
    """
    unknown = [key for key in columns if key not in COLUMN_KEYS]
    if unknown or "id" not in columns:
        raise BioelError(
            Errors.B127.format(path=path, found=list(columns), known=", ".join(COLUMN_KEYS))
        )
    separator = separator or _separator(path, encoding)
    # Tables separated by tabs or bars have no quoting, see `read_rows`.
    quoted = separator not in "\t|"
    rows = read_rows(path, separator=separator, quoted=quoted, encoding=encoding)
    if all(isinstance(column, int) for column in columns.values()):
        indices = _indices(path, columns, [])
    else:
        indices = _indices(path, columns, _read_header(path, rows, columns))
    for number, row in rows:
        if not row[0].startswith("#"):
            cells = {
                key: multi.join(row[i].strip() for i in where if i < len(row))
                for key, where in indices.items()
            }
            with one_record(path, number):
                yield from _concepts(f"{path}, line {number}", cells, prefix, multi)


def read_ctd(path: str | os.PathLike[str], *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream CTD_diseases or CTD_chemicals, as .csv or .tsv, recognised by the header.

    RAISES BioelError: [B130] no such header among the comments; errors of `read_table`.
    """
    for _, line in numbered_lines(path):
        if not line.startswith("#"):
            break
        cells = line.lstrip("# ").replace(",", "\t").split("\t")
        for columns in CTD_COLUMNS.values():
            if _column_names(columns) <= set(cells):
                yield from read_table(path, columns=columns, prefix=prefix)
                return
    raise BioelError(Errors.B130.format(path=path))


def read_header_table(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Stream a table whose header has the keys of `read_table`: id, name, synonyms, ...

    RAISES BioelError: [B141] no column "id" in the header; errors of `read_table`.
    """
    header = [cell.strip(' #"') for cell in first_line(path).split(_separator(path))]
    columns: dict[str, Column] = {key: key for key in COLUMN_KEYS if key in header}
    if "id" not in columns:
        raise BioelError(Errors.B141.format(path=path, header=header))
    yield from read_table(path, columns=columns, prefix=prefix)


def _separator(path: str | os.PathLike[str], encoding: str = "utf8") -> str:
    """Separator by extension, else by the first row; tabs win, since names may have commas."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in (".gz", ".zst")]
    if suffixes and suffixes[-1].lower() in _SEPARATORS:
        return _SEPARATORS[suffixes[-1].lower()]
    is_csv = suffixes[-1:] == [".csv"]
    for _, line in numbered_lines(path, encoding=encoding):
        if line.strip() and not line.startswith("#"):
            if is_csv:  # spreadsheets write semicolons in locales with decimal commas
                return ";" if "," not in line else ","
            return "\t" if "\t" in line else max(",;", key=line.count)
    return "," if is_csv else "\t"


def _column_names(columns: Mapping[str, Column]) -> set[str]:
    """Names of the columns; numbers are left out."""
    names: set[str] = set()
    for column in columns.values():
        if not isinstance(column, int):
            names.update((column,) if isinstance(column, str) else column)
    return names


def _read_header(
    path: str | os.PathLike[str],
    rows: Iterator[tuple[int, list[str]]],
    columns: Mapping[str, Column],
) -> list[str]:
    """Find the header: the first comment with all names, or the first row."""
    wanted = _column_names(columns)
    for _, row in rows:
        header = [cell.strip() for cell in row]
        is_comment = header[0].startswith("#")
        header[0] = header[0].lstrip("# ")
        if not is_comment or wanted <= set(header):
            return header
    raise BioelError(Errors.B128.format(path=path, missing=sorted(wanted), header=[]))


def _indices(
    path: str | os.PathLike[str], columns: Mapping[str, Column], header: list[str]
) -> dict[str, list[int]]:
    missing = sorted(_column_names(columns) - set(header))
    if missing:
        raise BioelError(Errors.B128.format(path=path, missing=missing, header=header))
    indices: dict[str, list[int]] = {}
    for key, column in columns.items():
        if isinstance(column, int):
            if column < 1:
                raise BioelError(Errors.B262.format(path=path, key=key, column=column))
            indices[key] = [column - 1]
        else:
            names = (column,) if isinstance(column, str) else column
            indices[key] = [header.index(name) for name in names]
    return indices


def _concepts(where: str, cells: dict[str, str], prefix: str, multi: str) -> Iterator[Concept]:
    """Concept of a row, then its alternate ids."""

    def values(key: str) -> list[str]:
        cell = cells.get(key, "")
        return [value.strip() for value in cell.split(multi) if value.strip()]

    concept_id = curie(cells["id"], prefix)
    names = unique_names([cells.get("name", ""), *values("synonyms")])
    replaced_by = curie(cells.get("replaced_by", ""), prefix)
    if not concept_id or not (names or replaced_by):
        raise BioelError(Errors.B129.format(where=where, id=concept_id))
    yield Concept(
        concept_id,
        names,
        types=tuple(dict.fromkeys([*values("types"), *tree_types(values("trees"))])),
        parents=_ids(values("parents"), prefix),
        definition=cells.get("definition", ""),
        replaced_by=replaced_by,
        xrefs=tuple(dict.fromkeys(values("xrefs"))),
    )
    for alternate in _ids(values("alt_ids"), prefix):
        yield Concept(alternate, (), replaced_by=concept_id)


def _ids(values: list[str], prefix: str) -> tuple[str, ...]:
    """Split ids, which may have other separators than the names in the table, e.g. commas."""
    return tuple(dict.fromkeys(id_ for value in values for id_ in split_ids(value, prefix)))
