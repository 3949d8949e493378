"""Mentions of a batch of documents, and the candidates that their strings are given."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.gold import mention_spans
from spacy_bioel.pipeline.linker.decision import (
    Query,
    Ranked,
    agree_in_document,
    mention_queries,
)
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.pipeline.mentions.dictionary import longest_names
from spacy_bioel.types import Candidate

if TYPE_CHECKING:
    from spacy_bioel.pipeline.linker.candidates import CandidateGenerator


@dataclass(frozen=True)
class Mentions:
    """Mentions of a batch of documents; flat lists have one document after the other.

    docs (Sequence[Doc]): The documents.
    spans (Sequence): Those of each document.
    queries (Sequence): Strings to look up for each of them.
    states (Any): Of the model that found them, which will read them; None: another found them.
    """

    docs: Sequence[Doc]
    spans: Sequence[Sequence[Span]]
    queries: Sequence[Sequence[Query]]
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

    def token_ranges(self) -> NDArray[np.int64]:
        """First token, and the one after the last, counted over all documents. Shape (n, 2)."""
        offsets = np.cumsum([0, *(len(doc) for doc in self.docs)]).tolist()
        pairs = [
            (offset + span.start, offset + span.end)
            for offset, of_doc in zip(offsets, self.spans, strict=False)
            for span in of_doc
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def find_mentions(docs: Iterable[Doc], kb: KnowledgeBase, settings: LinkerSettings) -> Mentions:
    """The mentions to link in a batch of documents, by the setting `mentions`."""
    docs = list(docs)
    if settings.mentions == "kb":
        spans = [longest_names(doc, kb) for doc in docs]
    else:
        key = settings.spans_key
        spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    return Mentions(docs, spans, [mention_queries(of_doc, settings) for of_doc in spans])


def rank_mentions(
    generator: CandidateGenerator, mentions: Mentions, *, coherence: float
) -> list[Ranked]:
    """For each document, the candidates of the strings of its mentions, see `decision.Ranked`.

    generator (CandidateGenerator): All strings are ranked in one batch.
    coherence (float): See `decision.agree_in_document`; 0: mentions have no say in each other.
    """
    pairs = [
        list(zip(*of_doc, strict=True))
        for of_doc in zip(mentions.spans, mentions.queries, strict=True)
    ]
    wanted = {
        (string, span.label_)
        for of_doc in pairs
        for span, query in of_doc
        for string in query.strings()
    }
    ranked = generator.rank(sorted(wanted)) if wanted else {}
    of_docs: list[Ranked] = []
    for of_doc in pairs:
        wholes = {(query.whole, span.label_): None for span, query in of_doc}
        if coherence and len(wholes) > 1:
            agreed = agree_in_document(wholes, ranked, weight=coherence)
            of_docs.append(ChainMap(agreed, ranked))
        else:
            of_docs.append(ranked)
    return of_docs


def given_candidates(mentions: Mentions, ranked: Sequence[Ranked]) -> list[tuple[Candidate, ...]]:
    """Candidates that the string of each mention was given; flat."""
    return [
        of_doc[query.whole, span.label_]
        for spans, queries, of_doc in zip(mentions.spans, mentions.queries, ranked, strict=True)
        for span, query in zip(spans, queries, strict=True)
    ]
