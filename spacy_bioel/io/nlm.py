"""Sources of the National Library of Medicine: MeSH XML, UMLS, NCBI Gene and ClinVar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from xml.etree.ElementTree import Element

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import (
    Place,
    StrPath,
    curie,
    iter_xml,
    numbered_lines,
    one_record,
    open_text,
    tree_types,
    unique_names,
)
from spacy_bioel.io.table import Column, read_table
from spacy_bioel.types import ORGANISM, VARIANT, Concept

_HEADING = "HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI"
_SCOPE_NOTE = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"


def read_mesh_xml(path: StrPath, *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream MeSH descriptors or supplementary records, depending on the first lines.

    Types and parents of a descriptor follow from its tree numbers: the file is read twice, and
    only the tree is kept in memory. The parents of a supplementary record are its mapped headings;
    it has no types. Names are the heading, the preferred concept's terms, then all others.
    """
    with open_text(path) as file:
        head = file.read(4096)
    kinds = {"<SupplementalRecordSet": "SupplementalRecord", "<DescriptorRecordSet": "Descriptor"}
    kind = next((kind for start, kind in kinds.items() if start in head), None)
    if kind is None:
        raise BioelError(Errors.B121.format(path=path))
    tag = f"{kind.removesuffix('Record')}Record"
    ui_of_tree: dict[str, str] = {}
    if kind == "Descriptor":
        ui_of_tree = {
            tree: record.findtext("DescriptorUI", "").strip()
            for record in iter_xml(path, tag)
            for tree in _trees(record)
        }
    for record in iter_xml(path, tag):
        with one_record(Place(path)):
            ui = record.findtext(f"{kind}UI", "").strip()
            heading = record.findtext(f"{kind}Name/String", "").strip()
            if not ui or not heading:
                raise BioelError(Errors.B122.format(path=path, kind=kind, ui=ui, name=heading))
            parts = record.findall("ConceptList/Concept")
            parts.sort(key=lambda part: part.get("PreferredConceptYN") != "Y")
            terms = [t.findtext("String", "") for p in parts for t in p.iterfind("TermList/Term")]
            trees = _trees(record)
            above = [ui_of_tree.get(tree.rpartition(".")[0], "") for tree in trees]
            # A star marks headings that articles are indexed with.
            above += [(e.text or "").lstrip("*") for e in record.iterfind(_HEADING)]
            parents = dict.fromkeys(curie(parent, prefix) for parent in above if parent)
            scope = record.findtext(_SCOPE_NOTE) or record.findtext("Note") or ""
            yield Concept(
                curie(ui, prefix),
                unique_names([heading, *terms]),
                tree_types(trees),
                tuple(parents),
                " ".join(scope.split()),
            )


def _trees(record: Element) -> list[str]:
    return [(e.text or "").strip() for e in record.iterfind("TreeNumberList/TreeNumber")]


# The columns of MRCONSO that are read.
_LAT, _TS, _STT, _ISPREF, _AUI, _SAB, _CODE, _STR, _SUPPRESS = 1, 2, 4, 6, 7, 11, 13, 14, 16
_NO_CODE = ("", "NOCODE")
_SUPPRESSED = ("O", "E", "Y")  # obsolete, or suppressible
_N_COLUMNS = {"MRCONSO": 18, "MRSTY": 6, "MRDEF": 8, "MRCUI": 7}
_Row = list[str]
_Groups = Iterator[tuple[str, list[_Row]]]


def read_umls(folder: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream the concepts of a UMLS release.

    The files are sorted by CUI and read in parallel, with one concept in memory at a time. Atoms
    that are suppressed or not English are dropped; a concept without a remaining name is skipped.
    Retired CUIs come last, if MRCUI has one successor (a synonym, else the only related CUI).

    folder (str | PathLike): With MRCONSO.RRF and MRSTY.RRF; MRDEF.RRF and MRCUI.RRF are optional.
        Each may be compressed: MRCONSO.RRF.gz, MRCONSO.RRF.zst.
    prefix (str): Ignored: ids are bare CUIs. Types are TUIs.
    """
    types = _InStep(_groups(folder, "MRSTY"))
    definitions = _InStep(_groups(folder, "MRDEF", optional=True))
    for cui, rows in _groups(folder, "MRCONSO"):
        atoms = [row for row in rows if row[_LAT] == "ENG" and row[_SUPPRESS] not in _SUPPRESSED]
        if not atoms:
            continue
        # The preferred name of the concept comes first.
        ranked = sorted(atoms, key=lambda r: (r[_TS] != "P", r[_STT] != "PF", r[_ISPREF] != "Y"))
        auis = {row[_AUI] for row in atoms}
        in_force = (r[5].strip() for r in definitions.rows(cui) if r[1] in auis and r[6] == "N")
        codes = (_code(row) for row in atoms if row[_CODE] not in _NO_CODE)
        yield Concept(
            cui,
            unique_names(row[_STR] for row in ranked),
            types=tuple(dict.fromkeys(row[1] for row in types.rows(cui))),
            definition=next(in_force, ""),
            xrefs=tuple(dict.fromkeys(codes)),
        )
    for cui, rows in _groups(folder, "MRCUI", optional=True):
        for relation in ("SY", "RO"):
            successors = {row[5] for row in rows if row[2] == relation and row[5]}
            if len(successors) == 1:
                yield Concept(cui, (), replaced_by=successors.pop())
                break


class _InStep:
    """Rows of another file sorted by CUI, for CUIs in ascending order."""

    def __init__(self, groups: _Groups) -> None:
        self._groups = groups
        self._next = next(groups, None)

    def rows(self, cui: str) -> list[_Row]:
        while self._next is not None and self._next[0] < cui:
            self._next = next(self._groups, None)
        return self._next[1] if self._next is not None and self._next[0] == cui else []


def _code(row: _Row) -> str:
    """Code of an atom in its vocabulary: "MSH:D003924". Codes as "HP:0001250" are whole ids."""
    return row[_CODE] if ":" in row[_CODE] else f"{row[_SAB]}:{row[_CODE]}"


def _groups(folder: StrPath, name: str, *, optional: bool = False) -> _Groups:
    """Yield the rows of a file by CUI. RAISES BioelError: [B123], [B124]."""
    paths = [Path(folder, f"{name}.RRF{packed}") for packed in ("", ".gz", ".zst")]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        if optional:
            return
        raise BioelError(Errors.B123.format(folder=folder, name=name))
    previous = ""
    for cui, group in groupby(_rows(path, _N_COLUMNS[name]), key=lambda placed: placed[1][0]):
        rows = list(group)
        if cui < previous:
            raise BioelError(Errors.B124.format(where=rows[0][0], cui=cui, previous=previous))
        previous = cui
        yield cui, [row for _, row in rows]


def _rows(path: Path, n_columns: int) -> Iterator[tuple[Place, _Row]]:
    for where, line in numbered_lines(path):
        row = line.split("|")
        with one_record(where):
            if len(row) < n_columns:
                raise BioelError(Errors.B125.format(where=where, n=len(row), expected=n_columns))
            yield where, row


_GENES: dict[str, Column] = {
    "id": "GeneID",
    "name": "Symbol",
    "synonyms": (
        "Full_name_from_nomenclature_authority", "description", "Synonyms", "Other_designations",
    ),
    "types": ("type_of_gene", "tax_id"),
    "xrefs": "dbXrefs",
}  # fmt: skip
_MISSING = "-"
_NO_SYMBOL = "NEWENTRY"  # symbol of records that await their own


def read_gene_info(path: StrPath, *, prefix: str = "NCBIGene") -> Iterator[Concept]:
    """Stream the genes with a symbol of gene_info (https://ftp.ncbi.nlm.nih.gov/gene/DATA/README).

    Types are "Gene", the type of gene, and the organism, e.g. "NCBITaxon:9606". The file is
    streamed: of that of all organisms, `--types NCBITaxon:9606` keeps one.

    RAISES BioelError: [B128] when a column is missing, [B132] on a gene of no organism.
    """
    for gene in read_table(path, columns=_GENES, prefix=prefix):
        names = tuple(name for name in gene.names if name not in (_MISSING, _NO_SYMBOL))
        with one_record(Place(path)):
            if not any(t.isdigit() for t in gene.types):
                problem = f"expected a number as tax_id of {gene.id}, found {gene.types}"
                raise BioelError(Errors.B132.format(where=path, problem=problem))
            xrefs = tuple(xref for xref in gene.xrefs if xref != _MISSING)
            types = ("Gene", *(f"{ORGANISM}{t}" if t.isdigit() else t for t in gene.types))
            if names:
                yield replace(gene, names=names, types=types, xrefs=xrefs)


_VARIANTS: dict[str, Column] = {"id": "RS# (dbSNP)", "name": "Name", "types": "GeneID"}
_CHANGE = re.compile(r"[:(]([cgmnp]\.[^\s)]+)")


def read_clinvar(path: StrPath, *, prefix: str = "dbSNP") -> Iterator[Concept]:
    """Stream the variants with an rs number of ClinVar's variant_summary.txt.

    "NCBIGene:673:p.Val600Glu" is a retired id of a variant: of the first that has this change.
    """
    for row in read_table(path, columns=_VARIANTS, prefix=prefix):
        number = row.id.partition(":")[2]
        if number.isdigit():
            id = f"{prefix}:rs{number}"
            yield Concept(id, (f"rs{number}",), (VARIANT,))
            for change in _CHANGE.findall("".join(row.names)):
                yield from (
                    Concept(f"NCBIGene:{g}:{change}", (), replaced_by=id) for g in row.types
                )
