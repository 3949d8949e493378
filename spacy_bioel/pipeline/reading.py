"""The stage that reads: from the candidates of a string to those of a mention in its document.

Strings are ranked once, however often they occur (`pipeline.ranker`). With a dual encoder, each
mention then has a vector of its own, which is compared with the preferred names of all concepts;
what it says and what the string said are weighed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from thinc.api import Model

from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.models.dual_encoder import TEMPERATURE, encode_mentions
from spacy_bioel.pipeline.fusion import Fusion, share
from spacy_bioel.pipeline.ranker import Ranker
from spacy_bioel.pipeline.tokens import require_token_vectors
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
# Columns of what is weighed.
#   string: log-odds against NIL that the string was given; the lowest where it was not
#   found: whether the string was given it
#   cosine: of the mention's vector and the concept's preferred name
#   read: log of the share of the concept among the candidates by these cosines
#   nearest: no other candidate has a higher one
READ_FEATURES = ("string", "found", "cosine", "read", "nearest")
_LOWEST = 1e-4  # scores are rounded to this
READ = "context"


@cache
def default_reading() -> Fusion:
    """Weights until `fit_fusion` has seen a corpus: the log-odds of both are added."""
    n = len(READ_FEATURES)
    none = np.zeros(0)
    direct = np.array([1.0, np.log(_LOWEST), 0.0, 0.5, 0.0])
    return Fusion(
        np.zeros(n), np.ones(n), np.zeros((n, 0)), none, none, direct, -float(np.log(_LOWEST))
    )


def read_mentions(
    model: Model,
    ranker: Ranker,
    docs: Sequence[Doc],
    spans: Sequence[Sequence[Span]],
    strings: Sequence[str],
) -> NDArray[np.float32]:
    """Unit vectors of all mentions of a batch of documents, read in one pass.

    strings (Sequence[str]): Normalised, of all mentions, one document after the other.
    RETURNS (NDArray[float32]): Shape (n_mentions, dim).
    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    require_token_vectors(model, docs)
    different = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    words = ranker.encode(list(different))[[different[string] for string in strings]]
    return encode_mentions(model, docs, token_ranges(docs, spans), words)


def token_ranges(docs: Sequence[Doc], spans: Sequence[Sequence[Any]]) -> IntArray:
    """First token, and the one after the last, counted over all documents. Shape (n, 2)."""
    offsets = np.cumsum([0, *(len(doc) for doc in docs)]).tolist()
    pairs = [
        (offset + span.start, offset + span.end)
        for offset, of_doc in zip(offsets, spans, strict=False)
        for span in of_doc
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Reading:
    """All pairs of a mention and a concept that are weighed, by mention.

    kb (KnowledgeBase): Where the concepts are.
    given (Sequence): Candidates that the string of each mention was given.
    mention, concept (IntArray): Number of the mention, concept row. Shape (n,).
    features (NDArray[float32]): Shape (n, len(READ_FEATURES)).
    """

    kb: KnowledgeBase
    given: Sequence[Sequence[Candidate]]
    mention: IntArray
    concept: IntArray
    features: NDArray[np.float32]

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """The `top` best candidates of each mention, best first.

        fusion (Fusion | None): Weights for READ_FEATURES; None: those of `default_reading`.
        """
        shares = share((fusion or default_reading()).scores(self.features), self.mention)
        order = np.lexsort((self.concept, -shares, self.mention))
        first = np.searchsorted(self.mention[order], self.mention[order])
        order = order[np.arange(len(order)) - first < top]
        by_string = [{c.id: c for c in found} for found in self.given]
        ranked: list[list[Candidate]] = [[] for _ in self.given]
        ids = self.kb.ids_of(self.concept[order])
        for row, id_ in zip(order.tolist(), ids, strict=True):
            number, score = int(self.mention[row]), round(float(shares[row]), 4)
            known = by_string[number].get(id_)
            name = known.name if known else self.kb.preferred_name(int(self.concept[row]))
            evidence = f"{known.evidence}+{READ}" if known else READ
            ranked[number].append(Candidate(id_, score, name, evidence))
        return [tuple(found) for found in ranked]


def read_candidates(
    ranker: Ranker,
    vectors: NDArray[np.float32],
    labels: Sequence[str],
    given: Sequence[Sequence[Candidate]],
    *,
    k: int,
) -> Reading:
    """What there is to weigh for a batch of mentions.

    vectors (NDArray[float32]): Of the mentions. Shape (n_mentions, dim).
    labels (Sequence[str]): Of the mentions: what they may be linked to.
    given (Sequence): Candidates that the string of each mention was given.
    k (int): Concepts nearest to a mention that are weighed besides.
    """
    kb = ranker.kb
    owner = np.repeat(np.arange(len(given)), [len(found) for found in given])
    of_string = owner * len(kb) + kb.find_all([c.id for found in given for c in found])
    nearest = ranker.nearest_concepts(vectors, k)
    read = np.flatnonzero(nearest.ravel() >= 0)
    owner_read, concept_read = read // k, nearest.ravel()[read]
    allowed = {label: ranker.allowed(concept_read, label) for label in dict.fromkeys(labels)}
    may = np.array([allowed[labels[o]][i] for i, o in enumerate(owner_read.tolist())], dtype=bool)
    of_vector = (owner_read * len(kb) + concept_read)[may]
    keys, place = np.unique(np.concatenate([of_string, of_vector]), return_inverse=True)
    mention, concept = keys // len(kb), keys % len(kb)
    features = np.zeros((len(keys), len(READ_FEATURES)), dtype=np.float32)
    score = np.array([c.score for found in given for c in found], dtype=np.float64)
    nil = 1 - np.bincount(owner, score, len(given))
    odds = np.maximum(score, _LOWEST) / np.maximum(nil[owner], _LOWEST)
    features[:, 0] = np.log(_LOWEST)
    features[place[: len(of_string)], 0] = np.log(odds)
    features[place[: len(of_string)], 1] = 1.0
    concept_vectors = ranker.concept_vectors[concept].astype(np.float32)
    cosine = np.einsum("nd,nd->n", vectors[mention], concept_vectors)
    highest = np.full(len(given), -np.inf)
    np.maximum.at(highest, mention, cosine)
    weight = np.exp((cosine - highest[mention]) / TEMPERATURE)
    total = np.bincount(mention, weight, len(given))
    features[:, 2] = cosine
    features[:, 3] = np.log(np.maximum(weight / total[mention], _LOWEST))
    features[:, 4] = cosine >= highest[mention] - 1e-5
    return Reading(kb, given, mention, concept, features)
