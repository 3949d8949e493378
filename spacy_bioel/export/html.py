"""Convert linked texts to HTML pages, notebook output, table rows and data frames.

An HTML page holds its documents as JSON, and scripts draw a few documents at a time, so that
browsers open pages of any size. In notebooks, which may forbid scripts, documents are static HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from html import escape as escape_html
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc, Span
from spacy.util import filter_spans, is_in_jupyter

from spacy_bioel.doc import get_links, split_kb_id
from spacy_bioel.errors import BioelError, needing
from spacy_bioel.export.pages import PAGES, address_of
from spacy_bioel.export.rows import LinkedText, to_row
from spacy_bioel.registered import declared_facts
from spacy_bioel.report import (
    CANDIDATE_COLUMNS,
    SPAN_COLUMNS,
    Report,
    mention_parts,
    pieces,
    span_rows,
)
from spacy_bioel.settings import SPANS_KEY
from spacy_bioel.types import Candidate, Link, opened, releases_of

if TYPE_CHECKING:
    from pandas import DataFrame


# Template for a page fragment; its styles apply only to elements with the class "bioel".
_DOCUMENT: Any = PAGES.get_template("document.html").module
STYLE = str(_DOCUMENT.style())
_MAX_LISTED = 30  # maximum number of names (and of cross-references) shown for a concept


def start_page(title: str = "Linked texts") -> str:
    """Return the start of a page that is written one text at a time and ends with `END_OF_PAGE`."""
    return _split_page(title)[0]


def _split_page(title: str) -> list[str]:
    return PAGES.get_template("links.html").render(title=title).split("<!-- documents -->\n")


END_OF_PAGE = _split_page("")[1]


def page_part(linked: LinkedText) -> str:
    """Format a linked text for a page of linked texts, as JSON in an HTML element.

    The preferred names and the entries of linked concepts are included if the knowledge base is
    open.
    """
    concepts = {}
    for link in linked.links:
        for candidate in linked_candidates(link):
            with suppress(BioelError, KeyError):
                concepts[candidate.id] = asdict(opened(candidate.kb)[candidate.id])
    for concept in concepts.values():
        concept["name"] = concept["names"][0]
        for field in ("names", "xrefs"):
            concept[field] = concept[field][:_MAX_LISTED]
    kbs = {candidate.kb for link in linked.links for candidate in link.candidates}
    releases = [release for kb in sorted(kbs) for release in releases_of(kb)]
    about = {**to_row(linked, explain=True), "concepts": list(concepts.values()), "kbs": releases}
    # Escape "<", so that no text can close the script element.
    text = json.dumps(about, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" class="document">{text}</script>\n'


def render_document(text: str, links: Sequence[Link], *, title: str = "") -> str:
    """Render a document without scripts: its text with mentions marked, and a candidate table.

    Preferred names are shown if the knowledge base is open.

    links (Sequence[Link]): Links in any order, which may overlap.
    RETURNS (str): An HTML section. In your own page, include `STYLE` and wrap the section in an
        element with the class "bioel".
    """
    kbs = {candidate.kb for link in links for candidate in link.candidates}
    releases = [release for kb in sorted(kbs) for release in releases_of(kb)]
    return str(_DOCUMENT.document(text, links, _split_at_mentions(text, links), title, releases))


def _split_at_mentions(
    text: str, links: Sequence[Link]
) -> Iterator[tuple[str, str | None, str, list[Link]]]:
    """Split a text at its mention boundaries.

    YIELDS (tuple): A piece, the label of the innermost mention around it or None, the CSS class for
        its facts or "", and the mentions that end with the piece.
    """
    waiting = sorted(links, key=lambda link: (link.start, -link.end), reverse=True)
    inside: list[Link] = []
    declared = list(declared_facts().items())
    order = [css for _, fact in declared for css in fact.css_classes]
    bounds = {0, len(text), *(link.start for link in links), *(link.end for link in links)}
    for start, end in pairwise(sorted(bounds)):
        inside = [link for link in inside if link.end > start]
        while waiting and waiting[-1].start <= start:
            inside.append(waiting.pop())
        facts = [(fact, link.facts.get(name)) for link in inside for name, fact in declared]
        found = {fact.css_class(value) for fact, value in facts if value is not None}
        css_class = next(filter(found.__contains__, order), "")
        label = inside[-1].label if inside else None
        yield text[start:end], label, css_class, [link for link in inside if link.end == end]


# Facts from the built-in rules; every table has columns for them.
FACTS = ("hgvs", "component", "gene")


def columns_of(facts: Iterable[str]) -> list[str]:
    """Return the column names for a table of links.

    facts (Iterable[str]): Names of the facts that have a column.
    """
    place = ("document", "start", "end", "text", "label")
    concept = ("id", "preferred_name", "name", "score", "evidence")
    declared = (column for fact in declared_facts().values() for column in fact.columns)
    return [*place, *concept, *facts, *declared]


def link_rows(document: str | int, text: str, links: Sequence[Link]) -> Iterator[dict[str, Any]]:
    """Yield a row for each link: a dict with the columns of `columns_of` and all facts.

    The ids and names of a composite are joined by "|", and its score is the lowest score of a part.
    Unknown values are None: the concept of NIL, the preferred name if the knowledge base is not
    open, and the columns of declared facts that the link lacks.

    document (str | int): Id of the document, or its number.
    """
    for link in links:
        linked = linked_candidates(link)
        yield {
            "document": document,
            "start": link.start,
            "end": link.end,
            "text": text[link.start : link.end],
            "label": link.label,
            "id": "|".join(link.ids) or None,
            "preferred_name": _join_nonempty([c.preferred_name for c in linked]),
            "name": _join_nonempty([c.name for c in linked]),
            "score": min((c.score for c in linked), default=None),
            "evidence": _join_nonempty([c.evidence for c in linked]),
            **plain_facts(link),
            **{
                column: cell(link.facts[name]) if name in link.facts else None
                for name, fact in declared_facts().items()
                for column, cell in fact.columns.items()
            },
        }


def plain_facts(link: Link) -> dict[str, Any]:
    """Return a link's undeclared facts; outputs have one column or key for each."""
    return {name: fact for name, fact in link.facts.items() if name not in declared_facts()}


def linked_candidates(link: Link) -> list[Candidate]:
    """Return the candidates for a link's ids, in the same order, or [] for NIL."""
    by_id = {candidate.id: candidate for candidate in link.candidates}
    return [by_id[id] for id in link.ids if id in by_id]


def _join_nonempty(parts: Sequence[str]) -> str | None:
    return "|".join(parts) if any(parts) else None


# A Doc, or a stream of Docs or of (Doc, id) pairs from `nlp.pipe(..., as_tuples=True)`.
Docs = Doc | Iterable[Doc | tuple[Doc, Any]]


def _with_ids(docs: Docs) -> Iterator[tuple[Doc, str | int]]:
    """Yield Docs with their ids (from pairs or `corpus.text_to_doc`), falling back to the index."""
    for number, item in enumerate([docs] if isinstance(docs, Doc) else docs):
        if isinstance(item, Doc):
            yield item, item.user_data.get("bioel_id") or number
        else:
            yield item


def links_frame(docs: Docs, *, spans_key: str = SPANS_KEY) -> DataFrame:
    """Return the links in Docs as a data frame with one row per link.

    docs (Doc | Iterable): A Doc, or a stream of Docs or of (Doc, id) pairs, as returned by
        `nlp.pipe(..., as_tuples=True)`. No Doc is kept in memory.
    spans_key (str): Span group of the links.
    RETURNS (DataFrame): The columns of `columns_of`. "document" is the id or, if there is none, the
        index of the Doc. Missing values, such as the id of NIL, are None; a missing score is NaN.
    RAISES BioelError: [B192] if pandas is not installed.
    """
    with needing("pandas", "links_frame"):
        import pandas as pd
    rows = [
        row
        for doc, id in _with_ids(docs)
        for row in link_rows(id, doc.text, get_links(doc, spans_key))
    ]
    fields = columns_of(())
    others = [name for row in rows for name in row if name not in fields]
    columns = columns_of(dict.fromkeys([*FACTS, *others]))
    types = {"start": "int64", "end": "int64", "score": "float64"}
    cells = [[row.get(name) for name in columns] for row in rows]
    return pd.DataFrame(cells, columns=columns, dtype=object).astype(types)


def render_report(report: Report, *, page: bool) -> str:
    """Render an explanation as a whole page or, like `render_document`, as a page fragment."""
    html = PAGES.get_template("explain.html").render(
        report=report,
        pieces=pieces(report),
        span_columns=("characters", *SPAN_COLUMNS[2:]),
        spans=[(f"{start} to {end}", *cells) for start, end, *cells in span_rows(report)],
        candidate_columns=CANDIDATE_COLUMNS,
        mentions=mention_parts(report),
    )
    return html if page else html.partition("<main>")[2].partition("</main>")[0]


def render(
    docs: Docs | Report,
    *,
    spans_key: str = SPANS_KEY,
    page: bool = False,
    title: str = "Linked texts",
    jupyter: bool | None = None,
) -> str | None:
    """Render linked Docs as HTML: the texts with mentions marked, and tables of candidates. An
    explanation is rendered in the same way, and also lists the spans that were considered.

    Ids link to their concept pages. The preferred name is shown with the matched name. In a
    notebook, the result is displayed.

    docs (Doc | Iterable | Report): A Doc, several Docs, (Doc, id) pairs, or an explanation from
        `spacy_bioel.explain`.
    spans_key (str): Span group of the links.
    page (bool): Return a complete page, to be written to a file; False: return a page fragment.
    title (str): Title of a page of Docs.
    jupyter (bool | None): Whether to display the result; None displays it only in a notebook.
    RETURNS (str | None): HTML; None if the HTML was displayed.
    """
    if isinstance(docs, Report):
        html = render_report(docs, page=page)
    else:
        several = not isinstance(docs, Doc)
        linked = [
            LinkedText(str(id) if several else "", doc.text, tuple(get_links(doc, spans_key)))
            for doc, id in _with_ids(docs)
        ]
        if page:
            html = f"{start_page(title)}{''.join(map(page_part, linked))}{END_OF_PAGE}"
        else:
            html = "".join(render_document(d.text or "", d.links, title=d.id or "") for d in linked)
    if not page:
        html = f'{STYLE}<div class="bioel">{html}</div>'
    if jupyter or (jupyter is None and is_in_jupyter()):
        from IPython.display import HTML, display

        # The class prevents MathJax from reading "$" as the start of a formula.
        display(HTML(f'<div class="tex2jax_ignore">{html}</div>'))
        return None
    return html


def displacy_data(doc: Doc, *, spans_key: str = SPANS_KEY) -> dict[str, Any]:
    """Convert a linked Doc to data for `displacy.render(data, style="span", manual=True)`.

    Ids link to their concept pages in any vocabulary; displaCy itself can link to only one
    vocabulary. "ents" (for style "ent") has only mentions without overlaps, preferring longer ones.

    RETURNS (dict): "text", "tokens", "spans", "ents" and "title". Labels and ids are escaped,
        because displaCy does not escape them.
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
    ids = split_kb_id(span.kb_id_)
    return {
        "start": span.start_char,
        "end": span.end_char,
        "start_token": span.start,
        "end_token": span.end,
        "label": escape_html(span.label_),
        "kb_id": escape_html("|".join(ids)),  # "" for NIL: displaCy would make "NIL" a link.
        # For a composite, link to the first id's concept page; displaCy uses "#" if there is none.
        "kb_url": escape_html(address_of(ids[0]) if ids else "") or "#",
    }
