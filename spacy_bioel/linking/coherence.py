"""Coherence: what the other mentions in a document say about the candidates of a mention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import exp
from operator import itemgetter

from spacy_bioel.entities import LabelledString, Mentions
from spacy_bioel.types import Candidate, best_first

Ranked = Mapping[LabelledString, tuple[Candidate, ...]]


def agree_in_documents(
    mentions: Mentions,
    strings: Sequence[LabelledString],
    ranked: Ranked,
    *,
    coherence: float,
) -> list[tuple[Candidate, ...]]:
    """Return the candidates of each mention, after `agree_in_document`."""
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
    return [
        agreed.get(owner, ranked).get(string, ranked[string])
        for owner, string in zip(mentions.owners, strings, strict=True)
    ]


def agree_in_document(
    pairs: Collection[LabelledString], ranked: Ranked, *, weight: float
) -> dict[LabelledString, tuple[Candidate, ...]]:
    """Raise the scores of candidates that other mentions in the document share.

    Documents use several names for a concept ("renal impairment", then "renal insufficiency"). The
    odds of a candidate among the others are multiplied by exp(weight * its best score for another
    string).

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
        # Their sum is kept: agreement says which concept, not that there is one. Concepts in
        # different knowledge bases do not compete, so the sum can exceed 1.
        total = sum(odds) / sum(c.score for c in candidates)
        # dataclasses.replace is several times slower.
        rescored.append(
            tuple(
                Candidate(c.id, round(min(o / total, 1.0), 4), c.name, c.evidence, c.kb)
                for c, o in zip(candidates, odds, strict=True)
            )
        )
    return dict(zip(pairs, best_first(rescored), strict=True))
