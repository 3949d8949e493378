"""What a text says of its variants beside their change: the rs number, and the gene."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spacy_bioel.text.context import sentence_borders
from spacy_bioel.text.variants import RS_NUMBER, read_variant
from spacy_bioel.types import GENE, VARIANT, Link

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
