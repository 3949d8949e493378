"""Formats of links, by the end of the file name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.text_format import TextFormat, Write

# Writes what is no text file: a folder, or a binary file.
PathFormat = Callable[[Path], AbstractContextManager[Write]]
# A name that ends otherwise, such as "-" or that of a pipe, has JSON lines.
SUFFIXES = (
    *(".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".pubtator", ".bioc.xml"),
    *(".bioc.json", ".ann", ".html"),
)
_JSON = {"", ".jsonl", ".ndjson", ".json"}
_WITH_FAILURES = {*_JSON, ".parquet"}


def suffix_of(path: str) -> str:
    """The end of a file name, of `SUFFIXES`; "" if the name has no dot.

    RAISES BioelError: [B198] on any other.
    """
    name = Path(path).name.lower()
    known = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not known and Path(path).suffix:
        raise BioelError(Errors.B198.format(path=path, known=", ".join(SUFFIXES)))
    return max(known, key=len, default="")


def has_xrefs(suffix: str) -> bool:
    """Whether a format has a place for cross-references."""
    return suffix in _JSON


def has_failures(suffix: str) -> bool:
    """Whether a format has a place for the errors of documents."""
    return suffix in _WITH_FAILURES


def format_of(suffix: str, *, xrefs: bool = False) -> TextFormat | PathFormat:
    """The format of a suffix of `suffix_of`.

    xrefs (bool): Also write the cross-references of candidates, where the format has them.
    """
    match suffix:
        case ".json":
            from spacy_bioel.export.json_rows import json_array

            return json_array(xrefs=xrefs)
        case ".csv" | ".tsv":
            from spacy_bioel.export.table import table

            return table("," if suffix == ".csv" else "\t")
        case ".pubtator":
            from spacy_bioel.export.pubtator import pubtator

            return pubtator()
        case ".bioc.xml":
            from spacy_bioel.export.bioc import bioc_xml

            return bioc_xml()
        case ".bioc.json":
            from spacy_bioel.export.bioc import bioc_json

            return bioc_json()
        case ".html":
            from spacy_bioel.export.page import page

            return page()
        case ".ann":
            from spacy_bioel.export.brat import writing_brat

            return writing_brat
        case ".parquet":
            return _writing_parquet
    from spacy_bioel.export.json_rows import json_lines

    return json_lines(xrefs=xrefs)


@contextmanager
def _writing_parquet(path: Path) -> Iterator[Write]:
    from spacy_bioel.distributed.parquet import writing_rows
    from spacy_bioel.distributed.rows import to_row

    with writing_rows(path) as write:
        yield lambda one: write(to_row(one))
