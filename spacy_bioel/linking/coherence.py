"""Names of several concepts that are equally likely, decided by the other concepts of a document.

"ASD" is autism and an atrial septal defect; beside a patent ductus arteriosus it is the defect,
with which that shares what is above both in the ontology.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from heapq import nlargest

from spacy.tokens import Span

from spacy_bioel.doc import text_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import Candidate, ties_of

_MOST = 3  # neighbours, the nearest ones
# By so much, and so many times as near, as the next candidate; or the tie stays.
_MARGIN, _RATIO = 0.1, 2.0
_SURE = 0.9  # score of a neighbour that has a say


def settle_ties(
    kb: KnowledgeBase, mentions: Sequence[Span], ranked: Sequence[tuple[Candidate, ...]]
) -> list[tuple[Candidate, ...]]:
    """Put first which of tied candidates is clearly nearer to the other concepts of the sentence
    or, if that does not tell, of the document.
    """
    if not any(is_tied := ties_of(ranked)):
        return list(ranked)
    borders = {
        doc: sentence_borders(text_of(doc)) for doc in dict.fromkeys(m.doc for m in mentions)
    }
    places = [(m.doc, bisect_right(borders[m.doc], m.start_char)) for m in mentions]
    known: dict[object, set[str]] = defaultdict(set)
    for (doc, sentence), found in zip(places, ranked, strict=True):
        if found and found[0].score > _SURE:
            known[doc].add(found[0].id)
            known[doc, sentence].add(found[0].id)

    @cache
    def above(id: str) -> frozenset[int]:
        found, new = set[int](), {kb.find(id)}
        while new := new - found:
            found |= new
            new = {parent for row in new for parent in kb.parents_of(row).tolist()}
        return frozenset(found)

    @cache
    def nearness(id: str, place: object) -> float:
        """What is above a concept or its neighbours: the part that is above both."""
        own, others = above(id), map(above, known[place])
        nearest = nlargest(_MOST, (len(own & other) / len(own | other) for other in others))
        return sum(nearest) / max(len(nearest), 1)

    settled = list(ranked)
    for number, (place, found) in enumerate(zip(places, ranked, strict=True)):
        for where in (place, place[0]) if is_tied[number] else ():
            near = [nearness(c.id, where) for c in found]
            tied = (n for c, n in zip(found, near, strict=True) if c.score == found[0].score)
            first, second = nlargest(2, tied)
            if first >= max(second + _MARGIN, _RATIO * second):
                odds = [c.score * n for c, n in zip(found, near, strict=True)]
                part = sum(c.score for c in found) / sum(odds)
                scores = (round(part * o, 4) for o in odds)
                scored = [replace(c, score=s) for c, s in zip(found, scores, strict=True)]
                settled[number] = tuple(sorted(scored, key=lambda c: (-c.score, c.id)))
                break
    return settled
