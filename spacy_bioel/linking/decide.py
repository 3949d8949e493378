"""From mentions to links: candidates of strings, what the documents say of them, the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spacy.tokens import Span

from spacy_bioel.entities import Candidates, Mentions, Query
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.mentions import rank_mentions, rank_names
from spacy_bioel.settings import BY_KB
from spacy_bioel.types import Candidate, Link, ties_of


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
    asked (Mentions): These and the parts of composites, see `Mentions.with_parts`.
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
        mentions, top = self.mentions, settings.max_candidates
        given = Candidates(self.candidates, threshold, self.generator.rank)
        candidates = rules.rescore(self.asked, given)
        candidates = [found[:top] for found in candidates]
        of_parts = iter(candidates[len(mentions) :])
        flat = []
        tied = ties_of(candidates[: len(mentions)])
        wholes = zip(mentions.spans, mentions.queries, tied, strict=True)
        weighed = _weighed(mentions, candidates)
        for (span, query, is_tied), found in zip(wholes, weighed, strict=True):
            parts = {part: next(of_parts) for part in query.parts} if query.readings else {}
            link = decide(span, query, found, parts, nil_threshold=threshold)
            if len(link.ids) == 1 and is_tied:  # parts of a composite are no tie
                link = replace(link, ids=())
            flat.append(link)
        if settings.mentions == BY_KB:
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
    asked = mentions.with_parts(generator.rules.ask(mentions.parts()))
    if mentions.likely is not None and not (state.rescorer or state.statistics.counts):
        # Names need no search: their concepts are known, and nobody prefers others.
        candidates = rank_names(generator.kb, asked, coherence=settings.coherence)
    else:
        candidates = rank_mentions(generator, asked, coherence=settings.coherence)
    if candidates and state.rescorer:
        reading = state.rescorer.read(generator, asked, candidates)
        candidates = reading.rank(state.reading, top=settings.max_candidates)
    return Ranking(generator, mentions, asked, candidates)


def _weighed(
    mentions: Mentions, candidates: Sequence[tuple[Candidate, ...]]
) -> Iterator[tuple[Candidate, ...]]:
    """Candidates of mentions, with their probability times that of their mention."""
    if mentions.likely is None:
        yield from candidates[: len(mentions.spans)]
        return
    for found, likely in zip(candidates, mentions.likely, strict=True):
        yield tuple(replace(c, score=round(c.score * likely, 4)) for c in found)
