"""Registry of readers, and detection of the format of a file from its contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.bioc import read_bioc_json, read_bioc_xml
from spacy_bioel.io.brat import is_brat, read_brat
from spacy_bioel.io.jsonl import read_concepts_jsonl, read_texts_jsonl
from spacy_bioel.io.nlm import read_gene_info, read_mesh_xml, read_umls
from spacy_bioel.io.ontology import read_cellxgene_json, read_obo
from spacy_bioel.io.open import open_text
from spacy_bioel.io.phrases import (
    read_biosyn_dictionary,
    read_concept_file,
    read_name_lists,
    read_phrase_table,
)
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.records import StrPath
from spacy_bioel.io.table import Column, read_ctd, read_header_table, read_table
from spacy_bioel.types import AnnotatedText, Concept

_HEAD = 1 << 16
T = TypeVar("T")


CORPUS_FORMATS: dict[str, Callable[..., Iterator[AnnotatedText]]] = {
    "pubtator": read_pubtator,
    "bioc-xml": read_bioc_xml,
    "bioc-json": read_bioc_json,
    "jsonl": read_texts_jsonl,
    "brat": read_brat,
    "biosyn": read_concept_file,
    "phrases": read_phrase_table,
}

ONTOLOGY_FORMATS: dict[str, Callable[..., Iterator[Concept]]] = {
    "obo": read_obo,
    "cellxgene": read_cellxgene_json,
    "name-lists": read_name_lists,
    "mesh": read_mesh_xml,
    "umls": read_umls,
    "ctd": read_ctd,
    "ncbi-gene": read_gene_info,
    "biosyn": read_biosyn_dictionary,
    "jsonl": read_concepts_jsonl,
    "table": read_header_table,
}

# From format to a pattern of the beginning of such files, after white space; the first match wins.
# Each pattern takes linear time.
_CORPUS_SIGNS = {
    "bioc-xml": r"(?=<)(?s:.*)<collection\b",
    "bioc-json": r'[\[{](?s:.*)"(documents|PubTator3)"\s*:\s*\[',
    "jsonl": r'\{.*"text"\s*:',
    "pubtator": r"[^|\t\n]+\|[ta]\|",
    "biosyn": r"[^|\t\n]*\|\|\d+\|\d+\|\|",
    "brat": r"[TREMA]\d+\t[^\t\n ]+ [0-9]+ [0-9]+[;\t]",
    "phrases": r"[^\t\n]+\t[^\n]+|(?=([^\n]*,)?Term,)([^\n]*,)?General SNOMED ID\b",
}
_ONTOLOGY_SIGNS = {
    "obo": (
        r"format-version:|((?:[a-z!][^\n]*)?\n)*\[Term\]|(?=<)(?s:.*)<(\w+:)?(RDF|Ontology)\b"
        r'|\{(?s:.*)"graphs"\s*:'
    ),
    "mesh": r"(?=<)(?s:.*)<(DescriptorRecordSet|SupplementalRecordSet)\b",
    "cellxgene": r'\{\s*"[^":_]+[:_][^"]+"\s*:\s*\{',  # Cellosaurus writes CVCL_0001
    "name-lists": r'\{\s*"[^"]+"\s*:\s*\[\s*\[',
    "jsonl": r'\{.*"(names|replaced_by)"\s*:',
    "ctd": r"#(?s:.*)\n# (Disease|Chemical)Name[\t,]",
    "ncbi-gene": r"#?tax_id\tGeneID\tSymbol\t",
    "biosyn": r"[^\t\n]+\|\|[^\n]+",
    "table": r"(#[^\n]*\n)*[^\n]+[\t,;]",
}


def detect_corpus_format(path: StrPath) -> str:
    """Detect the key in CORPUS_FORMATS, from the contents, or for BRAT from file names.

    RAISES BioelError: [B133] not recognised; errors of `open_text`.
    """
    return "brat" if is_brat(path) else _detect(path, _CORPUS_SIGNS)


def detect_ontology_format(path: StrPath) -> str:
    """Detect the key in ONTOLOGY_FORMATS of a file or a UMLS folder.

    RAISES BioelError: [B133] not recognised; errors of `open_text`.
    """
    if Path(path).is_dir() and any(Path(path).glob("MRCONSO.RRF*")):
        return "umls"
    return _detect(path, _ONTOLOGY_SIGNS)


def read_corpus(
    path: StrPath, *, format: str | None = None, prefix: str = ""
) -> Iterator[AnnotatedText]:
    """Stream the texts of a corpus in any format of CORPUS_FORMATS.

    format (str | None): A key of CORPUS_FORMATS; None: detected from the contents.
    prefix (str): Vocabulary of ids without a prefix.
    RAISES BioelError: [B133] not recognised, [B134] unknown format; errors of the reader.
    """
    name = detect_corpus_format(path) if format is None else format
    return _reader(CORPUS_FORMATS, name)(path, prefix=prefix)


def read_ontology(
    path: StrPath,
    *,
    format: str | None = None,
    prefix: str = "",
    columns: Mapping[str, Column] | None = None,
) -> Iterator[Concept]:
    """Stream the concepts of a source in any format of ONTOLOGY_FORMATS.

    format (str | None): A key of ONTOLOGY_FORMATS; None: detected from the contents.
    prefix (str): Vocabulary of ids without a prefix; "": the default of the reader.
    columns (Mapping[str, str | int | tuple[str, ...]] | None): Columns of a table, see
        `read_table`; None: not a table, or one whose header has these keys.
    RAISES BioelError: [B133] not recognised, [B134] unknown format, [B135] columns for another
        format; errors of the reader.
    """
    if columns is not None:
        if format not in (None, "table"):
            raise BioelError(Errors.B135.format(path=path, format=format))
        return read_table(path, columns=columns, prefix=prefix)
    name = detect_ontology_format(path) if format is None else format
    reader = _reader(ONTOLOGY_FORMATS, name)
    return reader(path, prefix=prefix) if prefix else reader(path)


def _detect(path: StrPath, signs: Mapping[str, str]) -> str:
    with open_text(path, errors="replace") as file:  # readers say where bytes are wrong
        head = file.read(_HEAD)
        # White space is skipped here, since patterns over a long run of it take quadratic time.
        while head and not (head := head.lstrip()):
            head = file.read(_HEAD)
        head += file.read(_HEAD - len(head))
    for name, pattern in signs.items():
        if re.match(pattern, head):
            return name
    raise BioelError(Errors.B133.format(path=path, known=", ".join(signs), head=head[:60]))


def _reader(readers: Mapping[str, T], name: str) -> T:
    if name not in readers:
        raise BioelError(Errors.B134.format(format=name, known=", ".join(readers)))
    return readers[name]
