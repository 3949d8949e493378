"""Rules that find sequence variants using a grammar and add HGVS form, gene and dbSNP number."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spacy.tokens import Doc

from spacy_bioel.doc import text_of
from spacy_bioel.entities import Candidates, EntityRules, Mentions
from spacy_bioel.entities.species import is_named
from spacy_bioel.entities.variant_grammar import RS_NUMBER, find_variants, read_variant
from spacy_bioel.explanation import Trace
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import DBSNP, GENE, VARIANT, Candidate, Link, ScoredSpan, is_tied

_GRAMMAR_PROBABILITY = 0.99  # for mentions found by the grammar
# Explanations, keyed by where the dbSNP number came from.
_EXPLANATIONS = {
    "text": "Linked: the text has its dbSNP number.",
    "table": "Linked: the knowledge base has the dbSNP number of this change in its gene.",
}
_RS_AFTER = re.compile(  # "V600E mutation (rs113488022)"
    rf"(?:\s?[(\[;:=]|\s(?:(?!and\b|or\b)\w{{2,15}}\s){{1,2}}\()\s?(?:dbSNP:?\s?)?{RS_NUMBER.pattern}",
    re.I,
)
_RS_BEFORE = re.compile(rf"{RS_NUMBER.pattern}\s?[(\[:;=]\s?$", re.I)
# A symbol with an organism prefix, which the detector misses: "hTERT C228T".
_PREFIXED_SYMBOL = re.compile(r"\b[hmr]([A-Z]{2}[A-Z\d]+)\s\(?$")
_DIGITS = re.compile(r"\d+")
_MAX_BEFORE = 40  # characters to search before a variant
_MAX_GENE_DISTANCE = 15  # characters between a variant and its gene


class Variants(EntityRules):
    """Find variants using a grammar, and add their change, gene and dbSNP number.

    The dbSNP number is taken from the text, or else from the knowledge base, which may list numbers
    by gene and change (see `io.table.read_clinvar`).
    """

    labels = (VARIANT,)
    fact_names = ("hgvs", "component", "gene")

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        results = []
        for i, (doc, before) in enumerate(zip(docs, spans, strict=True)):
            added = _with_variants(doc, before)
            rejected = [span for span in added if not _is_plausible(doc, span)]
            # Likelier mentions take precedence even if rejected later: "fig 5" over a gene "fig".
            rest = [s for s in added if not any(_wins(other, s) for other in rejected)]
            kept = [span for span in rest if span not in rejected]
            if traces is not None:
                traces[i].changed(before, added, "by the grammar of variants")
                traces[i].changed(added, rest, "overlaps likelier mentions")
                traces[i].changed(rest, kept, "does not describe a sequence change")
            results.append(kept)
        return results

    def rescore(
        self, mentions: Mentions, candidates: Candidates
    ) -> Sequence[tuple[Candidate, ...]]:
        rescored = list(candidates.of_mentions)
        variants_of: dict[int, list[int]] = {}
        for index, label in enumerate(mentions.labels[: mentions.n_wholes]):
            if label == VARIANT and not self._is_linked(rescored[index], candidates.nil_threshold):
                variants_of.setdefault(mentions.owners[index], []).append(index)
        for owner, indices in variants_of.items():
            text = text_of(mentions.docs[owner])
            places = [(mentions.spans[i].start_char, mentions.spans[i].end_char) for i in indices]
            for i, rs_number in zip(indices, rs_numbers(text, places), strict=True):
                id, evidence = DBSNP + rs_number, "text"
                if not rs_number:
                    id, evidence = self._id_in_kb(i, mentions, rescored, candidates), "table"
                if id.startswith(DBSNP + "rs"):
                    best = Candidate(id, 1.0, id.removeprefix(DBSNP), evidence)
                    rescored[i] = (best, *(c for c in rescored[i] if c.id != id))
                elif not any(map(is_named, rescored[i][:1])):
                    rescored[i] = ()  # a name that is merely similar denotes a different variant
        return rescored

    def _is_linked(self, ranked: Sequence[Candidate], nil_threshold: float) -> bool:
        """Whether a variant is linked to an id from a vocabulary other than dbSNP."""
        best = ranked[0] if ranked else None
        return best is not None and best.score >= nil_threshold and not best.id.startswith(DBSNP)

    def _id_in_kb(
        self,
        index: int,
        mentions: Mentions,
        rescored: Sequence[tuple[Candidate, ...]],
        candidates: Candidates,
    ) -> str:
        """Return the knowledge base's id for the change and gene of a mention, or ""."""
        kb = self.knowledge.kb if self.knowledge else None
        if kb is None or VARIANT not in kb.type_names:
            return ""
        mention, owner = mentions.spans[index], mentions.owners[index]
        text, start, end = text_of(mention.doc), mention.start_char, mention.end_char
        variant = read_variant(text, start, end)
        if variant is None or not variant.hgvs:
            return ""
        links = []
        for span, ranked, span_owner in zip(mentions.spans, rescored, mentions.owners, strict=True):
            if span_owner == owner:
                best = () if is_tied(ranked) else ranked[:1]
                ids = tuple(c.id for c in best if c.score >= candidates.nil_threshold)
                links.append(Link(span.start_char, span.end_char, span.label_, ids, tuple(ranked)))
        return kb.canonical(f"{gene_of(text, start, end, links)}:{variant.hgvs}")

    def facts(self, mentions: Mentions, links: Sequence[Link]) -> list[Mapping[str, Any]]:
        links_of: dict[int, list[Link]] = {}
        for owner, link in zip(mentions.owners, links, strict=False):
            links_of.setdefault(owner, []).append(link)
        facts: list[Mapping[str, Any]] = []
        for owner, link in zip(mentions.owners, links, strict=False):
            if link.label != VARIANT:
                facts.append({})
                continue
            text = text_of(mentions.docs[owner])
            variant = read_variant(text, link.start, link.end)
            facts.append(
                {
                    "hgvs": variant.hgvs if variant else None,
                    "component": variant.component if variant else None,
                    "gene": gene_of(text, link.start, link.end, links_of[owner]),
                }
            )
        return facts

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> list[str]:
        linked = [link.candidates[0] if link.ids and link.candidates else None for link in links]
        return [_EXPLANATIONS.get(best.evidence, "") if best else "" for best in linked]


def create_variants_v1() -> Variants:
    """Registered as `spacy-bioel.Variants.v1`."""
    return Variants()


def _with_variants(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Add the variants found by the grammar, replacing overlapping variants; spans forced by the
    user stay."""
    forced = {token for start, end, _, p in spans if p == 1 for token in range(start, end)}
    found: list[ScoredSpan] = []
    for place in find_variants(text_of(doc)):
        span = doc.char_span(*place)
        if span is not None and forced.isdisjoint(range(span.start, span.end)):
            found.append((span.start, span.end, VARIANT, _GRAMMAR_PROBABILITY))
    taken = {token for start, end, *_ in found for token in range(start, end)}
    kept = [s for s in spans if s[2] != VARIANT or taken.isdisjoint(range(s[0], s[1]))]
    return sorted([*kept, *found], key=lambda s: s[:3])


def _is_plausible(doc: Doc, span: ScoredSpan) -> bool:
    """Whether a variant describes a change or is an rs number; spans with other labels and forced
    spans are always plausible."""
    start, end, label, probability = span
    mention = doc[start:end]
    if label != VARIANT or probability == 1 or RS_NUMBER.fullmatch(mention.text):
        return True
    return read_variant(text_of(doc), mention.start_char, mention.end_char) is not None


def _wins(span: ScoredSpan, other: ScoredSpan) -> bool:
    return span[0] < other[1] and other[0] < span[1] and span[3] > other[3]


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
    """Return the dbSNP number in a mention, or right after or before it, or ""."""
    match = (
        RS_NUMBER.search(text, start, end)
        or _RS_AFTER.match(text, end)
        or _RS_BEFORE.search(text[max(0, start - _MAX_BEFORE) : start])
    )
    return match["rs"].lower() if match else ""


def gene_of(text: str, start: int, end: int, links: Sequence[Link]) -> str | None:
    """Return the id of the linked gene that a variant belongs to.

    This is the gene right before the variant, or right after it, or next to another mention of the
    same change. Otherwise, of the genes in the sentence (or in the document if the sentence has
    none), it is the gene that the document mentions most often.

    RETURNS (str | None): None if no gene is linked, if the gene next to the variant is not linked,
        such as cattle "DGAT1", or if "hTERT" precedes the variant and no TERT is linked.
    """
    genes = [link for link in links if link.label == GENE and (link.ids or _is_gene(text, link))]
    linked = [gene for gene in genes if gene.ids]
    if not linked:
        return None
    symbol = _PREFIXED_SYMBOL.search(text, max(0, start - _MAX_BEFORE), start)
    if symbol and all(gene.end != symbol.end(1) for gene in genes):
        same_symbol = [gene for gene in linked if text[gene.start : gene.end] == symbol[1]]
        return same_symbol[0].ids[0] if same_symbol else None
    nearest = _gene_next_to(start, end, genes)
    if nearest is None:
        for place in _same_change(text, start, end, links):
            if (nearest := _gene_next_to(*place, genes)) is not None:
                break
    if nearest is not None:
        return nearest.ids[0] if nearest.ids else None
    borders = [0, *sentence_borders(text), len(text)]
    sentence = bisect_right(borders, start, hi=len(borders) - 1)
    first, last = borders[sentence - 1 : sentence + 1]
    in_sentence = [gene for gene in linked if first <= gene.start and gene.end <= last]
    counts = Counter(gene.ids[0] for gene in linked)
    return max((gene.ids[0] for gene in in_sentence or linked), key=lambda id: counts[id])


def _is_gene(text: str, link: Link) -> bool:
    """Whether an unlinked mention is a gene name rather than part of a variant such as
    "TN7(delTTCA)A"."""
    is_name = any("exact" in c.evidence.split("+") for c in link.candidates)
    return is_name and not text.startswith("(", link.end)


def _gene_next_to(start: int, end: int, genes: Sequence[Link]) -> Link | None:
    """Return the gene right before a variant, or else the gene right after it."""
    before = [gene for gene in genes if 0 <= start - gene.end <= _MAX_GENE_DISTANCE]
    after = [gene for gene in genes if 0 <= gene.start - end <= _MAX_GENE_DISTANCE]
    if before:
        return max(before, key=lambda gene: gene.end)
    return min(after, key=lambda gene: gene.start, default=None)


def _same_change(
    text: str, start: int, end: int, links: Sequence[Link]
) -> Iterator[tuple[int, int]]:
    """Yield other mentions of a variant's change: "35delG" for "c.35delG"."""
    digits = _DIGITS.findall(text, start, end)
    places = [(x.start, x.end) for x in links if x.label == VARIANT and x.start != start]
    places = [place for place in places if _DIGITS.findall(text, *place) == digits]
    variant = read_variant(text, start, end) if places else None
    if variant is None or not variant.position:
        return
    for place in places:
        other = read_variant(text, *place)
        if other and replace(variant, level="") == replace(other, level=""):
            yield place
