"""Linked documents as JSON, one object each: lines of them, or one array."""

from __future__ import annotations

import json

from spacy_bioel.distributed.rows import LinkedText, to_row
from spacy_bioel.export.text_format import TextFormat


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
