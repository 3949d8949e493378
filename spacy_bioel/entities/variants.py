"""Find sequence variants by grammar, and add their HGVS forms, genes and dbSNP numbers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Any

from spacy.tokens import Doc

from spacy_bioel.batch import Batch
from spacy_bioel.doc import text_of
from spacy_bioel.entities import EntityRules
from spacy_bioel.entities.patterns import is_code
from spacy_bioel.entities.species import is_named
from spacy_bioel.entities.variant_grammar import RS_NUMBER, find_variants, read_variant
from spacy_bioel.found import FoundSpans
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import DBSNP, GENE, VARIANT, Candidate, Link, ScoredSpan, is_tied

_GRAMMAR_PROBABILITY = 0.99  # the probability of mentions found by the grammar.
# Explanations, keyed by where the dbSNP number came from.
_EXPLANATIONS = {
    f"NIL {VARIANT}": "NIL: neither the text nor a knowledge base has its dbSNP number (rs...).",
    "text": "Linked: the text has its dbSNP number.",
    "table": "Linked: the knowledge base has the dbSNP number of this change in its gene.",
}
_RS_AFTER = re.compile(  # "V600E mutation (rs113488022)"
    rf"(?:\s?[(\[;:=]|\s(?:(?!and\b|or\b)\w{{2,15}}\s){{1,2}}\()\s?(?:dbSNP:?\s?)?{RS_NUMBER.pattern}",
    re.I,
)
_RS_BEFORE = re.compile(rf"{RS_NUMBER.pattern}\s?[(\[:;=]\s?$", re.I)
# The detector misses symbols with an organism prefix: "hTERT C228T".
_PREFIXED_SYMBOL = re.compile(r"\b[hmr]([A-Z]{2}[A-Z\d]+)\s\(?$")
_DIGITS = re.compile(r"\d+")
_MAX_BEFORE = 40  # the number of characters to search before a variant
_MAX_GENE_DISTANCE = 15  # the maximum number of characters between a variant and its gene
_START, _END = attrgetter("start"), attrgetter("end")


class Variants(EntityRules):
    """Find variants using a grammar, and add their changes, genes and dbSNP numbers.

    The dbSNP number is taken from the text, or else from the knowledge base, which may list numbers
    by gene and change (see `io.table.read_clinvar`).
    """

    labels = (VARIANT,)
    needs_label = True
    fact_names = ("hgvs", "component", "gene")

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for doc, of_doc in zip(docs, spans, strict=True):
            _add_variants(doc, of_doc)
            rejected = [s for s in of_doc.spans if not _is_plausible(doc, s)]
            # More probable mentions win even if rejected later: "fig 5" over a gene "fig".
            below = [o for r in rejected for o in of_doc.overlapping(*r[:2]) if o[3] < r[3]]
            of_doc.drop(below, "overlaps likelier mentions")
            of_doc.drop(rejected, "does not describe a sequence change")

    def rescore(self, batch: Batch) -> Sequence[tuple[Candidate, ...]]:
        rescored = list(batch.candidates)
        variants_of: dict[int, list[int]] = {}
        for index, label in enumerate(batch.labels[: batch.n_wholes]):
            linked = [c for c in rescored[index][:1] if c.score >= batch.nil_threshold]
            # Ids from vocabularies other than dbSNP are kept.
            if label == VARIANT and all(c.id.startswith(DBSNP) for c in linked):
                variants_of.setdefault(batch.owners[index], []).append(index)
        for owner, indices in variants_of.items():
            text = text_of(batch.docs[owner])
            places = [(batch.spans[i].start_char, batch.spans[i].end_char) for i in indices]
            genes: VariantGenes | None = None
            for i, place, rs_number in zip(indices, places, rs_numbers(text, places), strict=True):
                id, evidence = DBSNP + rs_number, "text"
                if not rs_number:
                    genes = genes or _genes_of(owner, batch, rescored)
                    id, evidence = self._id_in_kb(text, place, genes), "table"
                if id.startswith(DBSNP + "rs"):
                    best = Candidate(id, 1.0, id.removeprefix(DBSNP), evidence)
                    rescored[i] = (best, *(c for c in rescored[i] if c.id != id))
                elif not any(map(is_named, rescored[i][:1])):
                    rescored[i] = ()  # a merely similar name denotes a different variant
        return rescored

    def _id_in_kb(self, text: str, place: tuple[int, int], genes: VariantGenes) -> str:
        """Look up a mention's change and gene in the knowledge base; return the id, or ""."""
        assert self.knowledge is not None
        kb = self.knowledge.kb
        variant = read_variant(text, *place) if VARIANT in kb.type_names else None
        hgvs = variant.hgvs if variant else None
        return kb.canonical(f"{genes.of(*place)}:{hgvs}") if hgvs else ""

    def facts(self, batch: Batch) -> list[Mapping[str, Any]]:
        texts, links_of = [text_of(doc) for doc in batch.docs], batch.links_of_docs()
        genes_of = cache(lambda owner: VariantGenes(texts[owner], links_of[owner]))
        facts: list[Mapping[str, Any]] = []
        for owner, link in zip(batch.owners, batch.links, strict=True):
            if link.label != VARIANT:
                facts.append({})
                continue
            variant = read_variant(texts[owner], link.start, link.end)
            hgvs, component = (variant.hgvs, variant.component) if variant else (None, None)
            gene = genes_of(owner).of(link.start, link.end)
            facts.append({"hgvs": hgvs, "component": component, "gene": gene})
        return facts

    def explain(self, batch: Batch) -> list[str]:
        keys = (k.candidates[0].evidence if k.candidates else "NIL " + k.label for k in batch.links)
        return [_EXPLANATIONS.get(key, "") for key in keys]


_MAX_SHORT_CODE = 8  # the maximum length of a code that looks like a variant: "A20140G"


create_variants_v1 = Variants  # registered as `spacy-bioel.Variants.v1`


def _add_variants(doc: Doc, found: FoundSpans) -> None:
    """Add the grammar's variants, replacing overlapping spans unless the user set them.

    A span with the same tokens but another label, such as the cell line T47D, keeps its label.
    """
    for place in find_variants(text_of(doc)):
        if (span := doc.char_span(*place)) is None:
            continue
        start, end = span.start, span.end
        near = found.overlapping(start, end)
        if not any(s[3] == 1 or (s[:2] == (start, end) and s[2] != VARIANT) for s in near):
            variants = [s for s in near if s[2] == VARIANT]
            added = start, end, VARIANT, _GRAMMAR_PROBABILITY
            found.add(added, "by the grammar of variants", instead_of=variants)


def _is_plausible(doc: Doc, span: ScoredSpan) -> bool:
    """Whether to keep a span: a Variant must be an rs number or a change, or be set by the user."""
    start, end, label, probability = span
    mention = doc[start:end]
    if label != VARIANT or probability == 1 or RS_NUMBER.fullmatch(mention.text):
        return True
    text, place = text_of(doc), (mention.start_char, mention.end_char)
    is_short = len(mention.text) <= _MAX_SHORT_CODE and mention.text.isalnum()
    return read_variant(text, *place) is not None and not (is_short and is_code(text, *place))


def rs_numbers(text: str, places: Sequence[tuple[int, int]]) -> list[str]:
    """Return each variant's dbSNP number, such as "rs113488022", or "" if the text has none.

    The number is in the mention, next to it ("V600E (rs113488022)"), or in or next to another
    mention of the same change.
    """
    numbers = [_rs_number_at(text, *place) for place in places]
    if not any(numbers):
        return numbers
    variants = [read_variant(text, *place) for place in places]
    number_of = {v: rs for v, rs in zip(variants, numbers, strict=True) if v and v.position and rs}
    return [
        rs or (number_of.get(variant, "") if variant else "")
        for variant, rs in zip(variants, numbers, strict=True)
    ]


def _rs_number_at(text: str, start: int, end: int) -> str:
    """Return the dbSNP number in a mention or right next to it, or ""."""
    match = (
        RS_NUMBER.search(text, start, end)
        or _RS_AFTER.match(text, end)
        or _RS_BEFORE.search(text[max(0, start - _MAX_BEFORE) : start])
    )
    return match["rs"].lower() if match else ""


def _genes_of(
    owner: int,
    batch: Batch,
    rescored: Sequence[tuple[Candidate, ...]],
) -> VariantGenes:
    """Return a document's genes, each linked to its best rescored candidate."""
    links = []
    for span, ranked, span_owner in zip(batch.spans, rescored, batch.owners, strict=True):
        if span_owner == owner and span.label_ in (GENE, VARIANT):
            best = () if is_tied(ranked) else ranked[:1]
            ids = tuple(c.id for c in best if c.score >= batch.nil_threshold)
            links.append(Link(span.start_char, span.end_char, span.label_, ids, tuple(ranked)))
    return VariantGenes(text_of(batch.docs[owner]), links)


class VariantGenes:
    """The genes that a text's variants belong to.

    text (str): The text.
    links (Sequence[Link]): The links of all mentions in the text, in text order.
    """

    def __init__(self, text: str, links: Sequence[Link]) -> None:
        genes = [x for x in links if x.label == GENE and (x.ids or _is_gene(text, x))]
        self._text, self._links = text, links
        self._by_start = sorted(genes, key=_START)
        self._linked = [gene for gene in self._by_start if gene.ids]
        self._by_end = sorted(genes, key=_END)
        self._ends = {gene.end for gene in genes}
        self._counts = Counter(gene.ids[0] for gene in self._linked)
        self._main_genes: dict[int, str] = {}  # by sentence

    def of(self, start: int, end: int) -> str | None:
        """Return the id of the gene that a variant belongs to.

        This is the gene right before the variant, or right after it, or next to another mention of
        the same change. Otherwise, of the genes in the sentence (or in the document if the sentence
        has none), it is the gene that the document mentions most often.

        RETURNS (str | None): None if no gene is linked, if the gene next to the variant is not
            linked, such as cattle "DGAT1", or if "hTERT" precedes the variant and no TERT is
            linked.
        """
        if not self._linked:
            return None
        symbol = _PREFIXED_SYMBOL.search(self._text, max(0, start - _MAX_BEFORE), start)
        if symbol and symbol.end(1) not in self._ends:
            return self._id_of_symbol.get(symbol[1])
        nearest = self._next_to(start, end)
        if nearest is None and (change := _change_at(self._text, start, end)):
            nearest = self._next_to_change.get(change)
        if nearest is not None:
            return nearest.ids[0] if nearest.ids else None
        sentence = bisect_right(self._borders, start, hi=len(self._borders) - 1)
        if sentence not in self._main_genes:
            self._main_genes[sentence] = self._main_gene(
                *self._borders[sentence - 1 : sentence + 1]
            )
        return self._main_genes[sentence]

    @cached_property
    def _borders(self) -> list[int]:
        return [0, *sentence_borders(self._text), len(self._text)]

    @cached_property
    def _id_of_symbol(self) -> dict[str, str]:
        """Maps each symbol to the id of the first gene linked under that symbol."""
        return {self._text[gene.start : gene.end]: gene.ids[0] for gene in self._linked[::-1]}

    @cached_property
    def _next_to_change(self) -> dict[tuple[Any, ...], Link]:
        """Maps each change to the first gene found next to a mention of it."""
        found: dict[tuple[Any, ...], Link] = {}
        for link in self._links:
            if link.label == VARIANT and (gene := self._next_to(link.start, link.end)) is not None:
                if change := _change_at(self._text, link.start, link.end):
                    found.setdefault(change, gene)
        return found

    def _next_to(self, start: int, end: int) -> Link | None:
        """Return the gene right before a variant, or else the gene right after it."""
        first = bisect_left(self._by_end, start - _MAX_GENE_DISTANCE, key=_END)
        before = self._by_end[first : bisect_right(self._by_end, start, key=_END)]
        if before:
            return before[bisect_left(before, before[-1].end, key=_END)]
        first = bisect_left(self._by_start, end, key=_START)
        after = self._by_start[first : first + 1]
        return after[0] if after and after[0].start - end <= _MAX_GENE_DISTANCE else None

    def _main_gene(self, start: int, end: int) -> str:
        """Return whichever of a sentence's genes the text mentions most often."""
        linked = self._linked
        first = bisect_left(linked, start, key=_START)
        last = bisect_left(linked, end, key=_START)
        in_sentence = [gene for gene in linked[first:last] if gene.end <= end]
        return max((gene.ids[0] for gene in in_sentence or linked), key=self._counts.__getitem__)


def _change_at(text: str, start: int, end: int) -> tuple[Any, ...] | None:
    """Return a key for the change in a mention; "35delG" and "c.35delG" share a key."""
    variant = read_variant(text, start, end)
    if variant is None or not variant.position:
        return None
    return replace(variant, level=""), *_DIGITS.findall(text, start, end)


def _is_gene(text: str, link: Link) -> bool:
    """Whether an unlinked mention is a gene, rather than part of a variant ("TN7(delTTCA)A")."""
    is_name = any("exact" in c.evidence.split("+") for c in link.candidates)
    return is_name and not text.startswith("(", link.end)
