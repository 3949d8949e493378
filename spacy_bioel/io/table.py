"""Readers for tables: generic CSV, TSV and Excel, plus CTD, UMLS, NCBI Gene and ClinVar."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.open import (
    WORKBOOKS,
    ChangedCell,
    Place,
    StrPath,
    curie,
    file_in,
    misspelt,
    numbered_lines,
    parse_ids,
    read_workbook,
    skip_if_bad,
    tree_types,
    unique_names,
    warn_unread,
)
from spacy_bioel.text.normalize import unescape_formula
from spacy_bioel.types import ORGANISM, VARIANT, Concept

Column = str | int | tuple[str, ...]
_TableRows = Iterator[tuple[Place, list[str]]]

COLUMN_KEYS = (
    "id", "name", "synonyms", "types", "trees", "parents", "definition", "alt_ids", "replaced_by",
    "xrefs",
)  # fmt: skip

# Columns of the Comparative Toxicogenomics Database (CTD), whose tables are recognised by their
# header. Since 2024, the chemical tables have had two synonym columns; both layouts are in use.
_CTD_CHEMICALS: dict[str, Column] = {
    "id": "ChemicalID", "name": "ChemicalName", "trees": "TreeNumbers", "parents": "ParentIDs",
    "definition": "Definition", "synonyms": "Synonyms",
}  # fmt: skip
_CTD_LAYOUTS: tuple[dict[str, Column], ...] = (
    {
        "id": "DiseaseID", "name": "DiseaseName", "synonyms": "Synonyms", "trees": "TreeNumbers",
        "parents": "ParentIDs", "definition": "Definition", "alt_ids": "AltDiseaseIDs",
    },
    _CTD_CHEMICALS | {"synonyms": ("MESHSynonyms", "CTDCuratedSynonyms")},
    _CTD_CHEMICALS,
)  # fmt: skip
_SEPARATOR_OF_SUFFIX = {".tsv": "\t", ".tab": "\t", ".rrf": "|"}
UNQUOTED = "\t|"  # separators of tables whose quotes are literal
_BAR = "|"  # separates the values in a cell
_MAX_CELL_LENGTH = 1 << 27  # in characters; csv's default limit is too low for documents
_N_TO_DETECT = 1000  # number of rows used to detect the synonym separator


def is_text_table(path: StrPath) -> bool:
    return table_suffix(path) in (".csv", ".tsv", ".tab", *WORKBOOKS)


def split_rows(
    lines: Iterable[tuple[Place, str]], separator: str, *, quoted: bool
) -> Iterator[tuple[Place, list[str], str]]:
    """Split lines into rows, streaming each row's place, cells and text. Skip blank lines.

    quoted (bool): Whether double quotes protect separators and line ends, as in CSV. In other
        tables quotes belong to the names, and an unpaired quote must not swallow the next rows.
    RAISES BioelError: [B126] if a quote is not closed or text follows it, [B479] if a row has a
        lone carriage return or a cell that is too long.
    """
    if not quoted:
        for place, line in lines:
            if line.strip():
                line = line.rstrip("\r\n")
                yield place, line.split(separator), line
        return
    csv.field_size_limit(_MAX_CELL_LENGTH)
    read: list[tuple[Place, str]] = []  # the lines of the current row

    def csv_lines() -> Iterator[str]:
        for place, line in lines:
            read.append((place, line))
            yield line

    reader = csv.reader(csv_lines(), delimiter=separator, strict=True)
    while True:
        read.clear()
        try:
            row, error = next(reader, None), ""
        except csv.Error as wrong:
            row, error = None, str(wrong).partition(" - ")[0]
        if row is None and not error:
            return
        where, end = read[0][0], read[-1][0].line
        if end - where.line >= len(read):
            error = "one of its lines is not UTF-8"  # `numbered_lines` skipped that line
        if error:
            coded = Errors.B479 if error.startswith(("new-line", "field")) else Errors.B126
            problem = BioelError(coded.format(where=where, end=end, error=error))
            if error.startswith(("unexpected end", "field")):  # the next rows are lost
                raise problem
            with skip_if_bad(where):
                raise problem
        elif row:
            yield where, row, "".join(line for _, line in read)


def _open_rows(path: StrPath, *, quoted: bool | None = None) -> _TableRows:
    """Stream rows of a table or workbook. Tab- and bar-separated cells keep quotes by default."""
    if table_suffix(path) in WORKBOOKS:
        return read_workbook(path)
    separator, lines = separator_of(path), numbered_lines(path, ends=True)
    rows = split_rows(lines, separator, quoted=quoted or separator not in UNQUOTED)
    return ((where, row) for where, row, _ in rows)


def check_row(where: Place, row: list[str], width: int, used: Iterable[int]) -> None:
    """Check a row's width [B510], and that Excel has not changed any cell that is used [B514]."""
    if len(row) < width or any(row[width:]):
        raise BioelError(Errors.B510.format(where=where, found=len(row), expected=width))
    for i in used:
        if isinstance(row[i], ChangedCell):
            raise BioelError(Errors.B514.format(where=where, column=i + 1, problem=row[i]))


def read_text_table(path: StrPath, patient: str = "", date: str = "") -> Iterator[tuple[str, ...]]:
    """Stream (text, id) from a table's "text" and "id" columns; without "id", rows are numbered.

    patient, date (str): Names of columns whose cells are added to each tuple; "" for none.

    RAISES BioelError: [B444] if there is no text column, [B511] if an id is empty or repeated; the
        same errors as `read_table`.
    """
    rows = _open_rows(path, quoted=True)
    header = header_of(next((row for _, row in rows), []))
    columns: dict[str, Column] = {name: name for name in ("text", "id") if name in header}
    if "text" not in columns:
        raise BioelError(Errors.B444.format(path=path, columns=header))
    more = {key: name for key, name in (("patient", patient), ("date", date)) if name}
    indices = {key: i for key, (i,) in column_indices(path, columns | more, header).items()}
    others = [name for name in header if name and name not in (*columns, patient, date)]
    warn_unread(path, "columns", dict.fromkeys(others, 1), {"id"} - columns.keys())
    used = [i for key, i in indices.items() if key != "date"]  # dates may be Excel dates
    ids: set[int] = set()  # hashes of the ids, to save memory
    for number, (where, row) in enumerate(rows, start=1):
        if "id" in columns and not any(row):
            continue
        with skip_if_bad(where):
            check_row(where, row, len(header), used)
            shown = {key: getattr(row[i], "shown", row[i]) for key, i in indices.items()}
            cells = {"id": str(number)} | {key: unescape_formula(x) for key, x in shown.items()}
            if not (id := cells["id"]).strip() or hash(id) in ids:
                problem = "in an earlier row too" if id.strip() else "empty"
                raise BioelError(Errors.B511.format(where=where, id=id, problem=problem))
            ids.add(hash(id))
            yield cells["text"], id, *(cells.get(key, "") for key in ("patient", "date") if patient)


def read_table(
    path: StrPath,
    *,
    columns: Mapping[str, Column],
    prefix: str = "",
    synonym_separator: str = "",
) -> Iterator[Concept]:
    """Stream concepts from a table, one per row.

    Lines that start with "#" are comments; one of them may be the header, as in CTD. The cell
    separator depends on the file extension, or else on the first row.

    columns (Mapping[str, str | int | tuple[str, ...]]): Maps "id" and any of "name", "synonyms",
        "types", "trees" (MeSH tree numbers), "parents", "definition", "alt_ids", "replaced_by",
        "xrefs" to a column name in the header (or several names), or to a column number, counted
        from 1. If all are numbers, the table has no header.
    synonym_separator (str): Separator between synonyms in a cell. "" means a bar, or a semicolon if
        the first cells contain no bar, and enough of them contain a semicolon: more than a fifth of
        all cells, and most cells with semicolons or commas. A warning [W478] is logged if
        semicolons could be either separators or parts of names.
    YIELDS (Concept): One per row, and one without names for each alternate id.
    RAISES BioelError: [B510] for a row of another width, [B512] for two columns of one name.
    """
    if "id" not in columns or not columns.keys() <= set(COLUMN_KEYS):
        known = ", ".join(COLUMN_KEYS)
        raise BioelError(Errors.B127.format(path=path, found=list(columns), known=known))
    rows = ((where, row) for where, row in _open_rows(path) if any(row))
    has_header = not all(isinstance(column, int) for column in columns.values())
    header = _read_header(path, rows, columns) if has_header else []
    rows = ((where, row) for where, row in rows if not row[0].startswith("#"))
    detects = "synonyms" in columns and not synonym_separator
    first = list(islice(rows, _N_TO_DETECT if detects else not has_header))
    if not has_header:
        if not first:
            return
        header = first[0][1]
    indices = column_indices(path, columns, header)
    used = list(chain.from_iterable(indices.values()))
    at, separator = indices.get("synonyms", []), synonym_separator or _BAR
    some = [row[i] for _, row in first for i in at if i < len(row) and row[i]]
    several = [";" in cell for cell in some if ";" in cell or ", " in cell]
    if detects and not any(_BAR in cell for cell in some):
        # Semicolons and commas also occur in names.
        separator = ";" if sum(several) > max(len(several) / 2, len(some) / 5) else _BAR
    n_of = {";": 0, _BAR: 0}  # rows per separator; a bar overrides semicolons
    for where, row in chain(first, rows):
        with skip_if_bad(where):
            check_row(where, row, len(header), used)
            cells = {key: [row[i].strip() for i in indices[key]] for key in indices}
            synonyms = "".join(cells.get("synonyms", ()))
            n_of[_BAR if _BAR in synonyms else ";"] += _BAR in synonyms or ";" in synonyms
            yield from _row_concepts(where, cells, prefix, separator)
    if detects and (separator == ";" or 5 * n_of[";"] > n_of[_BAR]):
        about = {"semicolons": n_of[";"], "bars": n_of[_BAR], "used": separator}
        LOGGER.warning(Warnings.W478.format(path=path, **about))


def read_ctd(path: StrPath, *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream concepts from CTD_diseases or CTD_chemicals (.csv or .tsv); the header tells which."""
    for _, line in numbered_lines(path):
        if not line.startswith("#"):
            break
        cells = line.lstrip("# ").replace(",", "\t").split("\t")
        for columns in _CTD_LAYOUTS:
            if _column_names(columns) <= set(cells):
                yield from read_table(path, columns=columns, prefix=prefix, synonym_separator=_BAR)
                return
    raise BioelError(Errors.B130.format(path=path))


def read_header_table(
    path: StrPath, *, prefix: str = "", synonym_separator: str = ""
) -> Iterator[Concept]:
    """Stream concepts from a table whose header contains column keys: id, name, synonyms, ...

    RAISES BioelError: [B136] if a key is probably misspelt, [B141] if there is no "id" column; the
        same errors as `read_table`.
    """
    header = [cell.strip(' #"') for cell in next((row for _, row in _open_rows(path)), [])]
    columns: dict[str, Column] = {key: key for key in COLUMN_KEYS if key in header}
    if "id" not in columns:
        raise BioelError(Errors.B141.format(path=path, header=header))
    others = [name for name in header if name and name not in columns]
    missing = [key for key in COLUMN_KEYS if key not in columns]
    for name in others:
        if key := misspelt(name, missing):
            chosen = ",".join(f"{key}={column}" for key, column in (columns | {key: name}).items())
            raise BioelError(Errors.B136.format(path=path, found=name, key=key, columns=chosen))
    warn_unread(path, "columns", dict.fromkeys(others, 1))
    yield from read_table(path, columns=columns, prefix=prefix, synonym_separator=synonym_separator)


def table_suffix(path: StrPath) -> str:
    """Return a file's suffix in lower case, ignoring ".gz" and ".zst": ".csv" for "A.CSV.gz"."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in (".gz", ".zst")), "")


def separator_of(path: StrPath) -> str:
    """Infer the separator from the extension or first row; prefer tabs, as names contain commas."""
    if (suffix := table_suffix(path)) in _SEPARATOR_OF_SUFFIX:
        return _SEPARATOR_OF_SUFFIX[suffix]
    lines = (line for _, line in numbered_lines(path) if not line.startswith("#"))
    first = next(filter(str.strip, lines), "\t")
    if suffix == ".csv":  # spreadsheets use semicolons in locales with decimal commas
        return ";" if ";" in first and "," not in first else ","
    return "\t" if "\t" in first else max(",;", key=first.count)


def _parts_of(column: Column) -> tuple[str | int, ...]:
    return column if isinstance(column, tuple) else (column,)


def _column_names(columns: Mapping[str, Column]) -> set[str]:
    parts = chain.from_iterable(map(_parts_of, columns.values()))
    return {part for part in parts if isinstance(part, str)}


def header_of(row: list[str]) -> list[str]:
    """Return the column names in a header row, dropping empty cells that spreadsheets append."""
    names = [cell.strip().lstrip("# " if i == 0 else "") for i, cell in enumerate(row)]
    while names and not names[-1]:
        names.pop()
    return names


def _read_header(path: StrPath, rows: _TableRows, columns: Mapping[str, Column]) -> list[str]:
    """Find the header: whichever comment line or first row has the most expected names."""
    wanted = _column_names(columns)
    best: list[str] = []
    for _, row in rows:
        header = header_of(row)
        if len(wanted & set(header)) > len(wanted & set(best)):
            best = header
        if wanted <= set(best):
            return best
        if not row[0].strip().startswith("#"):
            return best or header
    raise BioelError(Errors.B128.format(path=path, missing=sorted(wanted), header=best))


def column_indices(
    path: StrPath, columns: Mapping[str, Column], header: list[str]
) -> dict[str, list[int]]:
    if missing := sorted(_column_names(columns) - set(header)):
        raise BioelError(Errors.B128.format(path=path, missing=missing, header=header))
    indices: dict[str, list[int]] = {key: [] for key in columns}
    for key, column in columns.items():
        for part in _parts_of(column):
            if isinstance(part, str):
                if (n := header.count(part)) > 1:
                    raise BioelError(Errors.B512.format(path=path, n=n, name=part))
                indices[key].append(header.index(part))
            elif 1 <= part <= len(header):
                indices[key].append(part - 1)
            else:
                raise BioelError(Errors.B262.format(path=path, key=key, column=part, n=len(header)))
    return indices


def _row_concepts(
    where: Place, cells: dict[str, list[str]], prefix: str, synonym_separator: str
) -> Iterator[Concept]:
    """Yield the concept in a row, then a retired concept for each alternate id."""

    def text(key: str) -> str:
        return _BAR.join(cells.get(key, ()))

    def values(key: str, separator: str = _BAR) -> list[str]:
        parts = (part.strip() for cell in cells.get(key, ()) for part in cell.split(separator))
        return [part for part in parts if part]

    def ids(key: str) -> tuple[str, ...]:
        # Unlike names, ids may also be separated by commas, semicolons or "+".
        return tuple(dict.fromkeys(i for value in values(key) for i in parse_ids(value, prefix)))

    concept_id = curie(text("id"), prefix)
    names = unique_names([text("name"), *values("synonyms", synonym_separator)])
    replaced_by = curie(text("replaced_by"), prefix)
    if not concept_id or not (names or replaced_by):
        raise BioelError(Errors.B129.format(where=where, id=concept_id))
    types = dict.fromkeys([*values("types"), *tree_types(values("trees"))])
    definition, xrefs = text("definition"), tuple(dict.fromkeys(values("xrefs")))
    yield Concept(concept_id, names, tuple(types), ids("parents"), definition, replaced_by, xrefs)
    for alternate in ids("alt_ids"):
        yield Concept(alternate, (), replaced_by=concept_id)


# Indices of the MRCONSO columns that are read.
_LAT, _TS, _STT, _ISPREF, _AUI, _SAB, _RRF_CODE, _STR, _SUPPRESS = 1, 2, 4, 6, 7, 11, 13, 14, 16
_NO_CODE = ("", "NOCODE")
_SUPPRESSED = ("O", "E", "Y")  # obsolete, or marked as suppressible by an editor or the source
_OPTIONAL = ("MRDEF", "MRCUI")
_N_COLUMNS = {"MRCONSO": 18, "MRSTY": 6, "MRDEF": 8, "MRCUI": 7}
_CUI_OF = itemgetter(0)


def read_umls(folder: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream the concepts in a UMLS release.

    The files are sorted by CUI and read in parallel, with one concept in memory at a time.
    Suppressed and non-English atoms are dropped; a concept without a remaining name is skipped.
    Retired CUIs come last, if MRCUI has a single successor (a synonym, or else a related CUI).

    folder (str | PathLike): Contains MRCONSO.RRF and MRSTY.RRF, and optionally MRDEF.RRF and
        MRCUI.RRF. Each may be compressed: MRCONSO.RRF.gz, MRCONSO.RRF.zst.
    prefix (str): Ignored, because ids are bare CUIs. Types are TUIs.
    """
    files = [_rows_by_cui(folder, name) for name in ("MRSTY", "MRDEF", "MRCONSO")]
    for cui, groups in groupby(merge(*files, key=_CUI_OF), key=_CUI_OF):
        rows = defaultdict(list, {name: rows for _, name, rows in groups})
        english = (row for row in rows["MRCONSO"] if row[_LAT] == "ENG")
        if not (atoms := [row for row in english if row[_SUPPRESS] not in _SUPPRESSED]):
            continue
        # Put the concept's preferred name first.
        ranked = sorted(atoms, key=lambda r: (r[_TS] != "P", r[_STT] != "PF", r[_ISPREF] != "Y"))
        auis = {row[_AUI] for row in atoms}
        current = (r[5].strip() for r in rows["MRDEF"] if r[1] in auis and r[6] == "N")
        # Prepend the vocabulary ("MSH:D003924"), unless the code includes it ("HP:0001250").
        codes = (
            row[_RRF_CODE] if ":" in row[_RRF_CODE] else f"{row[_SAB]}:{row[_RRF_CODE]}"
            for row in atoms
            if row[_RRF_CODE] not in _NO_CODE
        )
        yield Concept(
            cui,
            unique_names(row[_STR] for row in ranked),
            types=tuple(dict.fromkeys(row[1] for row in rows["MRSTY"])),
            definition=next(current, ""),
            xrefs=tuple(dict.fromkeys(codes)),
        )
    for cui, _, retired in _rows_by_cui(folder, "MRCUI"):
        for relation in ("SY", "RO"):
            successors = {row[5] for row in retired if row[2] == relation and row[5]}
            if len(successors) == 1:
                yield Concept(cui, (), replaced_by=successors.pop())
                break


def _rows_by_cui(folder: StrPath, name: str) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield each CUI, `name` and the CUI's rows. RAISES BioelError: [B123] if the file
    is missing, [B124] if it is not sorted."""
    if name in _OPTIONAL and not any(Path(folder).glob(f"{name}.RRF*")):
        return
    path = file_in(folder, f"{name}.RRF", of="the META folder of a UMLS release")
    previous = ""
    for cui, group in groupby(_rrf_rows(path, _N_COLUMNS[name]), key=lambda placed: placed[1][0]):
        rows = list(group)
        if cui < previous:
            raise BioelError(Errors.B124.format(where=rows[0][0], cui=cui, previous=previous))
        previous = cui
        yield cui, name, [row for _, row in rows]


def _rrf_rows(path: Path, n_columns: int) -> Iterator[tuple[Place, list[str]]]:
    for where, line in numbered_lines(path):
        row = line.split("|")
        with skip_if_bad(where):
            if len(row) < n_columns:
                raise BioelError(Errors.B125.format(where=where, n=len(row), expected=n_columns))
            yield where, row


_GENE_INFO_COLUMNS: dict[str, Column] = {
    "id": "GeneID",
    "name": "Symbol",
    "synonyms": (
        "Full_name_from_nomenclature_authority", "description", "Synonyms", "Other_designations",
    ),
    "types": ("type_of_gene", "tax_id"),
    "xrefs": "dbXrefs",
}  # fmt: skip
_NO_VALUE = "-"
_NO_SYMBOL = "NEWENTRY"  # placeholder symbol in new records


def read_gene_info(path: StrPath, *, prefix: str = "NCBIGene") -> Iterator[Concept]:
    """From NCBI's gene_info file, stream the genes that have a symbol.

    Types are "Gene", the type of gene, and the organism, so that `--types NCBITaxon:9606` keeps
    only human genes. Format: https://ftp.ncbi.nlm.nih.gov/gene/DATA/README

    RAISES BioelError: [B128] if a column is missing, [B132] if a gene has no organism.
    """
    for gene in read_table(path, columns=_GENE_INFO_COLUMNS, prefix=prefix, synonym_separator=_BAR):
        names = tuple(name for name in gene.names if name not in (_NO_VALUE, _NO_SYMBOL))
        with skip_if_bad(Place(path)):
            if not any(t.isdigit() for t in gene.types):
                problem = f"expected a number as tax_id of {gene.id}, found {gene.types}"
                raise BioelError(Errors.B132.format(where=path, problem=problem))
            xrefs = tuple(xref for xref in gene.xrefs if xref != _NO_VALUE)
            types = ("Gene", *(f"{ORGANISM}{t}" if t.isdigit() else t for t in gene.types))
            if names:
                yield replace(gene, names=names, types=types, xrefs=xrefs)


_CLINVAR_COLUMNS: dict[str, Column] = {"id": "RS# (dbSNP)", "name": "Name", "types": "GeneID"}
_HGVS_CHANGE = re.compile(r"[:(]([cgmnp]\.[^\s)]+)")


def read_clinvar(path: StrPath, *, prefix: str = "dbSNP") -> Iterator[Concept]:
    """From ClinVar's variant_summary.txt, stream the variants that have an rs number.

    Each gene and change, such as "NCBIGene:673:p.Val600Glu", becomes a retired id whose replacement
    is the first variant with this change.
    """
    for row in read_table(path, columns=_CLINVAR_COLUMNS, prefix=prefix):
        if (number := row.id.partition(":")[2]).isdigit():
            id = f"{prefix}:rs{number}"
            yield Concept(id, (f"rs{number}",), (VARIANT,))
            for change in _HGVS_CHANGE.findall("".join(row.names)):
                for gene in row.types:
                    yield Concept(f"NCBIGene:{gene}:{change}", (), replaced_by=id)
