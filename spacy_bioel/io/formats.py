"""Registry of file readers, with format detection based on file contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.bioc import read_bioc_json, read_bioc_xml
from spacy_bioel.io.brat import is_brat, read_brat
from spacy_bioel.io.jsonl import read_concepts_jsonl, read_texts_jsonl
from spacy_bioel.io.omop import read_athena
from spacy_bioel.io.ontology import read_cellxgene_json, read_mesh_xml, read_obo, read_owl
from spacy_bioel.io.open import WORKBOOKS, StrPath, open_text
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.table import (
    Column,
    read_clinvar,
    read_ctd,
    read_gene_info,
    read_header_table,
    read_table,
    read_umls,
)
from spacy_bioel.types import AnnotatedText, Concept

_HEAD_CHARS = 1 << 16
RecordT = TypeVar("RecordT", AnnotatedText, Concept)
# Maps each format to its reader and to a pattern for the start of its files, after white space.
# All patterns run in linear time.
Formats = Mapping[str, tuple[Callable[..., Iterator[RecordT]], str]]

# Formats are tried in this order.
CORPUS_FORMATS: Formats[AnnotatedText] = {
    "bioc-xml": (read_bioc_xml, r"(?=<)(?s:.*)<collection\b"),
    "bioc-json": (read_bioc_json, r'[\[{](?s:.*)"(documents|PubTator3)"\s*:\s*\['),
    "jsonl": (read_texts_jsonl, r'(\[\s*)?\{.*"(text|data)"\s*:'),
    "pubtator": (read_pubtator, r"[^|\t\n]+\|[ta]\|"),
    "brat": (read_brat, r"[TREMA]\d+\t[^\t\n ]+ [0-9]+ [0-9]+[;\t]"),
}
ONTOLOGY_FORMATS: Formats[Concept] = {
    "obo": (read_obo, r"format-version:|((?:[a-z!][^\n]*)?\n)*\[Term\]"),
    "owl": (read_owl, r'(?=<)(?s:.*)<(\w+:)?(RDF|Ontology)\b|\{(?s:.*)"graphs"\s*:'),
    "mesh": (read_mesh_xml, r"(?=<)(?s:.*)<(DescriptorRecordSet|SupplementalRecordSet)\b"),
    "cellxgene": (
        read_cellxgene_json,
        r'\{\s*"[^":_]+[:_][^"]+"\s*:\s*\{',  # Cellosaurus ids have "_": CVCL_0001
    ),
    "jsonl": (read_concepts_jsonl, r'(\[\s*)?\{\s*"\w+"\s*:'),
    "ctd": (read_ctd, r"#(?s:.*)\n# (Disease|Chemical)Name[\t,]"),
    "clinvar": (read_clinvar, r"#?AlleleID\tType\tName\t"),
    "ncbi-gene": (read_gene_info, r"#?tax_id\tGeneID\tSymbol\t"),
    "table": (read_header_table, r"(#[^\n]*\n)*[^\n]+[\t,;]"),
    "umls": (read_umls, r"(?!)"),  # a folder, recognised by its file names
    "omop": (read_athena, r"(?!)"),  # also a folder
}

_OPTIONS = {"table": {"columns", "synonym_separator"}, "omop": {"vocabularies"}}


def detect_corpus_format(path: StrPath) -> str:
    """Detect a corpus format (a key of CORPUS_FORMATS) from contents or, for BRAT, file names."""
    return "brat" if is_brat(path) else _detect(path, CORPUS_FORMATS)


def detect_ontology_format(path: StrPath) -> str:
    """Detect the format (a key of ONTOLOGY_FORMATS) of a file, or of a UMLS or OMOP folder."""
    for name, pattern in (("umls", "MRCONSO.RRF*"), ("omop", "CONCEPT*.csv*")):
        if any(Path(path).glob(pattern)):
            return name
    if Path(path).suffix.lower() in WORKBOOKS:
        return "table"
    return _detect(path, ONTOLOGY_FORMATS)


def read_corpus(
    path: StrPath, *, format: str | None = None, prefix: str = ""
) -> Iterator[AnnotatedText]:
    """Stream texts from a corpus in any of the CORPUS_FORMATS.

    format (str | None): A key of CORPUS_FORMATS; None detects the format from the contents.
    prefix (str): Vocabulary of ids without a prefix.
    """
    name = detect_corpus_format(path) if format is None else format
    return _reader_of(CORPUS_FORMATS, name)(path, prefix=prefix)


def read_ontology(
    path: StrPath,
    *,
    format: str | None = None,
    prefix: str = "",
    columns: Mapping[str, Column] | None = None,
    synonym_separator: str = "",
    vocabularies: Collection[str] = (),
) -> Iterator[Concept]:
    """Stream concepts from a source in any of the ONTOLOGY_FORMATS.

    format (str | None): A key of ONTOLOGY_FORMATS; None detects the format from the contents.
    prefix (str): Vocabulary of ids without a prefix; "": the reader's default.
    columns (Mapping[str, str | int | tuple[str, ...]] | None): Columns of a table (see
        `read_table`); None: not a table, or a table whose header contains the column keys.
    synonym_separator (str): Separator of the synonyms in a table's cells; "" detects the separator.
    vocabularies (Collection[str]): Vocabularies of OMOP to read; if empty, all are read.
    """
    name = format or ("table" if columns is not None else detect_ontology_format(path))
    reader = _reader_of(ONTOLOGY_FORMATS, name)
    options = {"synonym_separator": synonym_separator or None, "vocabularies": vocabularies or None}
    options |= {"columns": columns}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    if wrong := sorted(given.keys() - _OPTIONS.get(name, set())):
        raise BioelError(Errors.B135.format(path=path, options=", ".join(wrong), format=name))
    given |= {"prefix": prefix} if prefix else {}
    return (reader if columns is None else read_table)(path, **given)


def _detect(path: StrPath, formats: Formats[RecordT]) -> str:
    with open_text(path, errors="replace") as file:  # the reader will report bad bytes
        head = file.read(_HEAD_CHARS)
        # Strip white space here: matching a long run of it in a pattern would take quadratic time.
        while head and not (head := head.lstrip()):
            head = file.read(_HEAD_CHARS)
        head += file.read(_HEAD_CHARS - len(head))
    for name, (_, pattern) in formats.items():
        if re.match(pattern, head):
            return name
    raise BioelError(Errors.B133.format(path=path, known=", ".join(formats), head=head[:60]))


def _reader_of(formats: Formats[RecordT], name: str) -> Callable[..., Iterator[RecordT]]:
    if name not in formats:
        raise BioelError(Errors.B134.format(format=name, known=", ".join(formats)))
    return formats[name][0]
