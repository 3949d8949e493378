"""Mentions of a batch of documents, and the candidates that their strings are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import exp
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.finder import Finding
from spacy_bioel.doc import long_forms, mention_spans
from spacy_bioel.entities.composites import split_composite
from spacy_bioel.entities.notes.layout import without_other_meanings
from spacy_bioel.entities.notes.shorthand import add_names
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator, String
from spacy_bioel.linking.coherence import settle_ties
from spacy_bioel.linking.fusion import repeats
from spacy_bioel.linking.state import LinkerState
from spacy_bioel.settings import BY_KB, SPANS_AND_KB, LinkerSettings
from spacy_bioel.text.abbreviations import expand_abbreviations
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import Candidate

_REST = attrgetter("name", "evidence", "kb")  # of a candidate
Ranked = Mapping[String, tuple[Candidate, ...]]


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


@dataclass(frozen=True)
class Mentions:
    """Mentions of a batch of documents.

    owners (Sequence[int]): Number of the document of each mention.
    likely (Sequence[float] | None): How likely each is the name that its query says. None:
        another than the finder found them.
    states (dict | None): Of the model that found them, which will read them; None: another did.
    """

    docs: Sequence[Doc]
    spans: Sequence[Span]
    queries: Sequence[Query]
    owners: Sequence[int]
    likely: Sequence[float] | None = None
    states: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        docs: Sequence[Doc],
        spans: Sequence[Sequence[Span]],
        settings: LinkerSettings,
        states: dict[str, Any] | None = None,
    ) -> Mentions:
        """Make queries of the mentions of each document."""
        flat = list(chain.from_iterable(spans))
        owners = [number for number, of_doc in enumerate(spans) for _ in of_doc]
        return cls(docs, flat, mention_queries(flat, settings), owners, states=states)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def strings(self) -> list[str]:
        """Normalised, abbreviations written out."""
        return [query.whole for query in self.queries]

    @property
    def labels(self) -> list[str]:
        return [span.label_ for span in self.spans]

    def with_parts(self) -> Mentions:
        """Add the parts of composites behind all mentions.

        A part is a mention too, in the place of the words that only it has: what a document says
        of mentions it says of parts.
        """
        mentions = zip(self.spans, self.queries, self.owners, strict=True)
        parts = [
            (_place_of(part, query, span), Query(part), owner)
            for span, query, owner in mentions
            for part in query.parts
        ]
        if not parts:
            return self
        spans, queries, owners = zip(*parts, strict=True)
        return replace(
            self,
            spans=[*self.spans, *spans],
            queries=[*self.queries, *queries],
            owners=[*self.owners, *owners],
        )

    def token_ranges(self) -> NDArray[np.int64]:
        """First token, and the one after the last, counted over all documents. Shape (n, 2)."""
        first = np.cumsum([0, *map(len, self.docs)]).tolist()
        places = zip(self.spans, self.owners, strict=True)
        pairs = [(first[owner] + span.start, first[owner] + span.end) for span, owner in places]
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


def mention_queries(spans: Sequence[Span], settings: LinkerSettings) -> list[Query]:
    """Make the queries of mentions, of any documents."""
    docs = dict.fromkeys(span.doc for span in spans) if settings.abbreviations else ()
    forms = {doc: found for doc in docs if (found := long_forms(doc))}
    texts = [
        expand_abbreviations(span.text, forms[span.doc]) if span.doc in forms else span.text
        for span in spans
    ]
    return text_queries(texts, settings)


def text_queries(texts: Sequence[str], settings: LinkerSettings) -> list[Query]:
    """Make the queries of texts of mentions, abbreviations written out."""
    readings = [split_composite(text) if settings.composites else [] for text in texts]
    return [
        Query(whole, tuple(tuple(normalize_names(reading)) for reading in of_text))
        for whole, of_text in zip(normalize_names(texts), readings, strict=True)
    ]


def find_mentions(docs: Iterable[Doc], generator: CandidateGenerator) -> Mentions:
    """Find the mentions to link in a batch of documents, by the setting `mentions`."""
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == BY_KB:
        return _find_names(docs, generator)
    key = settings.spans_key
    spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    if settings.mentions == SPANS_AND_KB:
        spans = generator.known_names.add_to(docs, spans)
        how = finding_of(generator.state)
        if how.notes:
            return _with_notes(docs, spans, generator, measurements=how.measurements)
    return Mentions.of(docs, spans, settings)


def _with_notes(
    docs: Sequence[Doc],
    spans: Sequence[list[Span]],
    generator: CandidateGenerator,
    *,
    measurements: bool,
) -> Mentions:
    """Add what notes alone say to the mentions of each document; the name is its query."""
    added = [generator.notes.find(doc, measurements=measurements) for doc in docs]
    spans = list(map(without_other_meanings, docs, spans))
    both = [add_names(*pair) for pair in zip(spans, added, strict=True)]
    settings = generator.state.settings
    mentions = Mentions.of(docs, both, settings)
    names = {(x.doc, x.start, x.end): name for of_doc in added for x, name in of_doc}
    of_names = dict(zip(names, text_queries(list(names.values()), settings), strict=True))
    places = [(x.doc, x.start, x.end) for x in mentions.spans]
    queries = [of_names.get(*pair) for pair in zip(places, mentions.queries, strict=True)]
    return replace(mentions, queries=queries)


def finding_of(state: LinkerState) -> Finding:
    """How names are found by the settings of a linker."""
    options: dict[str, Any] = dict(state.settings.finding)
    options["never"] = frozenset(normalize_names(list(options["never"])))
    return Finding(
        abbreviations=state.settings.abbreviations,
        shorthand=state.settings.shorthand,
        **options,
    )


def _find_names(docs: Sequence[Doc], generator: CandidateGenerator) -> Mentions:
    """Find names of the knowledge base, or nearly so; the name is the query of its mention."""
    found = generator.finder.find(docs, finding_of(generator.state))
    pairs = [(number, name) for number, of_doc in enumerate(found) for name in of_doc]
    names = normalize_names(generator.kb.names.take([name.row for _, name in pairs]))
    return Mentions(
        docs,
        [Span(docs[number], name.first, name.last + 1) for number, name in pairs],
        list(map(Query, names)),
        [number for number, _ in pairs],
        [name.probability for _, name in pairs],
    )


def rank_mentions(
    generator: CandidateGenerator, mentions: Mentions, *, n: int, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Rank the candidates of all mentions, their strings in one batch.

    n (int): How many have a say in each other: the first ones. Behind them are parts.
    coherence (float): See `agree_in_document`; 0: mentions have no say in each other.
    """
    strings = list(zip(mentions.strings, mentions.labels, strict=True))
    ranked = generator.rank(sorted(set(strings))) if strings else {}
    agreed = _agreed(mentions.owners, strings, ranked, n=n, coherence=coherence)
    return settle_ties(generator.kb, mentions.spans, agreed) if coherence else agreed


def rank_names(
    kb: KnowledgeBase, mentions: Mentions, *, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Rank the candidates of queries that are names: their concepts alone.

    Of several concepts of one knowledge base, one that the name is the preferred name of has twice
    the share. Concepts of several knowledge bases do not compete: they say the same of the name.
    """
    different = list(dict.fromkeys(mentions.strings))
    rows = kb.lookup_names(different)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    weights = 1.0 + is_preferred.astype(np.float64)
    shares = _shares(kb, concepts, weights, np.diff(indptr)).tolist()
    ids, names = kb.ids_of(concepts), kb.names.take(np.maximum(rows, 0)) if len(rows) else []
    found = []
    for number, name in enumerate(names):
        own = slice(indptr[number], indptr[number + 1])
        pairs = zip(ids[own], shares[own], strict=True)
        found.append([Candidate(id, round(share, 4), name, "exact") for id, share in pairs])
    ranked = {(string, ""): of for string, of in zip(different, best_first(found), strict=True)}
    strings = [(string, "") for string in mentions.strings]
    agreed = _agreed(mentions.owners, strings, ranked, n=len(strings), coherence=coherence)
    return settle_ties(kb, mentions.spans, agreed) if coherence else agreed


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


def best_first(candidates: Iterable[Iterable[Candidate]]) -> list[tuple[Candidate, ...]]:
    """Sort the candidates of each mention by score: ties go to the lower id, in whatever batch."""
    return [tuple(sorted(found, key=lambda c: (-c.score, c.id))) for found in candidates]


def _agreed(
    owners: Sequence[int], strings: Sequence[String], ranked: Ranked, *, n: int, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Candidates of each mention, which agree in its document; the arguments as above."""
    of_docs: dict[int, dict[String, None]] = defaultdict(dict)
    for owner, string in zip(owners[:n] if coherence else (), strings, strict=False):
        of_docs[owner][string] = None
    agreed = {
        owner: agree_in_document(different, ranked, weight=coherence)
        for owner, different in of_docs.items()
        if len(different) > 1
    }
    return [
        agreed.get(owner, ranked).get(string, ranked[string])
        for owner, string in zip(owners, strings, strict=True)
    ]


def agree_in_document(
    pairs: Collection[String], ranked: Ranked, *, weight: float
) -> dict[String, tuple[Candidate, ...]]:
    """Draw the candidates of a document's mentions to what its other mentions are.

    A document calls one thing by several names ("renal impairment", then "renal insufficiency"):
    the odds of a candidate grow by e to the `weight` times its best score for another string.

    pairs (Collection): Different (normalised string, label) of the document.
    """
    support: dict[str, dict[str, float]] = defaultdict(dict)
    for string, label in pairs:
        for c in ranked[string, label]:
            support[c.id][string] = max(support[c.id].get(string, 0.0), c.score)
    # Of all strings but one, the best is the first or the second of all.
    by_score = partial(sorted, key=itemgetter(1), reverse=True)
    best = {id: by_score(of.items())[:2] for id, of in support.items()}
    moved: list[tuple[Candidate, ...]] = []
    for string, label in pairs:
        candidates = ranked[string, label]
        others = [
            next((score for other, score in best[c.id] if other != string), 0.0) for c in candidates
        ]
        if not any(others):
            moved.append(candidates)
            continue
        odds = [c.score * exp(weight * o) for c, o in zip(candidates, others, strict=True)]
        before = sum(c.score for c in candidates)
        # With NIL and all that is left; concepts of several knowledge bases may both be right.
        total = 1 - before + sum(odds) if before <= 1 else sum(odds) / before
        scored = zip(candidates, odds, strict=True)
        # dataclasses.replace takes several times as long.
        moved.append(tuple(Candidate(c.id, round(o / total, 4), *_REST(c)) for c, o in scored))
    return dict(zip(pairs, best_first(moved), strict=True))
