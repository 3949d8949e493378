"""Sequence variants: found by their grammar, with their number in dbSNP, their form and gene."""

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

_OF_A_FORM = 0.99  # probability of what is written as nothing else is
# Evidence of the number of a variant, and the reason.
_NUMBERS = {
    "text": "Linked: the text says its number in dbSNP.",
    "table": "Linked: the knowledge base has the number in dbSNP of this change of its gene.",
}
_RS_BEHIND = re.compile(  # "V600E mutation (rs113488022)"
    rf"(?:\s?[(\[;:=]|\s(?:(?!and\b|or\b)\w{{2,15}}\s){{1,2}}\()\s?(?:dbSNP:?\s?)?{RS_NUMBER.pattern}",
    re.I,
)
_RS_BEFORE = re.compile(rf"{RS_NUMBER.pattern}\s?[(\[:;=]\s?$", re.I)
# A symbol with the letter of its organism, which the detector misses: "hTERT C228T".
_PREFIXED = re.compile(r"\b[hmr]([A-Z]{2}[A-Z\d]+)\s\(?$")
_DIGITS = re.compile(r"\d+")
_NEAR = 40
_BESIDE = 15  # characters


class Variants(EntityRules):
    """Find variants by their grammar, and say their change, gene and number in dbSNP.

    A number is that which the text says, or which the knowledge base has of the change and its
    gene, see `io.table.read_clinvar`.
    """

    labels = (VARIANT,)
    fact_names = ("hgvs", "component", "gene")

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        found = []
        for number, (doc, before) in enumerate(zip(docs, spans, strict=True)):
            added = _with_variants(doc, before)
            others = [span for span in added if not _says_change(doc, span)]
            # What is no variant still wins over what is less likely: "fig 5" over a gene "fig".
            rest = [s for s in added if not any(_wins(other, s) for other in others)]
            kept = [span for span in rest if span not in others]
            if traces is not None:
                traces[number].changed(before, added, "by the forms of variants")
                traces[number].changed(added, rest, "overlaps likelier mentions")
                traces[number].changed(rest, kept, "no change of a sequence in it")
            found.append(kept)
        return found

    def rescore(
        self, mentions: Mentions, candidates: Candidates
    ) -> Sequence[tuple[Candidate, ...]]:
        found = list(candidates.of_mentions)
        of_docs: dict[int, list[int]] = {}
        for number, label in enumerate(mentions.labels[: mentions.n_wholes]):
            if label == VARIANT and not self._is_linked(found[number], candidates.nil_threshold):
                of_docs.setdefault(mentions.owners[number], []).append(number)
        for owner, numbers in of_docs.items():
            text = text_of(mentions.docs[owner])
            places = [(mentions.spans[i].start_char, mentions.spans[i].end_char) for i in numbers]
            for i, rs in zip(numbers, rs_numbers(text, places), strict=True):
                id, evidence = DBSNP + rs, "text"
                if not rs:
                    id, evidence = self._number_of(mentions, found, candidates, i), "table"
                if id.startswith(DBSNP + "rs"):
                    named = Candidate(id, 1.0, id.removeprefix(DBSNP), evidence)
                    found[i] = (named, *(c for c in found[i] if c.id != id))
                elif not any(map(is_named, found[i][:1])):
                    found[i] = ()  # numbers are not alike
        return found

    def _is_linked(self, found: Sequence[Candidate], nil_threshold: float) -> bool:
        """Whether a variant has an id of another vocabulary."""
        best = found[0] if found else None
        return best is not None and best.score >= nil_threshold and not best.id.startswith(DBSNP)

    def _number_of(
        self,
        mentions: Mentions,
        found: Sequence[tuple[Candidate, ...]],
        candidates: Candidates,
        number: int,
    ) -> str:
        """The id that the knowledge base has of a change of a gene; "" for none."""
        kb = self.knowledge.kb if self.knowledge else None
        if kb is None or VARIANT not in kb.type_names:
            return ""
        span, owner = mentions.spans[number], mentions.owners[number]
        variant = read_variant(text_of(span.doc), span.start_char, span.end_char)
        if variant is None or not variant.hgvs:
            return ""
        links = [
            Link(
                *(s.start_char, s.end_char, s.label_),
                tuple(c.id for c in of[:1] if c.score >= candidates.nil_threshold)
                if not is_tied(of)
                else (),
                tuple(of),
            )
            for s, of, of_doc in zip(mentions.spans, found, mentions.owners, strict=True)
            if of_doc == owner
        ]
        gene = gene_of(text_of(span.doc), span.start_char, span.end_char, links)
        return kb.canonical(f"{gene}:{variant.hgvs}")

    def facts(self, mentions: Mentions, links: Sequence[Link]) -> list[Mapping[str, Any]]:
        of_docs: dict[int, list[Link]] = {}
        for owner, link in zip(mentions.owners, links, strict=False):
            of_docs.setdefault(owner, []).append(link)
        said: list[Mapping[str, Any]] = []
        for owner, link in zip(mentions.owners, links, strict=False):
            if link.label != VARIANT:
                said.append({})
                continue
            text = text_of(mentions.docs[owner])
            variant = read_variant(text, link.start, link.end)
            said.append(
                {
                    "hgvs": variant.hgvs if variant else None,
                    "component": variant.component if variant else None,
                    "gene": gene_of(text, link.start, link.end, of_docs[owner]),
                }
            )
        return said

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> list[str]:
        evidence = [
            link.candidates[0].evidence if link.ids and link.candidates else "" for link in links
        ]
        return [_NUMBERS.get(of_best, "") for of_best in evidence]


def create_variants_v1() -> Variants:
    """Registered as `spacy-bioel.Variants.v1`."""
    return Variants()


def _with_variants(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Add the variants that are written in ways that nothing else has, in the place of others that
    overlap them; what a user has forced stays."""
    forced = {token for start, end, _, p in spans if p == 1 for token in range(start, end)}
    places = (doc.char_span(*place) for place in find_variants(text_of(doc)))
    found = [
        (s.start, s.end, VARIANT)
        for s in places
        if s is not None and forced.isdisjoint(range(s.start, s.end))
    ]
    taken = {token for start, end, _ in found for token in range(start, end)}
    kept = [s for s in spans if s[2] != VARIANT or taken.isdisjoint(range(*s[:2]))]
    return sorted([*kept, *((*place, _OF_A_FORM) for place in found)], key=lambda s: s[:3])


def _says_change(doc: Doc, span: ScoredSpan) -> bool:
    """Tell whether a variant says of a change, or is an rs number. Others pass, and what a user has
    forced."""
    start, end, label, p = span
    place = doc[start:end]
    if label != VARIANT or p == 1 or RS_NUMBER.fullmatch(place.text):
        return True
    return read_variant(text_of(doc), place.start_char, place.end_char) is not None


def _wins(span: ScoredSpan, other: ScoredSpan) -> bool:
    return span[0] < other[1] and other[0] < span[1] and span[3] > other[3]


def rs_numbers(text: str, places: Sequence[tuple[int, int]]) -> list[str]:
    """The number in dbSNP, "rs113488022", of each variant of a document; "": the text has none.

    It is in the mention, beside it ("V600E (rs113488022)"), or it is that of another mention of
    the same change.
    """
    numbers = [_own_number(text, *place) for place in places]
    changes = [read_variant(text, *place) for place in places] if any(numbers) else []
    known = {v: rs for v, rs in zip(changes, numbers, strict=False) if v and v.at and rs}
    if not known:
        return numbers
    return [rs or (known.get(v, "") if v else "") for v, rs in zip(changes, numbers, strict=True)]


def _own_number(text: str, start: int, end: int) -> str:
    places = (
        RS_NUMBER.search(text, start, end),
        _RS_BEHIND.match(text, end),
        _RS_BEFORE.search(text[max(0, start - _NEAR) : start]),
    )
    return next((place["rs"].lower() for place in places if place), "")


def gene_of(text: str, start: int, end: int, links: Sequence[Link]) -> str | None:
    """The id of the gene that a variant belongs to, of the genes that the text links.

    It is the one right before the variant, else right behind it, else the one beside another
    mention of the same change; else, of the genes of the sentence, or without any of the document,
    the one that the document names most often. None, where "hTERT" stands before it and no TERT is
    linked, and where the one beside it has the name of a
    gene and is linked to nothing, as "DGAT1" of cattle.
    """
    genes = [x for x in links if x.label == GENE and (x.ids or _is_named(text, x))]
    if not any(x.ids for x in genes):
        return None
    symbol = _PREFIXED.search(text, max(0, start - _NEAR), start)
    if symbol and all(x.end != symbol.end(1) for x in genes):
        named = (x for x in genes if text[x.start : x.end] == symbol[1])
        return next((x.ids[0] for x in named if x.ids), None)
    beside = _beside(start, end, genes)
    if beside is None:
        others = _same_change(text, start, end, links)
        beside = next(filter(None, (_beside(*place, genes) for place in others)), None)
    if beside is not None:
        return beside.ids[0] if beside.ids else None
    genes = [x for x in genes if x.ids]
    borders = [0, *sentence_borders(text), len(text)]
    number = bisect_right(borders, start, hi=len(borders) - 1)
    first, last = borders[number - 1 : number + 1]
    of_sentence = [x for x in genes if first <= x.start and x.end <= last]
    counts = Counter(x.ids[0] for x in genes)
    return max((x.ids[0] for x in of_sentence or genes), key=lambda id: counts[id])


def _is_named(text: str, link: Link) -> bool:
    """Whether it has the name of a gene, and is no part of a variant: "TN7(delTTCA)A"."""
    is_name = any("exact" in c.evidence.split("+") for c in link.candidates)
    return is_name and not text.startswith("(", link.end)


def _beside(start: int, end: int, genes: Sequence[Link]) -> Link | None:
    """The gene right before a variant, else right behind it."""
    before = [x for x in genes if 0 <= start - x.end <= _BESIDE]
    behind = [x for x in genes if 0 <= x.start - end <= _BESIDE]
    if before:
        return max(before, key=lambda x: x.end)
    return min(behind, key=lambda x: x.start, default=None)


def _same_change(
    text: str, start: int, end: int, links: Sequence[Link]
) -> Iterator[tuple[int, int]]:
    """Other mentions of the change that a variant is: "35delG" of "c.35delG"."""
    digits = _DIGITS.findall(text, start, end)
    places = [(x.start, x.end) for x in links if x.label == VARIANT and x.start != start]
    places = [place for place in places if _DIGITS.findall(text, *place) == digits]
    own = read_variant(text, start, end) if places else None
    for place in places:
        other = read_variant(text, *place)
        if own and own.at and other and replace(own, level="") == replace(other, level=""):
            yield place
