"""HTML pages and tables for linked texts, also for notebooks and data frames.

A page is self-contained: it shows the mentions in their text, with a table of candidates below. The
templates in `templates/` escape all values from documents and knowledge bases. (displaCy escapes
texts, but neither labels nor ids.) Ids are links to their concept pages (see `address_of`). The
colours follow the reader's preference for dark or light mode.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape as escape_html
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape
from spacy.tokens import Doc, Span
from spacy.util import filter_spans, is_in_jupyter

from spacy_bioel.doc import get_links, split_kb_id
from spacy_bioel.errors import needing
from spacy_bioel.explanation import describe_context, reason_of
from spacy_bioel.settings import SPANS_KEY
from spacy_bioel.types import Candidate, Link, preferred_name, releases_of

if TYPE_CHECKING:
    from pandas import DataFrame


# Addresses of the vocabularies' concept pages, by lower-case prefix.
_CONCEPT_PAGES = {
    "atc": "https://atcddd.fhi.no/atc_ddd_index/?code={}",
    "chembl": "https://www.ebi.ac.uk/chembl/explore/compound/{}",
    "cvcl": "https://www.cellosaurus.org/CVCL_{}",
    "dbsnp": "https://www.ncbi.nlm.nih.gov/snp/{}",
    "drugbank": "https://go.drugbank.com/drugs/{}",
    "efo": "http://www.ebi.ac.uk/efo/EFO_{}",
    "ensembl": "https://www.ensembl.org/id/{}",
    "hgnc": "https://www.genenames.org/data/gene-symbol-report/#!/hgnc_id/HGNC:{}",
    "loinc": "https://loinc.org/{}",
    "mesh": "https://meshb.nlm.nih.gov/record/ui?ui={}",
    "ncbigene": "https://www.ncbi.nlm.nih.gov/gene/{}",
    "ncbitaxon": "https://www.ncbi.nlm.nih.gov/datasets/taxonomy/{}/",
    "omim": "https://www.omim.org/entry/{}",
    "orpha": "http://www.orpha.net/ORDO/Orphanet_{}",
    "orphanet": "http://www.orpha.net/ORDO/Orphanet_{}",
    "pubchem.compound": "https://pubchem.ncbi.nlm.nih.gov/compound/{}",
    "rxnorm": "https://mor.nlm.nih.gov/RxNav/search?searchBy=RXCUI&searchTerm={}",
    "snomedct": "https://browser.ihtsdotools.org/?perspective=full&conceptId1={}",
    "snomedct_us": "https://browser.ihtsdotools.org/?perspective=full&conceptId1={}",
    "umls": "https://uts.nlm.nih.gov/uts/umls/concept/{}",
    "uniprot": "https://www.uniprot.org/uniprotkb/{}/entry",
}
_OBO_FOUNDRY = (
    "BTO CHEBI CL CLO DOID ECO ECTO EMAPA ENVO FBbt FMA FOODON GO HP HsapDv IDO MA MAXO MI MOD "
    "MONDO MP NBO NCIT OAE OBI OGG OGMS OMIT PATO PO PR PW SO SYMP TO TRANS UBERON UO VO WBbt "
    "WBPhenotype XAO ZFA ZP"
).split()
_CONCEPT_PAGES |= {
    name.lower(): f"http://purl.obolibrary.org/obo/{name}_{{}}" for name in _OBO_FOUNDRY
}
# Ids without a colon.
_UNPREFIXED_ID = re.compile(r"(?P<umls>C\d{7,8})|CVCL_(?P<cvcl>\w{4})|(?P<dbsnp>rs\d+)")


def address_of(id: str) -> str:
    """Return the address of a concept's page in its vocabulary; "" if it is unknown.

    id (str): For example "MESH:D003920", "HP:0001250", or "C0011849" for UMLS.
    """
    prefix, _, local = id.partition(":")
    if match := _UNPREFIXED_ID.fullmatch(id):
        prefix, local = match.lastgroup or "", match[match.lastindex or 0]
    local = quote(local.strip(), safe="")
    return _CONCEPT_PAGES.get(prefix.lower(), "").format(local) if local else ""


def linked_id(id: str) -> Markup:
    """Format an id as a link to its concept page, or as text if there is no page."""
    address = address_of(id)
    return Markup(f'<a href="{escape(address)}">{escape(id)}</a>') if address else escape(id)


def _candidate_names(candidate: Candidate) -> str:
    """Return the preferred name, followed by the matched name if it differs."""
    preferred, name = preferred_name(candidate.kb, candidate.id), candidate.name
    return name if preferred in ("", name) else f"{preferred} (matched: {name})"


# Templates for all pages and the model card.
PAGES = Environment(
    loader=PackageLoader("spacy_bioel", "templates"),
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
PAGES.globals |= {"describe": describe_context, "reason_of": reason_of}
PAGES.filters["escaped"] = lambda text: text.replace("|", r"\|")  # for Markdown tables
PAGES.filters["linked"] = linked_id
PAGES.filters["with_names"] = _candidate_names
_LINKED: Any = PAGES.get_template("linked.html").module
# Each CSS rule sets its own colours, so that it also works inside other pages.
STYLE = str(_LINKED.style())
END_OF_PAGE = "</main>\n</body>\n</html>\n"


def render_page(sections: Iterable[str], *, title: str = "Linked texts") -> str:
    """Assemble a page from sections that `render_document` returned."""
    return start_page(title) + "".join(f"{section}\n" for section in sections) + END_OF_PAGE


def start_page(title: str = "Linked texts") -> str:
    """Return the start of a page that is written section by section and ends with `END_OF_PAGE`."""
    return str(_LINKED.start(title))


def render_document(text: str, links: Sequence[Link], *, title: str = "") -> str:
    """Render a document: its text with the mentions, and a table of candidates.

    Preferred names are shown if the knowledge base is open.

    links (Sequence[Link]): Links in any order, which may overlap.
    RETURNS (str): An HTML section. In your own page, include `STYLE` and wrap the section in an
        element with the class "bioel".
    """
    kbs = {candidate.kb for link in links for candidate in link.candidates}
    releases = [release for kb in sorted(kbs) for release in releases_of(kb)]
    return str(_LINKED.document(text, links, _split_at_mentions(text, links), title, releases))


def _split_at_mentions(
    text: str, links: Sequence[Link]
) -> Iterator[tuple[str, bool, str, list[Link]]]:
    """Split a text at the boundaries of its mentions.

    YIELDS (tuple): A piece, whether it is in a mention, the CSS class for its context ("negated",
        "other" or ""), and the mentions that end with it.
    """
    ending: dict[int, list[Link]] = {}
    # Changes in the number of open mentions at each boundary, by CSS class.
    changes: dict[int, Counter[str]] = {0: Counter(), len(text): Counter()}
    for link in links:
        css_class = ""
        if link.context and not link.context.is_affirmed:
            css_class = "negated" if link.context.negated else "other"
        ending.setdefault(link.end, []).append(link)
        changes.setdefault(link.start, Counter())[css_class] += 1
        changes.setdefault(link.end, Counter())[css_class] -= 1
    n_open: Counter[str] = Counter()
    for start, end in pairwise(sorted(changes)):
        n_open.update(changes[start])
        css_class = next((name for name in ("negated", "other") if n_open[name]), "")
        yield text[start:end], any(n_open.values()), css_class, ending.get(end, [])


# Facts from the built-in rules; every table has columns for them.
FACTS = ("hgvs", "component", "gene")


def columns_of(facts: Iterable[str]) -> list[str]:
    """Return the column names for a table of links.

    facts (Iterable[str]): Names of the facts that have a column.
    """
    place = ("document", "start", "end", "text", "label")
    concept = ("id", "preferred_name", "name", "score", "evidence")
    return [*place, *concept, *facts, "context", "assertion", "relative"]


def link_rows(document: str | int, text: str, links: Sequence[Link]) -> Iterator[dict[str, Any]]:
    """Yield a row for each link: values by the names of `columns_of`, including all of its facts.

    The parts of a composite are joined by "|", and its score is the lowest of their scores. What is
    unknown is None: the concept of NIL, the preferred name if the knowledge base is not open, and
    the context if no cue was found, or if `bioel_context` did not run.

    document (str | int): Id of the document, or its number.
    """
    for link in links:
        linked = linked_candidates(link)
        cues = {says for *_, says in link.context.cues} if link.context else set()
        yield {
            "document": document,
            "start": link.start,
            "end": link.end,
            "text": text[link.start : link.end],
            "label": link.label,
            "id": "|".join(link.ids) or None,
            "preferred_name": _join_nonempty([preferred_name(c.kb, c.id) for c in linked]),
            "name": _join_nonempty([c.name for c in linked]),
            "score": min((c.score for c in linked), default=None),
            "evidence": _join_nonempty([c.evidence for c in linked]),
            **link.facts,
            "context": _join_nonempty(sorted(cues)),
            "assertion": link.context.assertion if link.context else None,
            "relative": (link.context.relative or None) if link.context else None,
        }


def linked_candidates(link: Link) -> list[Candidate]:
    """Return the linked candidates, in the order of the link's ids; [] for NIL."""
    by_id = {candidate.id: candidate for candidate in link.candidates}
    return [by_id[id] for id in link.ids if id in by_id]


def _join_nonempty(parts: Sequence[str]) -> str | None:
    return "|".join(parts) if any(parts) else None


# A Doc, or a stream of Docs or of (Doc, id) pairs from `nlp.pipe(..., as_tuples=True)`.
Docs = Doc | Iterable[Doc | tuple[Doc, Any]]


def _with_ids(docs: Docs) -> Iterator[tuple[Doc, str | int]]:
    """Yield each Doc with its id (from a pair or `corpus.text_to_doc`) or else its index."""
    for number, item in enumerate([docs] if isinstance(docs, Doc) else docs):
        if isinstance(item, Doc):
            yield item, item.user_data.get("bioel_id") or number
        else:
            yield item


def links_frame(docs: Docs, *, spans_key: str = SPANS_KEY) -> DataFrame:
    """Return the links in Docs as a data frame with one row per link.

    docs (Doc | Iterable): A Doc, or a stream of Docs or of (Doc, id) pairs, as returned by
        `nlp.pipe(..., as_tuples=True)`. No Doc is kept.
    spans_key (str): Span group of the links.
    RETURNS (DataFrame): The columns of `columns_of`. "document" is the id, or the index of the
        Doc. Missing values, such as the id of NIL, are None; a missing score is NaN.
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


def render(
    docs: Docs,
    *,
    spans_key: str = SPANS_KEY,
    page: bool = False,
    title: str = "Linked texts",
    jupyter: bool | None = None,
) -> str | None:
    """Render linked Docs as HTML: their texts with the mentions, and tables of candidates.

    Ids are links to their concept pages. The preferred name is shown with the matched name. In a
    notebook, the result is displayed.

    docs (Doc | Iterable): A Doc, several Docs, or (Doc, id) pairs.
    spans_key (str): Span group of the links.
    page (bool): Return a whole page, to be written to a file; False: a part of a page.
    title (str): Title of the page.
    jupyter (bool | None): Display the result in a notebook; None: only if this is a notebook.
    RETURNS (str | None): HTML; None if it was displayed.
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

        # The class prevents MathJax from reading "$" as the start of a formula.
        display(HTML(f'<div class="tex2jax_ignore">{html}</div>'))
        return None
    return html


def displacy_data(doc: Doc, *, spans_key: str = SPANS_KEY) -> dict[str, Any]:
    """Convert a linked Doc for `displacy.render(data, style="span", manual=True)`, or style "ent".

    Ids are links to their concept pages in any vocabulary; displaCy itself can link to only one
    vocabulary. "ents" contains only mentions that do not overlap, preferring longer mentions.

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
        "kb_id": escape_html("|".join(ids)),  # "" for NIL, which displaCy would show as a link
        # The concept page for the first id of a composite; displaCy uses "#" if there is no page.
        "kb_url": escape_html(address_of(ids[0]) if ids else "") or "#",
    }
