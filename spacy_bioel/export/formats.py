"""Formats of links, by the ends of file names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from spacy_bioel.distributed.parquet import writing_rows
from spacy_bioel.distributed.rows import LinkedText, to_row
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.corpora import BIOC_JSON, BIOC_XML, PUBTATOR, writing_brat
from spacy_bioel.export.links import LinkRow, TextFormat, Write, link_rows
from spacy_bioel.view import END_OF_PAGE, render_document, start_page

# Writes what is no text file: a folder, or a binary file.
PathFormat = Callable[[Path], AbstractContextManager[Write]]

SUFFIXES = (
    *(".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".bioc.xml", ".bioc.json"),
    *(".pubtator", ".ann", ".html"),
)
# Those that have a place for cross-references. "" is that of a name without an end, such as "-" or
# that of a pipe: JSON lines.
WITH_XREFS = frozenset({"", ".jsonl", ".ndjson", ".json"})
# Those that have a place for what the text says of a mention.
WITH_CONTEXT = WITH_XREFS | {".csv", ".tsv", ".html"}
# Those that have a place for the errors of documents.
WITH_FAILURES = WITH_XREFS | {".parquet"}
# Spreadsheets take a cell that begins like this for a formula, and run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def suffix_of(path: str) -> str:
    """Return the end of a file name, of `SUFFIXES`; "" if the name has no dot.

    RAISES BioelError: [B198] on any other.
    """
    name = Path(path).name.lower()
    known = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not known and Path(path).suffix:
        raise BioelError(Errors.B198.format(path=path, known=", ".join(SUFFIXES)))
    return max(known, key=len, default="")


def format_of(
    suffix: str, *, xrefs: bool = False, formulas: bool = True
) -> TextFormat | PathFormat:
    """Return the format of an end of `suffix_of`.

    xrefs (bool): Also write the cross-references of candidates, where the format has them.
    formulas (bool): Whether cells of CSV and TSV may be formulas; False: they get an apostrophe
        before them.
    """

    def json_of(one: LinkedText) -> str:
        return json.dumps(to_row(one, xrefs=xrefs), ensure_ascii=False)

    match suffix:
        case ".json":
            return TextFormat(json_of, "[\n", between=",\n", end="\n]\n", has_failures=True)
        case ".csv":
            return _table(",", formulas=formulas)
        case ".tsv":
            return _table("\t", formulas=formulas)
        case ".pubtator":
            return PUBTATOR
        case ".bioc.xml":
            return BIOC_XML
        case ".bioc.json":
            return BIOC_JSON
        case ".ann":
            return writing_brat
        case ".html":
            return TextFormat(_section, start=start_page(), end=END_OF_PAGE)
        case ".parquet":
            return _writing_parquet
    return TextFormat(lambda one: json_of(one) + "\n", has_failures=True)


def _table(delimiter: str, *, formulas: bool) -> TextFormat:
    """The columns of `LinkRow`; cells are quoted where they need it."""

    def cell(value: object) -> object:
        is_formula = isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if is_formula and not formulas else value

    def text_of(rows: Iterable[Iterable[object]]) -> str:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
        return out.getvalue()

    return TextFormat(
        lambda one: text_of(
            map(cell, row) for row in link_rows(one.id or "", one.text or "", one.links)
        ),
        start=text_of([LinkRow._fields]),
    )


def _section(one: LinkedText) -> str:
    return render_document(one.text or "", one.links, title=one.id or "") + "\n"


@contextmanager
def _writing_parquet(path: Path) -> Iterator[Write]:
    with writing_rows(path) as write:
        yield lambda one: write(to_row(one))
