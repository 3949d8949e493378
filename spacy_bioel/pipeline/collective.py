"""Reading with a dual encoder: each mention has a vector, which is compared with all concepts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model

from spacy_bioel.models.dual_encoder import TEMPERATURE, encode_mentions
from spacy_bioel.pipeline.mentions import Mentions
from spacy_bioel.pipeline.ranker import Ranker
from spacy_bioel.pipeline.reading import Reading, weigh
from spacy_bioel.pipeline.tokens import require_token_vectors
from spacy_bioel.types import Candidate


def read_mentions(model: Model, ranker: Ranker, mentions: Mentions) -> NDArray[np.float32]:
    """Unit vectors of all mentions of a batch of documents. Shape (n_mentions, dim).

    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    require_token_vectors(model, mentions.docs)
    strings = mentions.strings
    different = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    words = ranker.encode(list(different))[[different[string] for string in strings]]
    return encode_mentions(model, mentions.docs, mentions.token_ranges(), words)


def read_collectively(
    model: Model,
    ranker: Ranker,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
    *,
    k: int,
) -> Reading:
    """What there is to weigh, see `pipeline.reading`.

    given (Sequence): Candidates that the string of each mention was given.
    k (int): Concepts nearest to a mention that are weighed besides.
    """
    vectors = read_mentions(model, ranker, mentions)
    nearest = ranker.nearest_concepts(vectors, k).ravel()
    found = np.flatnonzero(nearest >= 0)
    owner, concept = found // k, nearest[found]
    labels = np.array(mentions.labels)[owner]
    may = np.zeros(len(owner), dtype=bool)
    for label in dict.fromkeys(labels.tolist()):
        of_label = labels == label
        may[of_label] = ranker.allowed(concept[of_label], label)

    def cosine(mention: NDArray[np.int64], concept: NDArray[np.int64]) -> NDArray[np.floating]:
        names = ranker.concept_vectors[concept].astype(np.float32)
        return np.einsum("nd,nd->n", vectors[mention], names)

    return weigh(ranker.kb, given, owner[may], concept[may], cosine, temperature=TEMPERATURE)
