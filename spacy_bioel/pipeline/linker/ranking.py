"""From mentions to links: candidates of strings, what the documents say of them, the decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spacy.tokens import Span
from thinc.api import Model

from spacy_bioel.models.reading import reading_evidence, reads
from spacy_bioel.pipeline.contextual.methods import read_mentions
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.decision import Query, decide
from spacy_bioel.pipeline.linker.labels import with_labels
from spacy_bioel.pipeline.linker.organisms import weigh_organisms
from spacy_bioel.pipeline.linker.queries import (
    Mentions,
    given_candidates,
    rank_mentions,
    rank_names,
    weighed,
)
from spacy_bioel.types import Candidate, Link


@dataclass(frozen=True)
class Ranking:
    """Mentions of a batch of documents with their candidates, before anything is decided.

    generator (CandidateGenerator): What the candidates come from.
    mentions (Mentions): Those that get links.
    asked (Mentions): These and the parts of composites, see `Mentions.with_parts`.
    candidates (Sequence): Of all that was asked for; flat.
    """

    generator: CandidateGenerator
    mentions: Mentions
    asked: Mentions
    candidates: Sequence[tuple[Candidate, ...]]

    def links(self, *, nil_threshold: float | None = None) -> list[list[Link]]:
        """Decide what the mentions of each document are linked to.

        nil_threshold (float | None): None: that of the settings.
        """
        settings, kb = self.generator.state.settings, self.generator.kb
        threshold = settings.nil_threshold if nil_threshold is None else nil_threshold
        candidates = self.candidates
        if "organism" in settings.evidence:
            n_mentions = list(map(len, self.mentions.spans))
            candidates = weigh_organisms(
                kb, self.asked, candidates, n_mentions=n_mentions, nil_threshold=threshold
            )
        found = iter(weighed(self.mentions, candidates))
        links = [
            list(_decide(spans, queries, found, threshold))
            for spans, queries in zip(self.mentions.spans, self.mentions.queries, strict=True)
        ]
        return with_labels(links, kb) if settings.by_kb else links


def rank_candidates(
    model: Model[Any, Any], generator: CandidateGenerator, mentions: Mentions
) -> Ranking:
    """Rank the candidates of mentions, and of the parts of composites, in one batch.

    model (Model): The linker's, which may read the documents.
    """
    settings = generator.state.settings
    is_reading = reading_evidence(model) in settings.evidence and reads(model)
    asked = mentions.with_parts()
    if mentions.likely is not None and not (is_reading or generator.state.statistics.counts):
        # Names need no search: their concepts are known, and nobody prefers others.
        ranked = rank_names(generator.kb, mentions, coherence=settings.coherence)
    else:
        ranked = rank_mentions(generator, mentions, coherence=settings.coherence)
    candidates = given_candidates(asked, ranked)
    if candidates and is_reading:
        reading = read_mentions(model, generator, asked, candidates)
        candidates = reading.rank(generator.state.reading, top=settings.max_candidates)
    return Ranking(generator, mentions, asked, candidates)


def _decide(
    spans: Sequence[Span],
    queries: Sequence[Query],
    found: Iterator[tuple[Candidate, ...]],
    nil_threshold: float,
) -> Iterator[Link]:
    """Links of one document.

    found (Iterator): Candidates of its mentions, then of their parts, see `Mentions.with_parts`.
    """
    wholes = list(islice(found, len(spans)))
    for span, query, whole in zip(spans, queries, wholes, strict=True):
        parts = {part: next(found) for part in query.parts}
        yield decide(span, query, whole, parts, nil_threshold=nil_threshold)
