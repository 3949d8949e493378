"""Ends of file names, and what their formats have a place for. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from spacy_bioel.errors import BioelError, Errors

SUFFIXES = (
    *(".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".bioc.xml", ".bioc.json"),
    *(".pubtator", ".ann", ".html"),
)
# "" is that of a name without an end, such as "-" or that of a pipe: JSON lines.
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
