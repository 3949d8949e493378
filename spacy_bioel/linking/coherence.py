"""Coherence: what the other mentions in a document say about the candidates of a mention."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from heapq import nlargest
from math import exp
from operator import itemgetter

from spacy.tokens import Span

from spacy_bioel.doc import text_of
from spacy_bioel.entities import LabelledString, Mentions
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import Candidate, best_first, is_tied

Ranked = Mapping[LabelledString, tuple[Candidate, ...]]


def agree_in_documents(
    kb: KnowledgeBase,
    mentions: Mentions,
    strings: Sequence[LabelledString],
    ranked: Ranked,
    *,
    coherence: float,
) -> list[tuple[Candidate, ...]]:
    """Return the candidates of each mention, raised by `agree_in_document`, with broken ties."""
    if not coherence:
        return [ranked[string] for string in strings]
    strings_of_docs: dict[int, dict[LabelledString, None]] = defaultdict(dict)
    for owner, string in zip(mentions.owners[: mentions.n_wholes], strings, strict=False):
        strings_of_docs[owner][string] = None
    agreed = {
        owner: agree_in_document(different, ranked, weight=coherence)
        for owner, different in strings_of_docs.items()
        if len(different) > 1
    }
    candidates = [
        agreed.get(owner, ranked).get(string, ranked[string])
        for owner, string in zip(mentions.owners, strings, strict=True)
    ]
    return break_ties(kb, mentions.spans, candidates)


def agree_in_document(
    pairs: Collection[LabelledString], ranked: Ranked, *, weight: float
) -> dict[LabelledString, tuple[Candidate, ...]]:
    """Raise the scores of candidates that other mentions in the document share.

    Documents use several names for a concept ("renal impairment", then "renal insufficiency"). The
    odds of a candidate are multiplied by exp(weight * its best score for another string).

    pairs (Collection): Distinct (normalised string, label) pairs in the document.
    """
    support: dict[str, dict[str, float]] = defaultdict(dict)
    for string, label in pairs:
        for c in ranked[string, label]:
            support[c.id][string] = max(support[c.id].get(string, 0.0), c.score)
    # Two scores suffice: if the best belongs to the string itself, the second-best is used.
    best_two = {
        id: sorted(scores.items(), key=itemgetter(1), reverse=True)[:2]
        for id, scores in support.items()
    }
    rescored: list[tuple[Candidate, ...]] = []
    for string, label in pairs:
        candidates = ranked[string, label]
        odds = []
        for c in candidates:
            others = [score for other, score in best_two[c.id] if other != string]
            odds.append(c.score * exp(weight * others[0]) if others else c.score)
        if odds == [c.score for c in candidates]:
            rescored.append(candidates)
            continue
        before = sum(c.score for c in candidates)
        # The remaining probability, 1 - before, belongs to NIL and lower candidates. Scores from
        # several knowledge bases can sum to more than 1; that sum is then kept.
        total = 1 - before + sum(odds) if before <= 1 else sum(odds) / before
        # dataclasses.replace is several times slower.
        rescored.append(
            tuple(
                Candidate(c.id, round(o / total, 4), c.name, c.evidence, c.kb)
                for c, o in zip(candidates, odds, strict=True)
            )
        )
    return dict(zip(pairs, best_first(rescored), strict=True))


_MAX_COMPARED = 50  # neighbours to compare, so that the running time is linear
_MAX_NEIGHBOURS = 3  # only the most similar concepts in the sentence or document count
_NEIGHBOUR_MIN_SCORE = 0.9
# A tie is broken if the best similarity exceeds the second by this much, and by this factor.
_MIN_MARGIN, _MIN_RATIO = 0.1, 2.0


def break_ties(
    kb: KnowledgeBase, mentions: Sequence[Span], ranked: Sequence[tuple[Candidate, ...]]
) -> list[tuple[Candidate, ...]]:
    """Break ties in favour of candidates that share ancestors with neighbouring concepts.

    Neighbours are the concepts of confident mentions in the same sentence or, if these do not
    break the tie, in the document.
    """
    tied = list(map(is_tied, ranked))
    if not any(tied):
        return list(ranked)
    borders = {
        doc: sentence_borders(text_of(doc)) for doc in dict.fromkeys(m.doc for m in mentions)
    }
    sentences = [(m.doc, bisect_right(borders[m.doc], m.start_char)) for m in mentions]
    neighbours: dict[object, set[str]] = defaultdict(set)
    for (doc, sentence), candidates in zip(sentences, ranked, strict=True):
        if candidates and candidates[0].score > _NEIGHBOUR_MIN_SCORE:
            for place in (doc, (doc, sentence)):
                if len(neighbours[place]) < _MAX_COMPARED:
                    neighbours[place].add(candidates[0].id)

    @cache
    def ancestors(id: str) -> frozenset[int]:
        return kb.lineage_of(kb.find(id))

    @cache
    def similarity(id: str, place: object) -> float:
        """Return the mean ancestor overlap (Jaccard index) of a concept and its neighbours."""
        rows, similarities = ancestors(id), []
        for neighbour in neighbours[place]:
            others = ancestors(neighbour)
            similarities.append(len(rows & others) / len(rows | others))
        nearest = nlargest(_MAX_NEIGHBOURS, similarities)
        return sum(nearest) / max(len(nearest), 1)

    decided = list(ranked)
    for number, (place, candidates) in enumerate(zip(sentences, ranked, strict=True)):
        for neighbourhood in (place, place[0]) if tied[number] else ():
            similarities = [similarity(c.id, neighbourhood) for c in candidates]
            top_score, pairs = candidates[0].score, list(zip(candidates, similarities, strict=True))
            first, second = nlargest(2, (s for c, s in pairs if c.score == top_score))
            if first >= max(second + _MIN_MARGIN, _MIN_RATIO * second):
                odds = [c.score * s for c, s in pairs]
                factor = sum(c.score for c in candidates) / sum(odds)
                scores = [round(factor * o, 4) for o in odds]
                scored = [replace(c, score=s) for c, s in zip(candidates, scores, strict=True)]
                decided[number] = tuple(sorted(scored, key=lambda c: (-c.score, c.id)))
                break
    return decided
