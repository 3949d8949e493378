"""Self-contained HTML of linked texts: mentions marked in their text, candidates in a table below.

The templates in `templates/` escape all values of documents and knowledge bases. (displaCy escapes
texts, but neither labels nor ids.) Ids are links to the pages of their concepts, see `address_of`.
The colours follow the reader's choice of dark or light.

Links as flat rows; Docs of spaCy as data frames and in notebooks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
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


# From a prefix, in lower case, to the address of the vocabulary's own page of a concept.
_PAGES = {
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
_PAGES |= {name.lower(): f"http://purl.obolibrary.org/obo/{name}_{{}}" for name in _OBO_FOUNDRY}
# Ids that are written without a colon.
_BARE = re.compile(r"(?P<umls>C\d{7,8})|CVCL_(?P<cvcl>\w{4})|(?P<dbsnp>rs\d+)")


def address_of(id: str) -> str:
    """Return the address of the page of a concept in its own vocabulary; "" if that is not known.

    id (str): Such as "MESH:D003920", "HP:0001250", or "C0011849" for UMLS.
    """
    prefix, _, local = id.partition(":")
    if bare := _BARE.fullmatch(id):
        prefix, local = bare.lastgroup or "", bare[bare.lastindex or 0]
    local = quote(local.strip(), safe="")
    return _PAGES.get(prefix.lower(), "").format(local) if local else ""


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
    loader=PackageLoader("spacy_bioel", "templates"),
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
PAGES.globals |= {"describe": describe_context, "reason_of": reason_of}
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


# Facts of the rules that come with the package, which tables have in any case.
FACTS = ("hgvs", "component", "gene")


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link with its document; the parts of a composite are joined by "|".

    document (str | int): Id of the document, or its number.
    start, end (int): Offsets in characters; text is what the document has there.
    label (str): Label of the mention.
    id, preferred_name (str | None): The concept, and the first of its names; None for NIL. The name
        is also None where the knowledge base is not open.
    name, score, evidence: Of the candidate that was linked, see `Candidate`; None for NIL. A
        composite has the lowest score of its parts.
    facts (Mapping): What else the text says, such as "hgvs" of a variant, see `entities`.
    context (str | None): What the text says of it, such as "negated", by `bioel_context`; None:
        nothing, or the pipe did not run.
    """

    document: str | int
    start: int
    end: int
    text: str
    label: str
    id: str | None
    preferred_name: str | None
    name: str | None
    score: float | None
    evidence: str | None
    facts: Mapping[str, Any]
    context: str | None

    def cells(self, facts: Sequence[str]) -> list[Any]:
        """Values in the order of `columns_of`."""
        own = [getattr(self, name) for name in _COLUMNS]
        return [*own, *(self.facts.get(name) for name in facts), self.context]


_COLUMNS = tuple(f.name for f in fields(LinkRow) if f.name not in ("facts", "context"))


def columns_of(facts: Sequence[str]) -> list[str]:
    """Names of the columns of a table of links."""
    return [*_COLUMNS, *facts, "context"]


def link_rows(document: str | int, text: str, links: Sequence[Link]) -> Iterator[LinkRow]:
    """Yield a row a link."""
    for link in links:
        chosen = linked_candidates(link)
        yield LinkRow(
            *(document, link.start, link.end, text[link.start : link.end], link.label),
            "|".join(link.ids) or None,
            _joined([preferred_name(c.kb, c.id) for c in chosen]),
            _joined([c.name for c in chosen]),
            min((c.score for c in chosen), default=None),
            _joined([c.evidence for c in chosen]),
            link.facts,
            _joined(sorted({says for *_, says in link.context.cues})) if link.context else None,
        )


def linked_candidates(link: Link) -> list[Candidate]:
    """Candidates of the ids of a link, in their order; none for NIL."""
    found = {candidate.id: candidate for candidate in link.candidates}
    return [found[id] for id in link.ids if id in found]


def _joined(parts: Sequence[str]) -> str | None:
    return "|".join(parts) if any(parts) else None


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
    RETURNS (DataFrame): Columns of `columns_of`. "document" is the id, or the number of the Doc
        from 0. Where there is no value, as with NIL, it is None, or NaN for a score.
    RAISES BioelError: [B192] without pandas.
    """
    with needing("pandas", "links_frame"):
        import pandas as pd
    rows = [
        row
        for doc, id in _with_ids(docs)
        for row in link_rows(id, doc.text, get_links(doc, spans_key))
    ]
    facts = list(dict.fromkeys([*FACTS, *(name for row in rows for name in row.facts)]))
    types = {"start": "int64", "end": "int64", "score": "float64"}
    cells = [row.cells(facts) for row in rows]
    return pd.DataFrame(cells, columns=columns_of(facts), dtype=object).astype(types)


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
    ids = split_kb_id(span.kb_id_)
    return {
        "start": span.start_char,
        "end": span.end_char,
        "start_token": span.start,
        "end_token": span.end,
        "label": escape_html(span.label_),
        "kb_id": escape_html("|".join(ids)),  # "" for NIL, which displaCy would make a link of
        # Of a composite, the first; "#" is displaCy's own for no page.
        "kb_url": escape_html(address_of(ids[0]) if ids else "") or "#",
    }
