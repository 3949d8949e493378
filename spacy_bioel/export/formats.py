"""Formats of links, by the ends of file names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from spacy_bioel.distributed.parquet import writing_rows
from spacy_bioel.distributed.rows import to_row
from spacy_bioel.export.bioc import bioc_json, bioc_xml
from spacy_bioel.export.brat import writing_brat
from spacy_bioel.export.links import TextFormat, Write
from spacy_bioel.export.pubtator import pubtator
from spacy_bioel.export.rows import json_array, json_lines, page, table

# Writes what is no text file: a folder, or a binary file.
PathFormat = Callable[[Path], AbstractContextManager[Write]]


def format_of(
    suffix: str, *, xrefs: bool = False, formulas: bool = True
) -> TextFormat | PathFormat:
    """The format of an end of `suffixes.suffix_of`.

    xrefs (bool): Also write the cross-references of candidates, where the format has them.
    formulas (bool): As of `table`.
    """
    match suffix:
        case ".json":
            return json_array(xrefs=xrefs)
        case ".csv":
            return table(",", formulas=formulas)
        case ".tsv":
            return table("\t", formulas=formulas)
        case ".pubtator":
            return pubtator()
        case ".bioc.xml":
            return bioc_xml()
        case ".bioc.json":
            return bioc_json()
        case ".ann":
            return writing_brat
        case ".html":
            return page()
        case ".parquet":
            return _writing_parquet
    return json_lines(xrefs=xrefs)


@contextmanager
def _writing_parquet(path: Path) -> Iterator[Write]:
    with writing_rows(path) as write:
        yield lambda one: write(to_row(one))
