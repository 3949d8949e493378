"""Self-contained HTML page of linked texts: mentions marked in their text, candidates below.

All values of documents and knowledge bases are escaped. (displaCy escapes texts, but neither labels
nor ids.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from spacy_bioel.types import Candidate, Link

_START = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem }}
section {{ border-top: 1px solid #ccc; margin-top: 2rem }}
p {{ line-height: 2; white-space: pre-wrap }}
mark {{ background: #dbeafe; padding: 0.2rem 0 }}
mark + sup {{ color: #555; font-size: 0.7rem; margin-right: 0.2rem }}
table {{ border-collapse: collapse; font-size: 0.85rem; margin-top: 1rem; width: 100% }}
th, td {{ border-bottom: 1px solid #ddd; padding: 0.3rem 0.6rem; text-align: left }}
td {{ vertical-align: top }}
</style>
</head>
<body>
<h1>{title}</h1>
"""
END_OF_PAGE = "</body>\n</html>\n"
_HEADER = "<tr><th>Mention</th><th>Label</th><th>Linked to</th><th>Candidates</th></tr>"
_NIL = "NIL"


def render_page(sections: Iterable[str], *, title: str = "Linked texts") -> str:
    """Assemble a page from sections of `render_document`."""
    return start_page(title) + "".join(f"{section}\n" for section in sections) + END_OF_PAGE


def start_page(title: str = "Linked texts") -> str:
    """Start of a page that is written section by section; its end is `END_OF_PAGE`."""
    return _START.format(title=escape(title))


def render_document(text: str, links: Sequence[Link], *, title: str = "") -> str:
    """Render a document: its text with the mentions, and a table of candidates.

    links (Sequence[Link]): Links in any order, which may overlap.
    RETURNS (str): An HTML section.
    """
    heading = f"<h2>{escape(title)}</h2>"
    marked = f"<p>{''.join(_marked(text, links))}</p>"
    rows = "".join(_row(text, link) for link in links)
    table = f"<table>{_HEADER}{rows}</table>" if links else ""
    return f"<section>{heading}{marked}{table}</section>"


def _marked(text: str, links: Sequence[Link]) -> Iterator[str]:
    """Text split at the borders of mentions, with label and ids after each mention."""
    ending: dict[int, list[Link]] = {}
    change = dict.fromkeys((0, len(text)), 0)  # change of the nesting depth at each border
    for link in links:
        ending.setdefault(link.end, []).append(link)
        change[link.start] = change.get(link.start, 0) + 1
        change[link.end] = change.get(link.end, 0) - 1
    depth = 0
    for start, end in pairwise(sorted(change)):
        depth += change[start]
        piece = escape(text[start:end])
        yield f"<mark>{piece}</mark>" if depth else piece
        yield "".join(f"<sup>{escape(_caption(link))}</sup>" for link in ending.get(end, ()))


def _caption(link: Link) -> str:
    return f"{link.label} {_ids(link)}".strip()


def _ids(link: Link) -> str:
    return " | ".join(link.ids) or _NIL


def _row(text: str, link: Link) -> str:
    candidates = "<br>".join(_describe(candidate) for candidate in link.candidates)
    cells = (text[link.start : link.end], link.label, _ids(link))
    return "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + f"<td>{candidates}</td></tr>"


def _describe(candidate: Candidate) -> str:
    found = f"{candidate.id} {candidate.name} ({candidate.score:.2f}, {candidate.evidence})"
    return escape(found)
