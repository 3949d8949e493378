"""Mentions of a batch of documents, and the candidates that their strings are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from math import exp
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.finder import Finding
from spacy_bioel.doc import mention_spans
from spacy_bioel.entities import Mentions, Query, RuleSet, String
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.coherence import settle_ties
from spacy_bioel.linking.fusion import repeats
from spacy_bioel.linking.state import LinkerState
from spacy_bioel.settings import BY_KB, SPANS_AND_KB
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.trace import Trace
from spacy_bioel.types import Candidate, ScoredSpan, best_first

_REST = attrgetter("name", "evidence", "kb")  # of a candidate
Ranked = Mapping[String, tuple[Candidate, ...]]


def find_mentions(
    docs: Iterable[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None = None
) -> Mentions:
    """Find the mentions to link in a batch of documents, by the setting `mentions`."""
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == BY_KB:
        return _find_names(docs, generator, traces)
    key = settings.spans_key
    spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    if settings.mentions == SPANS_AND_KB:
        spans = _with_names(docs, spans, generator, traces)
    return generator.rules.ask(Mentions.of(docs, spans, settings))


def _with_names(
    docs: Sequence[Doc],
    spans: Sequence[Sequence[Span]],
    generator: CandidateGenerator,
    traces: Sequence[Trace] | None,
) -> list[list[Span]]:
    """Add unambiguous names of the knowledge base to mentions, and what rules find.

    Rules that the detector has run are run again where there are new names.
    """
    key = generator.state.settings.spans_key
    groups = [doc.spans[key].attrs if key in doc.spans else {} for doc in docs]
    excluded = [frozenset(attrs.get("never", ())) for attrs in groups]
    given = [
        _scored(of_doc, attrs.get("scores", ()))
        for of_doc, attrs in zip(spans, groups, strict=True)
    ]
    found = generator.known_names.add_to(docs, given, excluded, traces)
    known = [
        frozenset(attrs.get("rules", ()) if of_doc is before else ())
        for attrs, of_doc, before in zip(groups, found, given, strict=True)
    ]
    found = generator.rules.for_labels(generator.labels).find(docs, found, traces, known=known)
    return [
        list(of_doc)
        if scored is before
        else [Span(doc, start, end, label=label) for start, end, label, _ in scored]
        for doc, of_doc, before, scored in zip(docs, spans, given, found, strict=True)
    ]


def _scored(spans: Sequence[Span], scores: Sequence[float]) -> list[ScoredSpan]:
    known = scores if len(scores) == len(spans) else [1.0] * len(spans)
    return [(s.start, s.end, s.label_, p) for s, p in zip(spans, known, strict=True)]


def finding_of(state: LinkerState) -> Finding:
    """How names are found by the settings of a linker."""
    options: dict[str, Any] = dict(state.settings.finding)
    options["never"] = frozenset(normalize_names(list(options["never"])))
    return Finding(**options)


def _find_names(
    docs: Sequence[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None
) -> Mentions:
    """Find names of the knowledge base, or nearly so; the name is the query of its mention. Rules
    with labels add what they find to them."""
    rules = generator.rules
    found = generator.finder.find(
        docs,
        finding_of(generator.state),
        forms_of=partial(rules.forms_of, settings=generator.state.settings),
        why_other=rules.why_other if rules.having("why_other") else None,
        traces=traces,
    )
    pairs = [(number, name) for number, of_doc in enumerate(found) for name in of_doc]
    names = normalize_names(generator.kb.names.take([name.row for _, name in pairs]))
    mentions = Mentions(
        docs,
        [Span(docs[number], name.first, name.last + 1) for number, name in pairs],
        list(map(Query, names)),
        [number for number, _ in pairs],
        [name.probability for _, name in pairs],
    )
    own = rules.for_labels(generator.labels, labelled=True)
    return _with_found(mentions, own, generator, traces) if own.having("find") else mentions


def _with_found(
    mentions: Mentions,
    rules: RuleSet,
    generator: CandidateGenerator,
    traces: Sequence[Trace] | None,
) -> Mentions:
    """Add what rules find to names that were found, in the place of those that overlap it."""
    given: list[list[ScoredSpan]] = [[] for _ in mentions.docs]
    found = rules.find(mentions.docs, given, traces)
    new = [
        [Span(doc, start, end, label=label) for start, end, label, _ in of_doc]
        for doc, of_doc in zip(mentions.docs, found, strict=True)
    ]
    taken = {
        (i, token)
        for i, of_doc in enumerate(new)
        for s in of_doc
        for token in range(s.start, s.end)
    }
    kept = [
        number
        for number, (span, owner) in enumerate(zip(mentions.spans, mentions.owners, strict=True))
        if taken.isdisjoint((owner, token) for token in range(span.start, span.end))
    ]
    added = rules.ask(Mentions.of(mentions.docs, new, generator.state.settings))
    likely = mentions.likely or ()
    rows = [
        *((mentions.owners[i], mentions.spans[i], mentions.queries[i], likely[i]) for i in kept),
        *zip(added.owners, added.spans, added.queries, [1.0] * len(added), strict=True),
    ]
    rows.sort(key=lambda row: (row[0], row[1].start, row[1].end))
    owners, spans, queries, scores = (
        map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    return Mentions(mentions.docs, spans, queries, owners, scores)


def rank_mentions(
    generator: CandidateGenerator, mentions: Mentions, *, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Rank the candidates of all mentions, their strings in one batch.

    coherence (float): See `agree_in_document`; 0: mentions have no say in each other. Parts of
        composites have none.
    """
    strings = list(zip(mentions.strings, mentions.labels, strict=True))
    others = {
        (other, label)
        for query, label in zip(mentions.queries, mentions.labels, strict=True)
        for other in query.others
    }
    ranked = generator.rank(sorted({*strings, *others})) if strings else {}
    n = mentions.n_wholes
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
