"""From documents to links: their mentions, candidates of their strings, what the documents say of
them, the decision.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from heapq import nlargest
from math import exp
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.lookup import LookupOptions
from spacy_bioel.doc import mention_spans, text_of
from spacy_bioel.entities import Candidates, Mentions, Query, RuleSet, String
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator, LinkerState
from spacy_bioel.models.fusion import have_likelier_equivalents
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import Candidate, Link, ScoredSpan, best_first, ties_of

_REST = attrgetter("name", "evidence", "kb")  # of a candidate
Ranked = Mapping[String, tuple[Candidate, ...]]


def find_mentions(
    docs: Iterable[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None = None
) -> Mentions:
    """Find the mentions to link in a batch of documents, by the setting `mentions`."""
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == BY_DICTIONARY:
        return _find_names(docs, generator, traces)
    key = settings.spans_key
    spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    if settings.mentions == SPANS_AND_DICTIONARY:
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
    excluded = [frozenset(attrs.get("exclude", ())) for attrs in groups]
    given: list[list[ScoredSpan]] = []
    for of_doc, attrs in zip(spans, groups, strict=True):
        scores = attrs.get("scores", ())
        known_scores = scores if len(scores) == len(of_doc) else [1.0] * len(of_doc)
        pairs = zip(of_doc, known_scores, strict=True)
        given.append([(s.start, s.end, s.label_, p) for s, p in pairs])
    found = generator.unambiguous_names.add_to(docs, given, excluded, traces)
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


def lookup_options(state: LinkerState) -> LookupOptions:
    """How names are found by the settings of a linker."""
    options: dict[str, Any] = dict(state.settings.dictionary)
    options["exclude"] = frozenset(normalize_names(list(options["exclude"])))
    return LookupOptions(**options)


def _find_names(
    docs: Sequence[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None
) -> Mentions:
    """Find names of the knowledge base, or nearly so; the name is the query of its mention. Rules
    with labels add what they find to them."""
    rules = generator.rules
    found = generator.dictionary.find(
        docs,
        lookup_options(generator.state),
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
    return break_ties(generator.kb, mentions.spans, agreed) if coherence else agreed


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
    return break_ties(kb, mentions.spans, agreed) if coherence else agreed


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
        total = np.bincount(
            name, own * ~have_likelier_equivalents(kb, concepts, own, name), len(counts)
        )[name]
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


_MOST = 3  # neighbours, the nearest ones
# By so much, and so many times as near, as the next candidate; or the tie stays.
_MARGIN, _RATIO = 0.1, 2.0
_SURE = 0.9  # score of a neighbour that has a say


def break_ties(
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
    A gene that one of the parts is too tells less: flies have "CDK4/6" for a name of Cdk4.

    candidates (tuple): Of the whole mention.
    of_parts (Mapping): Those of each part of its readings.
    """
    whole = candidates
    ids: tuple[str, ...] = tuple(c.id for c in candidates[:1] if c.score >= nil_threshold)
    alone = ids
    best = candidates[0].score if candidates else 0.0
    for reading in query.readings:
        parts = [of_parts[part][:1] for part in reading]
        if not all(parts):
            continue
        firsts = {part[0].id: part[0] for part in parts}
        likelihood = min(part[0].score for part in parts) ** (
            1 if query.parts_agree else len(parts)
        )
        is_part = query.parts_agree and ids == alone and firsts.keys() >= set(ids)
        least = nil_threshold if is_part else max(best, nil_threshold)
        if likelihood > least and len(firsts) == len(parts):
            best, ids = likelihood, tuple(firsts)
            rest = [c for c in whole if c.id not in firsts]
            candidates = (*firsts.values(), *rest)
    return Link(span.start_char, span.end_char, span.label_, ids, candidates)


def with_labels(links: Sequence[Link], kb: KnowledgeBase) -> list[Link]:
    """Links with labels in place of empty ones: `doc.ents` takes no span without one.

    The label is that of the linked concept, or of the best candidate where that is NIL, see
    `KnowledgeBase.labels_of`.
    """
    concepts = [next(iter(link.ids or (c.id for c in link.candidates)), "") for link in links]
    different = list(dict.fromkeys(concepts))
    rows = kb.find_all(different)
    known = rows >= 0
    label_of = dict.fromkeys(different, kb.title)
    ids = [id for id, is_known in zip(different, known.tolist(), strict=True) if is_known]
    label_of |= dict(zip(ids, kb.labels_of(rows[known]), strict=True))
    return [
        link if link.label else replace(link, label=label_of[id])
        for link, id in zip(links, concepts, strict=True)
    ]


@dataclass(frozen=True)
class Ranking:
    """Mentions of a batch of documents with their candidates, before anything is decided.

    generator (CandidateGenerator): What the candidates come from.
    mentions (Mentions): Those that get links.
    asked (Mentions): These and the parts of composites, see `RuleSet.with_parts`.
    candidates (Sequence): Of all that was asked for.
    """

    generator: CandidateGenerator
    mentions: Mentions
    asked: Mentions
    candidates: Sequence[tuple[Candidate, ...]]

    def links(self, *, nil_threshold: float | None = None) -> list[list[Link]]:
        """Decide what the mentions of each document are linked to.

        nil_threshold (float | None): None: that of the settings.
        RAISES BioelError: [B497] when rules fail, [B500] when they add a candidate that the
            knowledge base of its label lacks.
        """
        settings, rules = self.generator.state.settings, self.generator.rules
        threshold = settings.nil_threshold if nil_threshold is None else nil_threshold
        mentions, top, n = self.mentions, settings.max_candidates, len(self.mentions.spans)
        given = Candidates(self.candidates, threshold, self.generator.rank)
        candidates = rules.rescore(self.asked, given)
        candidates = [found[:top] for found in candidates]
        of_parts = iter(candidates[n:])
        flat = []
        tied = ties_of(candidates[:n])
        wholes = zip(mentions.spans, mentions.queries, tied, strict=True)
        weighed = candidates[:n]
        if mentions.likely is not None:  # times the probability of the mention
            weighed = [
                tuple(replace(c, score=round(c.score * likely, 4)) for c in found)
                for found, likely in zip(candidates, mentions.likely, strict=True)
            ]
        for (span, query, is_tied), found in zip(wholes, weighed, strict=True):
            parts = {part: next(of_parts) for part in query.parts} if query.readings else {}
            link = decide(span, query, found, parts, nil_threshold=threshold)
            if len(link.ids) == 1 and is_tied:  # parts of a composite are no tie
                link = replace(link, ids=())
            flat.append(link)
        if settings.mentions == BY_DICTIONARY:
            flat = with_labels(flat, self.generator.kb)
        links: list[list[Link]] = [[] for _ in mentions.docs]
        for owner, link, said in zip(
            mentions.owners, flat, rules.facts(mentions, flat), strict=True
        ):
            links[owner].append(replace(link, facts=said) if said else link)
        return links


def rank_candidates(generator: CandidateGenerator, mentions: Mentions) -> Ranking:
    """Rank the candidates of mentions, and of the parts of composites, in one batch."""
    state, settings = generator.state, generator.state.settings
    asked = generator.rules.with_parts(mentions)
    if mentions.likely is not None and not (state.rescorer or state.alias_table.counts):
        # Names need no search: their concepts are known, and nobody prefers others.
        candidates = rank_names(generator.kb, asked, coherence=settings.coherence)
    else:
        candidates = rank_mentions(generator, asked, coherence=settings.coherence)
    if candidates and state.rescorer:
        reading = state.rescorer.read(generator, asked, candidates)
        candidates = reading.rank(state.rescoring, top=settings.max_candidates)
    return Ranking(generator, mentions, asked, candidates)
