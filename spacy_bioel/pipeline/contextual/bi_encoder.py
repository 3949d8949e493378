"""Reading with a dual encoder: each mention has a vector, which is compared with all names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model

from spacy_bioel.models.bi_encoder import TEMPERATURE, encode_mentions
from spacy_bioel.pipeline.contextual.weighing import Reading, weigh
from spacy_bioel.pipeline.linker.candidates import Ranker
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.tokens import require_token_vectors
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
_NAMES = 16_384  # names that are compared at a time: bounds the memory


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
    """What there is to weigh, see `pipeline.contextual.weighing`.

    given (Sequence): Candidates that the string of each mention was given.
    k (int): Names nearest to a mention whose concepts are weighed besides.
    """
    kb = ranker.kb
    vectors = read_mentions(model, ranker, mentions)
    nearest, _ = ranker.names.search(vectors, k)
    indptr, concept, _ = kb.concepts_of_names(nearest.ravel())
    owner = np.repeat(np.arange(len(vectors)), np.diff(indptr[::k]))
    labels = np.array(mentions.labels)[owner]
    may = np.zeros(len(owner), dtype=bool)
    for label in dict.fromkeys(labels.tolist()):
        of_label = labels == label
        may[of_label] = ranker.allowed(concept[of_label], label)

    def likeness(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        """A soft maximum over the names of the concept, as in the loss: where a name has several
        concepts, their other names decide."""
        indptr, names = kb.names_of_all(concept)
        pair = np.repeat(np.arange(len(concept)), np.diff(indptr))
        weight = np.empty(len(names))
        for start in range(0, len(names), _NAMES):
            part = slice(start, start + _NAMES)
            cosine = np.einsum(
                "nd,nd->n", vectors[mention[pair[part]]], ranker.names.take(names[part])
            )
            weight[part] = np.exp((cosine - 1) / TEMPERATURE)
        total = np.bincount(pair, weight, len(concept))
        return 1 + TEMPERATURE * np.log(np.maximum(total, np.exp(-2 / TEMPERATURE)))

    return weigh(kb, given, owner[may], concept[may], likeness, temperature=TEMPERATURE)
