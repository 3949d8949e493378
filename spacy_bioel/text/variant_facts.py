"""What a text says of its variants beside their change: the rs number, and the gene."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from spacy_bioel.text.context import sentence_borders
from spacy_bioel.text.variants import RS_NUMBER, read_variant
from spacy_bioel.types import GENE, Link

_RS_BEHIND = re.compile(  # "V600E mutation (rs113488022)"
    rf"(?:\s?[(\[;:=]|\s(?:(?!and\b|or\b)\w{{2,15}}\s){{1,2}}\()\s?(?:dbSNP:?\s?)?{RS_NUMBER.pattern}",
    re.I,
)
_RS_BEFORE = re.compile(rf"{RS_NUMBER.pattern}\s?[(\[:;=]\s?$", re.I)
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

    It is the one right before the variant, else right behind it; else, of the genes of the
    sentence, or without any of the document, the one that the document names most often.
    """
    genes = [x for x in links if x.label == GENE and x.ids]
    if not genes:
        return None
    before = [x for x in genes if 0 <= start - x.end <= _BESIDE]
    behind = [x for x in genes if 0 <= x.start - end <= _BESIDE]
    if before or behind:
        nearest = max(before, key=lambda x: x.end) if before else min(behind, key=lambda x: x.start)
        return nearest.ids[0]
    borders = [0, *sentence_borders(text), len(text)]
    number = bisect_right(borders, start, hi=len(borders) - 1)
    first, last = borders[number - 1 : number + 1]
    of_sentence = [x for x in genes if first <= x.start and x.end <= last]
    counts = Counter(x.ids[0] for x in genes)
    return max((x.ids[0] for x in of_sentence or genes), key=lambda id: counts[id])
