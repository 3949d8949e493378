"""Docs of spaCy as data frames and in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc, Span
from spacy.util import filter_spans, is_in_jupyter

from spacy_bioel.errors import needing
from spacy_bioel.export.links import LinkRow, link_rows
from spacy_bioel.pipeline.annotate import SPANS_KEY, get_links, split_ids
from spacy_bioel.text.display import address_of
from spacy_bioel.view import STYLE, render_document, render_page

if TYPE_CHECKING:
    from pandas import DataFrame

# A Doc, or a stream of them, or of pairs (Doc, id), as `nlp.pipe(..., as_tuples=True)` makes them.
Docs = Doc | Iterable[Doc | tuple[Doc, Any]]


def _with_ids(docs: Docs) -> Iterator[tuple[Doc, str | int]]:
    """Each Doc with its id: given, or of a corpus (`corpus.text_to_doc`), or its number, from 0."""
    for number, item in enumerate([docs] if isinstance(docs, Doc) else docs):
        if isinstance(item, Doc):
            yield item, item.user_data.get("bioel_id") or number
        else:
            yield item


def links_frame(docs: Docs, *, spans_key: str = SPANS_KEY) -> DataFrame:
    """Links of Docs as a data frame, one row a link.

    docs (Doc | Iterable): A Doc, or a stream of them, or of pairs (Doc, id), as `nlp.pipe(...,
        as_tuples=True)` makes them. No Doc is kept.
    spans_key (str): Span group of the links.
    RETURNS (DataFrame): Columns of `LinkRow`. "document" is the id, or the number of the Doc from
        0. Where there is no value, as with NIL, it is None, or NaN for a score.
    RAISES BioelError: [B192] without pandas.
    """
    with needing("pandas", "links_frame"):
        import pandas as pd
    rows = [
        row
        for doc, id in _with_ids(docs)
        for row in link_rows(id, doc.text, get_links(doc, spans_key))
    ]
    types = {"start": "int64", "end": "int64", "score": "float64"}
    return pd.DataFrame(rows, columns=LinkRow._fields, dtype=object).astype(types)


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
        for doc, id in _with_ids(docs)
    ]
    part = f'{STYLE}<div class="bioel">{"".join(sections)}</div>'
    html = render_page(sections, title=title) if page else part
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
