"""Links as a table, one row each: CSV and TSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import Any

from spacy_bioel.export.links import LinkRow, link_rows
from spacy_bioel.export.text_format import TextFormat


def table(delimiter: str) -> TextFormat:
    """CSV or TSV with the columns of `LinkRow`; cells are quoted where they need it."""
    write = partial(_rows, delimiter=delimiter)
    return TextFormat(
        lambda one: write(link_rows(one.id or "", one.text or "", one.links)),
        start=write([LinkRow._fields]),
    )


def _rows(rows: Iterable[Iterable[Any]], *, delimiter: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()
