"""Linked documents as an HTML page."""

from __future__ import annotations

from spacy_bioel.distributed.rows import LinkedText
from spacy_bioel.export.text_format import TextFormat
from spacy_bioel.view import END_OF_PAGE, render_document, start_page


def page() -> TextFormat:
    """A page that needs no other file, see `view`."""
    return TextFormat(_section, start=start_page(), end=END_OF_PAGE)


def _section(one: LinkedText) -> str:
    return render_document(one.text or "", one.links, title=one.id or "") + "\n"
