"""Linked Docs as HTML, in notebooks and for files, and as data for displaCy."""

from __future__ import annotations

from html import escape
from typing import Any

from spacy.tokens import Doc, Span
from spacy.util import filter_spans, is_in_jupyter

from spacy_bioel.export.docs import Docs, with_ids
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import SPANS_KEY, split_ids
from spacy_bioel.text.addresses import address_of
from spacy_bioel.view import STYLE, render_document, render_page


def render(
    docs: Docs,
    *,
    spans_key: str = SPANS_KEY,
    page: bool = False,
    title: str = "Linked texts",
    jupyter: bool | None = None,
) -> str | None:
    """Render linked Docs: their texts with the mentions, and tables of candidates.

    Ids are links to the pages of their concepts, and the preferred name stands beside the one that
    matched. In a notebook the result is shown.

    docs (Doc | Iterable): A Doc, or several, or pairs (Doc, id).
    spans_key (str): Span group of the links.
    page (bool): Make a whole page, to be written to a file; else a part of one.
    title (str): Title of the page.
    jupyter (bool | None): Show it in a notebook; None: if this is one.
    RETURNS (str | None): HTML; None if it was shown.
    """
    several = not isinstance(docs, Doc)
    sections = [
        render_document(doc.text, get_links(doc, spans_key), title=str(id) if several else "")
        for doc, id in with_ids(docs)
    ]
    if page:
        html = render_page(sections, title=title)
    else:
        html = f'{STYLE}<div class="bioel">{"".join(sections)}</div>'
    if jupyter or (jupyter is None and is_in_jupyter()):
        from IPython.display import HTML, display

        display(HTML(f'<div class="tex2jax_ignore">{html}</div>'))  # "$" is no formula
        return None
    return html


def displacy_data(doc: Doc, *, spans_key: str = SPANS_KEY) -> dict[str, Any]:
    """Data of a linked Doc for `displacy.render(data, style="span", manual=True)`, or "ent".

    Ids are links to the pages of their concepts, which displaCy makes of a Doc for one vocabulary
    only. For "ent" there are mentions that do not overlap, the longest first.

    RETURNS (dict): "text", "tokens", "spans", "ents" and "title". Labels and ids are escaped, which
        displaCy leaves out.
    """
    spans = list(doc.spans.get(spans_key, ()))
    return {
        "text": doc.text,
        "tokens": [token.text for token in doc],
        "spans": [_displacy_span(span) for span in spans],
        "ents": [_displacy_span(span) for span in filter_spans(spans)],
        "title": None,
    }


def _displacy_span(span: Span) -> dict[str, Any]:
    ids = split_ids(span.kb_id_)
    return {
        "start": span.start_char,
        "end": span.end_char,
        "start_token": span.start,
        "end_token": span.end,
        "label": escape(span.label_),
        "kb_id": escape("|".join(ids)),  # "" for NIL, which displaCy would make a link of
        # Of a composite, the first; "#" is displaCy's own for no page.
        "kb_url": escape(address_of(ids[0]) if ids else "") or "#",
    }
