"""Formats with a row or a line a link or document: CSV and TSV, JSON, and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from spacy_bioel.distributed.rows import LinkedText, to_row
from spacy_bioel.export.links import LinkRow, TextFormat, link_rows
from spacy_bioel.view import END_OF_PAGE, render_document, start_page

# Spreadsheets take a cell that begins like this for a formula, and run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def table(delimiter: str, *, formulas: bool = True) -> TextFormat:
    """CSV or TSV with the columns of `LinkRow`; cells are quoted where they need it.

    formulas (bool): Whether cells may be formulas; False: they get an apostrophe before them.
    """
    write = partial(_rows, delimiter=delimiter, formulas=formulas)
    return TextFormat(
        lambda one: write(link_rows(one.id or "", one.text or "", one.links)),
        start=write([LinkRow._fields]),
    )


def _rows(rows: Iterable[Iterable[Any]], *, delimiter: str, formulas: bool) -> str:
    out = io.StringIO()
    if not formulas:
        rows = (map(_as_text, row) for row in rows)
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _as_text(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def json_lines(*, xrefs: bool = False) -> TextFormat:
    """JSON lines of the rows of `distributed.rows.to_row`."""
    return TextFormat(lambda one: _object(one, xrefs) + "\n", has_failures=True)


def json_array(*, xrefs: bool = False) -> TextFormat:
    """The same objects as one array."""
    return TextFormat(
        lambda one: _object(one, xrefs),
        start="[\n",
        between=",\n",
        end="\n]\n",
        has_failures=True,
    )


def _object(one: LinkedText, xrefs: bool) -> str:
    return json.dumps(to_row(one, xrefs=xrefs), ensure_ascii=False)


def page() -> TextFormat:
    """A page that needs no other file, see `view`."""
    return TextFormat(_section, start=start_page(), end=END_OF_PAGE)


def _section(one: LinkedText) -> str:
    return render_document(one.text or "", one.links, title=one.id or "") + "\n"
