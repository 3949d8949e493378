"""From ranked candidates to the link of a mention: one concept, several for a composite, or NIL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain
from math import exp
from operator import itemgetter

from spacy.tokens import Span

from spacy_bioel.pipeline.abbreviations import long_forms
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.text.abbreviations import expand_abbreviations
from spacy_bioel.text.composites import split_composite
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Candidate, Link

# Candidates of (normalised string, label).
Ranked = Mapping[tuple[str, str], tuple[Candidate, ...]]


@dataclass(frozen=True, slots=True)
class Query:
    """Strings to look up for a mention, normalised.

    whole (str): The mention, its abbreviations written out.
    readings (tuple): Ways to read it as a composite, the likeliest first: the parts of each.
    """

    whole: str
    readings: tuple[tuple[str, ...], ...] = ()

    @property
    def parts(self) -> list[str]:
        """Different parts of all readings."""
        return list(dict.fromkeys(chain.from_iterable(self.readings)))


def mention_queries(spans: Sequence[Span], settings: LinkerSettings) -> list[Query]:
    """Queries of the mentions of one document."""
    if not spans:
        return []
    forms = long_forms(spans[0].doc) if settings.abbreviations else {}
    written_out = [expand_abbreviations(span.text, forms) for span in spans]
    return [
        Query(
            normalize_name(text),
            tuple(
                tuple(normalize_name(part) for part in reading)
                for reading in (split_composite(text) if settings.composites else ())
            ),
        )
        for text in written_out
    ]


def best_first(candidate: Candidate) -> tuple[float, str]:
    """Sort key of candidates: ties go to the lower id, in whatever batch they were ranked."""
    return -candidate.score, candidate.id


def agree_in_document(
    pairs: Collection[tuple[str, str]], ranked: Ranked, *, weight: float
) -> dict[tuple[str, str], tuple[Candidate, ...]]:
    """Candidates of a document's mentions, drawn to what its other mentions are.

    A document calls one thing by several names ("renal impairment", then "renal insufficiency"):
    the odds of a candidate grow by e to the `weight` times its best score for another string.

    pairs (Collection): Different (normalised string, label) of the document.
    """
    support: dict[str, dict[str, float]] = defaultdict(dict)
    for string, label in pairs:
        for c in ranked[string, label]:
            support[c.id][string] = max(support[c.id].get(string, 0.0), c.score)
    # Of all strings but one, the best is the first or the second of all.
    best = {id: nlargest(2, of.items(), key=itemgetter(1)) for id, of in support.items()}
    agreed = {}
    for string, label in pairs:
        candidates = ranked[string, label]
        others = [
            next((score for other, score in best[c.id] if other != string), 0.0) for c in candidates
        ]
        odds = [c.score * exp(weight * o) for c, o in zip(candidates, others, strict=True)]
        before = sum(c.score for c in candidates)
        # With NIL and all that is left; concepts of several knowledge bases may both be right.
        total = 1 - before + sum(odds) if before <= 1 else sum(odds) / before
        moved = [
            replace(c, score=round(o / total, 4)) for c, o in zip(candidates, odds, strict=True)
        ]
        agreed[string, label] = tuple(sorted(moved, key=best_first))
    return agreed


def decide(
    span: Span,
    query: Query,
    candidates: tuple[Candidate, ...],
    of_parts: Mapping[str, tuple[Candidate, ...]],
    *,
    nil_threshold: float,
) -> Link:
    """The link of a mention.

    A composite reading is taken if all its parts together are likelier than the whole: a name
    with "and" in it ("head and neck neoplasms") stays one, and so does what was one in training.

    candidates (tuple): Of the whole mention.
    of_parts (Mapping): Those of each part of its readings.
    """
    whole = candidates
    ids: tuple[str, ...] = tuple(c.id for c in candidates[:1] if c.score >= nil_threshold)
    best = candidates[0].score if candidates else 0.0
    for reading in query.readings:
        parts = [of_parts[part][:1] for part in reading]
        if not all(parts):
            continue
        firsts = {part[0].id: part[0] for part in parts}
        likelihood = min(part[0].score for part in parts) ** len(parts)
        if likelihood > max(best, nil_threshold) and len(firsts) == len(parts):
            best, ids = likelihood, tuple(firsts)
            rest = [c for c in whole if c.id not in firsts]
            candidates = (*firsts.values(), *rest)
    return Link(span.start_char, span.end_char, span.label_, ids, candidates)
