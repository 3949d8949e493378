"""Self-contained HTML of linked texts: mentions marked in their text, candidates in a table below.

The templates in `pages/` escape all values of documents and knowledge bases. (displaCy escapes
texts, but neither labels nor ids.) Ids are links to the pages of their concepts, see `address_of`.
The colours follow the reader's choice of dark or light.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape

from spacy_bioel.text.context import describe
from spacy_bioel.text.display import address_of, hgvs_of, reason_of
from spacy_bioel.types import Candidate, Link, preferred_name, releases_of


def linked_id(id: str) -> Markup:
    """An id as a link to the page of its concept; as text where that is not known."""
    address = address_of(id)
    return Markup(f'<a href="{escape(address)}">{escape(id)}</a>') if address else escape(id)


def _named(candidate: Candidate) -> str:
    """The preferred name, and the name that matched if it is another."""
    preferred = preferred_name(candidate.kb, candidate.id) or candidate.name
    same = preferred == candidate.name
    return preferred if same else f"{preferred} (matched: {candidate.name})"


# The templates of all pages and of the model card.
PAGES = Environment(
    loader=PackageLoader("spacy_bioel", "pages"),
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
PAGES.globals |= {"describe": describe, "hgvs_of": hgvs_of, "reason_of": reason_of}
PAGES.filters["escaped"] = lambda text: text.replace("|", r"\|")  # in a table of Markdown
PAGES.filters["linked"] = linked_id
PAGES.filters["named"] = _named
_LINKED: Any = PAGES.get_template("linked.html").module
# Each rule says which colours it means, so that it holds within other pages too.
STYLE = str(_LINKED.style())
END_OF_PAGE = "</main>\n</body>\n</html>\n"


def render_page(sections: Iterable[str], *, title: str = "Linked texts") -> str:
    """Assemble a page from sections of `render_document`."""
    return start_page(title) + "".join(f"{section}\n" for section in sections) + END_OF_PAGE


def start_page(title: str = "Linked texts") -> str:
    """Start of a page that is written section by section; its end is `END_OF_PAGE`."""
    return str(_LINKED.start(title))


def render_document(text: str, links: Sequence[Link], *, title: str = "") -> str:
    """Render a document: its text with the mentions, and a table of candidates.

    Preferred names are read where the knowledge base is open, and left out where it is not.

    links (Sequence[Link]): Links in any order, which may overlap.
    RETURNS (str): An HTML section; within a page of another start, `STYLE` and an element of the
        class "bioel" belong round it.
    """
    known = {candidate.kb for link in links for candidate in link.candidates}
    releases = [release for kb in sorted(known) for release in releases_of(kb)]
    return str(_LINKED.document(text, links, _pieces(text, links), title, releases))


def _pieces(text: str, links: Sequence[Link]) -> Iterator[tuple[str, bool, str, list[Link]]]:
    """Text split at the borders of mentions: each piece, whether it is in one, the class of what is
    said of it, and the mentions that end with it.
    """
    ending: dict[int, list[Link]] = {}
    change: dict[int, Counter[str]] = {0: Counter(), len(text): Counter()}  # at each border
    for link in links:
        said = ""
        if link.context and not link.context.is_affirmed:
            said = "negated" if link.context.negated else "other"
        ending.setdefault(link.end, []).append(link)
        change.setdefault(link.start, Counter())[said] += 1
        change.setdefault(link.end, Counter())[said] -= 1
    depth: Counter[str] = Counter()  # mentions that a piece is in, by what is said of them
    for start, end in pairwise(sorted(change)):
        depth.update(change[start])
        of = next((said for said in ("negated", "other") if depth[said]), "")
        yield text[start:end], any(depth.values()), of, ending.get(end, [])
