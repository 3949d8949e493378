"""Link documents: find their mentions, rank candidates, apply document context, and decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
from spacy.tokens import Doc, Span

from spacy_bioel.doc import mention_spans
from spacy_bioel.entities import Candidates, Mentions, Query
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.coherence import agree_in_documents
from spacy_bioel.mentions.selection import add_defined_forms
from spacy_bioel.models.fusion import have_likelier_equivalents
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import (
    Candidate,
    DoubleArray,
    IntArray,
    Link,
    ScoredSpan,
    best_first,
    is_tied,
)

_BY_DEFINITION = "by a short form that the document defines"


def find_mentions(
    docs: Iterable[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None = None
) -> Mentions:
    """Find the mentions to link in a batch of documents, according to the `mentions` setting."""
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
    """Add unambiguous knowledge base names and spans found by entity rules to the mentions.

    Rules that the detector has already run are run again only if names were added.
    """
    key = generator.state.settings.spans_key
    before = [scored(doc, of_doc, key) for doc, of_doc in zip(docs, spans, strict=True)]
    excluded = [_attrs_of(doc, key).get("exclude", ()) for doc in docs]
    with_names = generator.unambiguous_names.add_to(docs, before, excluded, traces)
    already_run = []
    for number, doc in enumerate(docs):
        is_unchanged = with_names[number] is before[number]
        if not is_unchanged and generator.state.settings.abbreviations:
            found = add_defined_forms(doc, with_names[number])
            if traces:
                traces[number].changed(with_names[number], found, _BY_DEFINITION)
            with_names[number] = found
        already_run.append(_attrs_of(doc, key).get("rules", ()) if is_unchanged else ())
    rules = generator.rules.for_labels(generator.labels)
    after = rules.find(docs, with_names, traces, already_run=already_run)
    return [
        list(spans[i]) if after[i] is before[i] else [Span(doc, *s[:3]) for s in after[i]]
        for i, doc in enumerate(docs)
    ]


def _attrs_of(doc: Doc, key: str) -> Mapping[str, Any]:
    return doc.spans[key].attrs if key in doc.spans else {}


def scored(doc: Doc, spans: Iterable[Span], key: str) -> list[ScoredSpan]:
    """Return mentions with their probabilities in the span group, or 1 if unknown."""
    group, scores = doc.spans.get(key, ()), _attrs_of(doc, key).get("scores", ())
    places = [(s.start, s.end, s.label_) for s in group]
    known = dict(zip(places, scores, strict=True)) if len(scores) == len(places) else {}
    return [
        (*place, known.get(place, 1.0)) for place in ((s.start, s.end, s.label_) for s in spans)
    ]


def _find_names(
    docs: Sequence[Doc], generator: CandidateGenerator, traces: Sequence[Trace] | None
) -> Mentions:
    """Find exact and similar knowledge base names in texts; each mention's query is its name.

    Entity rules that apply to particular labels add their spans.
    """
    rules, settings = generator.rules, generator.state.settings
    names_of_docs = generator.dictionary.find(
        docs,
        settings.dictionary,
        forms_of=partial(rules.forms_of, settings=settings),
        why_other=rules.why_other if rules.overriding("why_other") else None,
        traces=traces,
    )
    pairs = [(number, name) for number, names in enumerate(names_of_docs) for name in names]
    strings = normalize_names(generator.kb.names.take([name.row for _, name in pairs]))
    queries: dict[tuple[int, int, int, str], Query] = {}
    spans: list[list[ScoredSpan]] = [[] for _ in docs]
    for (owner, name), string in zip(pairs, strings, strict=True):
        queries[owner, name.first, name.last + 1, ""] = Query(string)
        spans[owner].append((name.first, name.last + 1, "", name.probability))
    label_rules = rules.for_labels(generator.labels, labelled=True)
    found = label_rules.find(docs, [[] for _ in docs], traces)
    spans = [_without_overlapped(*pair) for pair in zip(spans, found, strict=True)]
    spans = rules.completing_dictionary().find(docs, spans, traces)
    rows = sorted({(owner, *span) for owner, of_doc in enumerate(spans) for span in of_doc})
    all_spans = [Span(docs[owner], start, end, label) for owner, start, end, label, _ in rows]
    new: list[list[Span]] = [[] for _ in docs]
    for row, span in zip(rows, all_spans, strict=True):
        if row[:4] not in queries:
            new[row[0]].append(span)
    added = rules.ask(Mentions.of(docs, new, settings))
    for owner, span, query in zip(added.owners, added.spans, added.queries, strict=True):
        queries[owner, span.start, span.end, span.label_] = query
    asked, owners = [queries[row[:4]] for row in rows], [row[0] for row in rows]
    return Mentions(docs, all_spans, asked, owners, [row[4] for row in rows])


def _without_overlapped(
    names: Sequence[ScoredSpan], found: Sequence[ScoredSpan]
) -> list[ScoredSpan]:
    """Return the spans that rules found, as certain, and the names that do not overlap them."""
    taken = {token for start, end, *_ in found for token in range(start, end)}
    certain = [(*span[:3], 1.0) for span in found]
    return sorted([*certain, *(name for name in names if taken.isdisjoint(range(*name[:2])))])


def rank_mentions(
    generator: CandidateGenerator, mentions: Mentions, *, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Rank the candidates of all mentions; their strings are looked up in one batch.

    coherence (float): Weight of `agree_in_document`, which ignores parts of composites.
    """
    strings = list(zip(mentions.strings, mentions.labels, strict=True))
    wanted = set(strings)
    for query, label in zip(mentions.queries, mentions.labels, strict=True):
        wanted.update((other, label) for other in query.others)
    ranked = generator.rank(sorted(wanted)) if strings else {}
    return agree_in_documents(mentions, strings, ranked, coherence=coherence)


def rank_names(
    kb: KnowledgeBase, mentions: Mentions, *, coherence: float
) -> list[tuple[Candidate, ...]]:
    """Rank, for each dictionary mention, the concepts that have the matched name.

    Concepts in the same knowledge base share the score; a concept whose preferred name was matched
    counts twice. Concepts in different knowledge bases do not compete, because all may be right.
    """
    different = list(dict.fromkeys(mentions.strings))
    rows = kb.lookup_names(different)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    weights = 1.0 + is_preferred.astype(np.float64)
    shares = _shares_within_kbs(kb, concepts, weights, np.diff(indptr)).tolist()
    ids, names = kb.ids_of(concepts), kb.names.take(np.maximum(rows, 0)) if len(rows) else []
    entries = list(zip(ids, shares, strict=True))
    candidates = [
        [Candidate(id, round(x, 4), name, "exact", kb.fingerprint) for id, x in entries[first:end]]
        for name, (first, end) in zip(names, pairwise(indptr.tolist()), strict=True)
    ]
    keys, strings = ([(name, "") for name in names] for names in (different, mentions.strings))
    ranked = dict(zip(keys, best_first(candidates), strict=True))
    return agree_in_documents(mentions, strings, ranked, coherence=coherence)


def _shares_within_kbs(
    kb: KnowledgeBase, concepts: IntArray, weights: DoubleArray, counts: IntArray
) -> DoubleArray:
    """Return each concept's share of the weight for its name and knowledge base. Shape (n,)."""
    name = np.repeat(np.arange(len(counts)), counts)  # counts: number of concepts with each name
    shares = np.zeros(len(concepts))
    for is_member in kb.memberships():
        weight = weights * is_member[concepts]
        # Equivalent concepts count once.
        is_first = ~have_likelier_equivalents(kb, concepts, weight, name)
        total = np.bincount(name, weight * is_first, len(counts))[name]
        share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        shares = np.maximum(shares, share)
    return shares


def decide(
    span: Span,
    query: Query,
    candidates: tuple[Candidate, ...],
    part_candidates: Mapping[str, tuple[Candidate, ...]],
    *,
    nil_threshold: float,
) -> Link:
    """Decide what a mention is linked to: one concept, several (composite), or none (NIL).

    A composite reading is chosen if its parts are jointly more probable than the whole mention. So
    a name that contains "and" ("head and neck neoplasms") remains one concept, as do mentions that
    training texts linked to one concept. If the concept of the whole mention is among the parts,
    the reading only has to reach the threshold: "CDK4/6" is a name of Cdk4 in flies.

    candidates (tuple): Candidates of the whole mention.
    part_candidates (Mapping): Candidates of each part of its readings.
    """
    whole = candidates
    whole_ids = ids = tuple(c.id for c in whole[:1] if c.score >= nil_threshold)
    best = candidates[0].score if candidates else 0.0
    for reading in query.readings:
        if not all(part_candidates[part] for part in reading):
            continue
        firsts = [part_candidates[part][0] for part in reading]
        different = {first.id: first for first in firsts}
        probability = min(first.score for first in firsts)
        if not query.parts_agree:
            probability = probability ** len(reading)
        includes_whole = query.parts_agree and ids == whole_ids and different.keys() >= set(ids)
        required = nil_threshold if includes_whole else max(best, nil_threshold)
        if probability > required and len(different) == len(reading):
            best, ids = probability, tuple(different)
            others = [c for c in whole if c.id not in different]
            candidates = (*different.values(), *others)
    return Link(span.start_char, span.end_char, span.label_, ids, candidates)


def with_labels(links: Sequence[Link], kb: KnowledgeBase) -> list[Link]:
    """Fill in missing link labels, because `doc.ents` cannot hold spans without a label.

    The label comes from the linked concept or, for NIL, from the best candidate (see
    `KnowledgeBase.labels_of`).
    """
    concepts = [next(iter(link.ids or [c.id for c in link.candidates]), "") for link in links]
    different = list(dict.fromkeys(concepts))
    rows = kb.find_all(different)
    label_of = dict.fromkeys(different, kb.title)
    known_ids = [id for id, row in zip(different, rows.tolist(), strict=True) if row >= 0]
    label_of |= dict(zip(known_ids, kb.labels_of(rows[rows >= 0]), strict=True))
    return [
        link if link.label else replace(link, label=label_of[id])
        for link, id in zip(links, concepts, strict=True)
    ]


@dataclass(frozen=True)
class Ranking:
    """Mentions of a batch of documents with their ranked candidates, before the decision.

    generator (CandidateGenerator): The source of the candidates.
    mentions (Mentions): The mentions to link.
    asked (Mentions): The mentions and the parts of composites (see `RuleSet.with_parts`).
    candidates (Sequence): Candidates of each mention and part in `asked`.
    may_hide (bool): Whether a mention without a concept may hide an unambiguous name.
    """

    generator: CandidateGenerator
    mentions: Mentions
    asked: Mentions
    candidates: Sequence[tuple[Candidate, ...]]
    may_hide: bool = False

    def links(self, *, nil_threshold: float | None = None) -> list[list[Link]]:
        """Decide what the mentions of each document are linked to.

        nil_threshold (float | None): Minimum score of a link; None: as in the settings.
        RAISES BioelError: [B497] if rules fail, [B500] if they add a candidate that is not in the
            knowledge base for its label.
        """
        return self.revealed(nil_threshold=nil_threshold)[1]

    def revealed(
        self, traces: Sequence[Trace] | None = None, *, nil_threshold: float | None = None
    ) -> tuple[Ranking, list[list[Link]]]:
        """Replace the mentions without a concept (NIL) that hide unambiguous names.

        RETURNS (tuple): The ranking for the documents with such names (itself if there are none),
            and the links of all documents.
        """
        generator, docs = self.generator, self.mentions.docs
        settings = generator.state.settings
        threshold = settings.nil_threshold if nil_threshold is None else nil_threshold
        links = self._decide(threshold)
        spans: list[list[Span]] = [[] for _ in docs]
        nil: list[list[Span]] = [[] for _ in docs]
        decided = zip(self.mentions.owners, self.mentions.spans, chain(*links), strict=True)
        for owner, span, link in decided if self.may_hide else ():
            spans[owner].append(span)
            if not link.ids and generator.types_of(span.label_) != ():
                nil[owner].append(span)
        key, hiding = settings.spans_key, [i for i, of_doc in enumerate(nil) if of_doc]
        before = {i: scored(docs[i], spans[i], key) for i in hiding}
        found = generator.unambiguous_names.add_to(
            [docs[i] for i in hiding],
            list(before.values()),
            [_attrs_of(docs[i], key).get("exclude", ()) for i in hiding],
            traces and [traces[i] for i in hiding],
            nil=[scored(docs[i], nil[i], key) for i in hiding],
        )
        with_names = {i: new for i, new in zip(hiding, found, strict=True) if new is not before[i]}
        if not with_names:
            return self, links
        new_spans = [[Span(docs[i], *s[:3]) for s in new] for i, new in with_names.items()]
        mentions = Mentions.of([docs[i] for i in with_names], new_spans, settings)
        ranking = rank_candidates(generator, generator.rules.ask(mentions))
        for i, of_doc in zip(with_names, ranking._decide(threshold), strict=True):
            links[i] = of_doc
        return ranking, links

    def _decide(self, threshold: float) -> list[list[Link]]:
        settings, rules = self.generator.state.settings, self.generator.rules
        mentions, n = self.mentions, len(self.mentions.spans)
        unscored = Candidates(self.candidates, threshold, self.generator.rank)
        rescored = rules.rescore(self.asked, unscored)
        candidates = [of_mention[: settings.max_candidates] for of_mention in rescored]
        wholes, parts = candidates[:n], iter(candidates[n:])
        tied = list(map(is_tied, wholes))
        if mentions.probabilities is not None:
            for number, probability in enumerate(mentions.probabilities):
                wholes[number] = tuple(
                    replace(c, score=round(c.score * probability, 4)) for c in wholes[number]
                )
        links = []
        for number, (span, query) in enumerate(zip(mentions.spans, mentions.queries, strict=True)):
            query_parts = query.parts if query.readings else ()
            part_candidates = {part: next(parts) for part in query_parts}
            link = decide(span, query, wholes[number], part_candidates, nil_threshold=threshold)
            if len(link.ids) == 1 and tied[number]:
                link = replace(link, ids=())
            links.append(link)
        if settings.mentions == BY_DICTIONARY:
            links = with_labels(links, self.generator.kb)
        links_of_docs: list[list[Link]] = [[] for _ in mentions.docs]
        facts = rules.facts(mentions, links)
        for owner, link, link_facts in zip(mentions.owners, links, facts, strict=True):
            links_of_docs[owner].append(replace(link, facts=link_facts) if link_facts else link)
        return links_of_docs


def rank_candidates(generator: CandidateGenerator, mentions: Mentions) -> Ranking:
    """Rank the candidates of mentions and composite parts, in one batch."""
    state, settings = generator.state, generator.state.settings
    asked = generator.rules.with_parts(mentions)
    if mentions.probabilities is not None and not (state.rescorer or state.alias_table.counts):
        # The queries are knowledge base names, so no search is needed, and there is no alias table
        # that could prefer other concepts.
        candidates = rank_names(generator.kb, asked, coherence=settings.coherence)
    else:
        candidates = rank_mentions(generator, asked, coherence=settings.coherence)
    if candidates and state.rescorer:
        scores = state.rescorer.score(generator, asked, candidates)
        candidates = scores.rank(state.rescoring, top=settings.max_candidates)
    return Ranking(generator, mentions, asked, candidates)
