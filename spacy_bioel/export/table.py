"""Links as a table, one row each: CSV and TSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import Any

from spacy_bioel.export.links import LinkRow, link_rows
from spacy_bioel.export.text_format import TextFormat

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
