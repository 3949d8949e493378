"""A self-contained HTML page of linked texts: displaCy's spans, and the candidates below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from spacy import displacy
from spacy.tokens import Doc

from spacy_bioel.types import Candidate, Link

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem }}
section {{ border-top: 1px solid #ccc; margin-top: 2rem }}
table {{ border-collapse: collapse; font-size: 0.85rem; margin-top: 1rem; width: 100% }}
th, td {{ border-bottom: 1px solid #ddd; padding: 0.3rem 0.6rem; text-align: left }}
td {{ vertical-align: top }}
</style>
</head>
<body>
<h1>{title}</h1>
{sections}
</body>
</html>
"""
_HEADER = "<tr><th>Mention</th><th>Label</th><th>Linked to</th><th>Candidates</th></tr>"


def render_page(sections: Iterable[str], *, title: str = "Linked texts") -> str:
    """A whole page from what `render_document` returned."""
    return _PAGE.format(title=escape(title), sections="\n".join(sections))


def render_document(
    doc: Doc, links: Sequence[Link], *, title: str = "", spans_key: str = "bioel"
) -> str:
    """One document: its text with the linked spans, and a table of candidates.

    links (Sequence[Link]): What `get_links(doc)` returned.
    RETURNS (str): An HTML section; everything from the document is escaped.
    """
    heading = f"<h2>{escape(title)}</h2>"
    if not links:
        return f"<section>{heading}<p>{escape(doc.text)}</p></section>"
    options = {"spans_key": spans_key}
    text = displacy.render(doc, style="span", options=options, page=False, jupyter=False)
    rows = "".join(_row(doc.text, link) for link in links)
    return f"<section>{heading}{text}<table>{_HEADER}{rows}</table></section>"


def _row(text: str, link: Link) -> str:
    candidates = "<br>".join(_describe(candidate) for candidate in link.candidates)
    cells = (text[link.start : link.end], link.label, " | ".join(link.ids) or "NIL")
    return "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + f"<td>{candidates}</td></tr>"


def _describe(candidate: Candidate) -> str:
    found = f"{candidate.id} {candidate.name} ({candidate.score:.2f}, {candidate.evidence})"
    return escape(found)
