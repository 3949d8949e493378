"""What a text says of its variants beside their change: the rs number, and the gene."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spacy.tokens import Doc

from spacy_bioel.doc import text_of
from spacy_bioel.entities.variant_grammar import RS_NUMBER, find_variants, read_variant
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import DBSNP, GENE, VARIANT, Candidate, Link, ScoredSpan, is_named

_OF_A_FORM = 0.99


def add_variants(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Add the variants that are written in ways that nothing else has, in the place of others that
    overlap them."""
    places = (doc.char_span(*place) for place in find_variants(text_of(doc)))
    found = [(s.start, s.end, VARIANT) for s in places if s is not None]
    taken = {token for start, end, _ in found for token in range(start, end)}
    kept = [s for s in spans if s[2] != VARIANT or taken.isdisjoint(range(*s[:2]))]
    return sorted([*kept, *((*place, _OF_A_FORM) for place in found)], key=lambda s: s[:3])


def says_change(doc: Doc, span: ScoredSpan) -> bool:
    """Tell whether a variant says of a change, or is an rs number. Others pass, and what the word
    list `always` has."""
    start, end, label, p = span
    place = doc[start:end]
    if label != VARIANT or p == 1 or RS_NUMBER.fullmatch(place.text):
        return True
    return read_variant(text_of(doc), place.start_char, place.end_char) is not None


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


def hgvs_of(text: str, link: Link) -> str | None:
    """Return the form in HGVS of a mention that is labelled as a variant; None for any other."""
    variant = read_variant(text, link.start, link.end) if link.label == VARIANT else None
    return variant.hgvs if variant else None


def with_rs_numbers(text: str, links: list[Link], kb: KnowledgeBase) -> list[Link]:
    """Links of a document. Variants without an id of another vocabulary have the rs number that the
    text says, or that the knowledge base has of the change and its gene, see `io.nlm.read_clinvar`.
    """
    variants = [x for x in links if x.label == VARIANT and all(i.startswith(DBSNP) for i in x.ids)]
    numbers = rs_numbers(text, [(x.start, x.end) for x in variants])
    said = {
        id(x): _with_rs_number(text, x, rs, links, kb)
        for x, rs in zip(variants, numbers, strict=True)
    }
    return [said.get(id(x), x) for x in links]


def _with_rs_number(
    text: str, link: Link, rs: str, links: Sequence[Link], kb: KnowledgeBase
) -> Link:
    id, evidence = DBSNP + rs, "text"
    if not rs and VARIANT in kb.type_names and (change := hgvs_of(text, link)):
        gene = gene_of(text, link.start, link.end, links)
        id, evidence = kb.canonical(f"{gene}:{change}"), "table"
    if not id.startswith(DBSNP + "rs"):
        known = any(map(is_named, link.candidates[:1]))
        return link if known else replace(link, ids=())  # numbers are not alike
    found = Candidate(id, 1.0, id.removeprefix(DBSNP), evidence)
    rest = (c for c in link.candidates if c.id != id)
    return replace(link, ids=(id,), candidates=(found, *rest))
