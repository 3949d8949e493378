"""Mentions of a batch of documents, and the candidates that their strings are given."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain
from math import exp
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.gold import mention_spans
from spacy_bioel.pipeline.linker.fusion import repeats
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.pipeline.mentions.dictionary import longest_names
from spacy_bioel.pipeline.mentions.finder import Finding
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import expand_abbreviations
from spacy_bioel.text.composites import split_composite
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Candidate

if TYPE_CHECKING:
    from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
    from spacy_bioel.pipeline.linker.state import LinkerState


@dataclass(frozen=True)
class Mentions:
    """Mentions of a batch of documents; flat lists have one document after the other.

    docs (Sequence[Doc]): The documents.
    spans (Sequence): Those of each document.
    queries (Sequence): Strings to look up for each of them.
    likely (Sequence[float] | None): How likely each is the name that its query says; flat. None:
        another than the finder found them.
    states (Any): Of the model that found them, which will read them; None: another found them.
    """

    docs: Sequence[Doc]
    spans: Sequence[Sequence[Span]]
    queries: Sequence[Sequence[Query]]
    likely: Sequence[float] | None = None
    states: Any = None

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    @property
    def strings(self) -> list[str]:
        """Normalised, abbreviations written out; flat."""
        return [query.whole for of_doc in self.queries for query in of_doc]

    @property
    def labels(self) -> list[str]:
        return [span.label_ for of_doc in self.spans for span in of_doc]

    def with_parts(self) -> Mentions:
        """The mentions of each document, and behind them the parts of composites.

        A part is a mention too, in the place of the words that only it has: what a document says
        of mentions it says of parts.
        """
        if not any(query.readings for of_doc in self.queries for query in of_doc):
            return self
        spans, queries = [], []
        for of_doc, asked in zip(self.spans, self.queries, strict=True):
            parts = [
                (_place_of(part, query, span), Query(part))
                for span, query in zip(of_doc, asked, strict=True)
                for part in query.parts
            ]
            spans.append([*of_doc, *(span for span, _ in parts)])
            queries.append([*asked, *(query for _, query in parts)])
        return replace(self, spans=spans, queries=queries)

    def token_ranges(self) -> NDArray[np.int64]:
        """First token, and the one after the last, counted over all documents. Shape (n, 2)."""
        offsets = np.cumsum([0, *(len(doc) for doc in self.docs)]).tolist()
        pairs = [
            (offset + span.start, offset + span.end)
            for offset, of_doc in zip(offsets, self.spans, strict=False)
            for span in of_doc
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _place_of(part: str, query: Query, span: Span) -> Span:
    """Place of a part: as a whole, or its own words, or the composite where neither is found."""
    reading = next(reading for reading in query.readings if part in reading)
    others = {word for other in reading if other != part for word in other.split()}
    own = " ".join(word for word in part.split() if word not in others)
    text = span.text.lower()
    for words in filter(None, (part, own)):
        start = span.start_char + text.find(words)
        place = span.doc.char_span(start, start + len(words), label=span.label_)
        if words in text and place is not None:
            return place
    return span


def find_mentions(docs: Iterable[Doc], generator: CandidateGenerator) -> Mentions:
    """The mentions to link in a batch of documents, by the setting `mentions`."""
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == "kb":
        return _find_names(docs, generator)
    if settings.mentions == "kb_exact":
        spans = [longest_names(doc, generator.kb) for doc in docs]
    else:
        key = settings.spans_key
        spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    return Mentions(docs, spans, [mention_queries(of_doc, settings) for of_doc in spans])


def finding_of(state: LinkerState) -> Finding:
    """How names are found by the settings and weights of a linker."""
    options: dict[str, Any] = dict(state.settings.finding)
    return Finding(
        abbreviations=state.settings.abbreviations,
        shorthand=state.settings.shorthand,
        weights=state.finding,
        **options,
    )


def _find_names(docs: Sequence[Doc], generator: CandidateGenerator) -> Mentions:
    """Names of the knowledge base, or nearly so; the name is the query of its mention."""
    found = generator.finder.find(docs, finding_of(generator.state))
    spans, queries, likely = [], [], []
    for doc, of_doc in zip(docs, found, strict=True):
        names = generator.kb.names.take([name.row for name in of_doc])
        spans.append([Span(doc, name.first, name.last + 1) for name in of_doc])
        queries.append([Query(normalize_name(name)) for name in names])
        likely += [name.probability for name in of_doc]
    return Mentions(docs, spans, queries, likely)


def rank_names(kb: KnowledgeBase, mentions: Mentions, *, coherence: float) -> list[Ranked]:
    """Candidates as `rank_mentions` has them, of queries that are names: their concepts alone.

    Of several concepts of one knowledge base, one that the name is the preferred name of has twice
    the share. Concepts of several knowledge bases do not compete: they say the same of the name.
    """
    different = list(dict.fromkeys(mentions.strings))
    rows = kb.lookup_names(different)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    weights = 1.0 + is_preferred.astype(np.float64)
    shares = _shares(kb, concepts, weights, np.diff(indptr))
    ids, names = kb.ids_of(concepts), kb.names.take(np.maximum(rows, 0)) if len(rows) else []
    ranked: dict[tuple[str, str], tuple[Candidate, ...]] = {}
    for number, string in enumerate(different):
        own = slice(indptr[number], indptr[number + 1])
        found = [
            Candidate(id, round(share, 4), names[number], "exact")
            for id, share in zip(ids[own], shares[own].tolist(), strict=True)
        ]
        ranked[string, ""] = best_first(found)
    return [_agreed(of_doc, ranked, coherence) for of_doc in _wholes(mentions)]


def _shares(
    kb: KnowledgeBase,
    concepts: NDArray[np.int64],
    weights: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Of each concept of a name, its share among those of the same knowledge base. Shape (n,).

    counts (NDArray[int64]): Concepts of each name.
    """
    name = np.repeat(np.arange(len(counts)), counts)
    shares = np.zeros(len(concepts))
    for part in kb.memberships():
        own = weights * part[concepts]
        total = np.bincount(name, own * ~repeats(kb, concepts, own, name), len(counts))[name]
        shares = np.maximum(shares, np.divide(own, total, out=np.zeros_like(own), where=total > 0))
    return shares


def rank_mentions(
    generator: CandidateGenerator, mentions: Mentions, *, coherence: float
) -> list[Ranked]:
    """For each document, the candidates of the strings of its mentions, see `decision.Ranked`.

    generator (CandidateGenerator): All strings are ranked in one batch.
    coherence (float): See `decision.agree_in_document`; 0: mentions have no say in each other.
    """
    wanted = {
        (string, span.label_)
        for spans, queries in zip(mentions.spans, mentions.queries, strict=True)
        for span, query in zip(spans, queries, strict=True)
        for string in (query.whole, *query.parts)
    }
    ranked = generator.rank(sorted(wanted)) if wanted else {}
    return [_agreed(wholes, ranked, coherence) for wholes in _wholes(mentions)]


def _wholes(mentions: Mentions) -> list[list[tuple[str, str]]]:
    """Different strings of the whole mentions of each document, with their labels."""
    return [
        list(dict.fromkeys((q.whole, s.label_) for s, q in zip(spans, queries, strict=True)))
        for spans, queries in zip(mentions.spans, mentions.queries, strict=True)
    ]


def _agreed(
    wholes: Sequence[tuple[str, str]],
    ranked: dict[tuple[str, str], tuple[Candidate, ...]],
    coherence: float,
) -> Ranked:
    if not coherence or len(wholes) < 2:
        return ranked
    # Not copied: `ranked` has the strings of the whole batch.
    return ChainMap(agree_in_document(wholes, ranked, weight=coherence), ranked)


def weighed(
    mentions: Mentions, candidates: Sequence[tuple[Candidate, ...]]
) -> list[tuple[Candidate, ...]]:
    """Candidates with their probability times that of their mention; flat."""
    if mentions.likely is None:
        return list(candidates)
    return [
        tuple(replace(c, score=round(c.score * likely, 4)) for c in of_mention)
        for of_mention, likely in zip(candidates, mentions.likely, strict=True)
    ]


def given_candidates(mentions: Mentions, ranked: Sequence[Ranked]) -> list[tuple[Candidate, ...]]:
    """Candidates that the string of each mention was given; flat."""
    return [
        of_doc[query.whole, span.label_]
        for spans, queries, of_doc in zip(mentions.spans, mentions.queries, ranked, strict=True)
        for span, query in zip(spans, queries, strict=True)
    ]


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


def best_first(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Candidates by score: ties go to the lower id, in whatever batch they were ranked."""
    return tuple(sorted(candidates, key=lambda c: (-c.score, c.id)))


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
        agreed[string, label] = best_first(moved)
    return agreed
