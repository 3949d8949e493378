"""Self-contained HTML of linked texts: mentions marked in their text, candidates in a table below.

All values of documents and knowledge bases are escaped. (displaCy escapes texts, but neither labels
nor ids.) Ids are links to the pages of their concepts, see `address_of`. The colours follow the
reader's choice of dark or light.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from spacy_bioel.text.context import describe
from spacy_bioel.text.display import address_of, hgvs_of, reason_of
from spacy_bioel.types import Candidate, Link, preferred_name, releases_of

# Each rule says which colours it means, so that it holds within other pages too.
STYLE = """<style>
.bioel {
  --paper: #fff; --ink: #1f2328; --faint: #57606a; --line: #d0d7de;
  --mark: #dbeafe; --link: #0550ae;
  background: var(--paper); color: var(--ink); color-scheme: light dark;
  font: 16px/1.5 system-ui, sans-serif;
}
@media (prefers-color-scheme: dark) {
  .bioel {
    --paper: #0d1117; --ink: #e6edf3; --faint: #9da7b3; --line: #3d444d;
    --mark: #1c3d6b; --link: #79c0ff;
  }
}
body.bioel { margin: 0 auto; max-width: 60rem; padding: 1rem }
.bioel section { border-top: 1px solid var(--line); margin-top: 2rem }
.bioel p { line-height: 2; white-space: pre-wrap }
.bioel mark { background: var(--mark); color: var(--ink); padding: 0.2rem 0 }
.bioel mark.negated { text-decoration: line-through }
.bioel mark.other { opacity: 0.7 }
.bioel mark + sup { color: var(--faint); font-size: 0.7rem; margin-right: 0.2rem }
.bioel a { color: var(--link) }
.bioel a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
.bioel .wide { overflow-x: auto }
.bioel table { border-collapse: collapse; font-size: 0.85rem; margin: 1rem 0; width: 100% }
.bioel caption { color: var(--faint); text-align: left }
.bioel th, .bioel td {
  background: none; border-bottom: 1px solid var(--line); color: var(--ink);
  padding: 0.3rem 0.6rem; text-align: left; vertical-align: top
}
.bioel ol { list-style: none; margin: 0; padding: 0 }
.bioel summary { color: var(--faint); cursor: pointer }
.bioel small { color: var(--faint); font-size: inherit }
</style>
"""
_START = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{style}</head>
<body class="bioel">
<main>
<h1>{title}</h1>
"""
END_OF_PAGE = "</main>\n</body>\n</html>\n"


def render_page(sections: Iterable[str], *, title: str = "Linked texts") -> str:
    """Assemble a page from sections of `render_document`."""
    return start_page(title) + "".join(f"{section}\n" for section in sections) + END_OF_PAGE


def start_page(title: str = "Linked texts") -> str:
    """Start of a page that is written section by section; its end is `END_OF_PAGE`."""
    return _START.format(title=escape(title), style=STYLE)


def render_document(text: str, links: Sequence[Link], *, title: str = "") -> str:
    """Render a document: its text with the mentions, and a table of candidates.

    Preferred names are read where the knowledge base is open, and left out where it is not.

    links (Sequence[Link]): Links in any order, which may overlap.
    RETURNS (str): An HTML section; within a page of another start, `STYLE` and an element of the
        class "bioel" belong round it.
    """
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    marked = f"<p>{''.join(_marked(text, links))}</p>"
    if not links:
        return f"<section>{heading}{marked}</section>"
    caption = f"Mentions of {title}" if title else "Mentions"
    columns = ("Mention", "Label", "Linked to", "Candidates")
    table = table_of(caption, columns, (_row(text, link) for link in links))
    return f"<section>{heading}{marked}{table}{_releases(links)}</section>"


def _releases(links: Sequence[Link]) -> str:
    """The knowledge bases that candidates are from, where they are open."""
    known = {candidate.kb for link in links for candidate in link.candidates}
    found = [release for kb in sorted(known) for release in releases_of(kb)]
    items = "".join(f"<li>{escape(release)}</li>" for release in found)
    summary = "<summary>Knowledge bases</summary>"
    return f"<details>{summary}<ul>{items}</ul></details>" if found else ""


def _marked(text: str, links: Sequence[Link]) -> Iterator[str]:
    """Text split at the borders of mentions, with label and ids after each mention."""
    ending: dict[int, list[Link]] = {}
    change = dict.fromkeys((0, len(text)), 0)  # change of the nesting depth at each border
    said: dict[int, str] = {}  # where a mention begins, the class of what is said of it
    for link in links:
        if link.context and not link.context.is_affirmed:
            said[link.start] = "negated" if link.context.negated else "other"
        ending.setdefault(link.end, []).append(link)
        change[link.start] = change.get(link.start, 0) + 1
        change[link.end] = change.get(link.end, 0) - 1
    depth = 0
    for start, end in pairwise(sorted(change)):
        depth += change[start]
        piece = escape(text[start:end])
        of = f' class="{said[start]}"' if start in said else ""
        yield f"<mark{of}>{piece}</mark>" if depth else piece
        for link in ending.get(end, ()):
            yield f"<sup>{f'{escape(link.label)} {_ids(link)}'.strip()}</sup>"


def _ids(link: Link) -> str:
    return " | ".join(map(linked_id, link.ids)) or "NIL"


def linked_id(id: str) -> str:
    """An id as a link to the page of its concept; as text where that is not known."""
    address = address_of(id)
    return f'<a href="{escape(address)}">{escape(id)}</a>' if address else escape(id)


def table_of(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML; the first of a row is its header."""
    header = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    # What scrolls has to be reached by the keyboard.
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(text: str, link: Link) -> list[str]:
    mention = text[link.start : link.end]
    hgvs = hgvs_of(mention, link.label)
    candidates = "".join(f"<li>{_describe(candidate)}</li>" for candidate in link.candidates)
    why = f"<details><summary>Why</summary>{escape(reason_of(link))}</details>"
    said = describe(link.context, text) if link.context else ""
    why = (f" <small>{escape(said)}</small>" if said else "") + why
    linked = f"{_ids(link)}{f' {escape(hgvs)}' if hgvs else ''}{why}"
    listed = f"<ol>{candidates}</ol>" if candidates else ""
    return [escape(mention), escape(link.label), linked, listed]


def _describe(candidate: Candidate) -> str:
    """Id, preferred name, the name that matched if it is another, score and evidence."""
    preferred = preferred_name(candidate.kb, candidate.id) or candidate.name
    matched = f" (matched: {candidate.name})" if preferred != candidate.name else ""
    details = f"{candidate.score:.2f}, {candidate.evidence}"
    found = f"{escape(preferred)}{escape(matched)}"
    return f"{linked_id(candidate.id)} {found} <small>{escape(details)}</small>"
