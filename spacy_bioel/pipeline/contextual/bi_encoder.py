"""Reading with a dual encoder: each mention has a vector, which is compared with all names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats2d

from spacy_bioel.models.bi_encoder import TEMPERATURE
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.pipeline.contextual.weighing import Reading, weigh
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.searches import EncodedNames, FrozenEncoder
from spacy_bioel.pipeline.linker.settings import TrainingSettings
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.pipeline.linker.training import CandidateSampler, NameTraining, gold_mentions
from spacy_bioel.pipeline.stored_pipe import require_token_vectors
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
PROPOSES = True
_NAMES = 16_384  # names that are compared at a time: bounds the memory


def encode_in_context(
    model: Model[Any, Any], generator: CandidateGenerator, mentions: Mentions
) -> NDArray[np.float32]:
    """Unit vectors of all mentions of a batch of documents. Shape (n_mentions, dim).

    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    require_token_vectors(model, mentions.docs)
    words = encode_strings(generator, mentions.strings)
    places = mentions.token_ranges()
    if not len(places):
        return words
    ops: Any = model.ops
    vectors = model.predict((list(mentions.docs), places, words))
    return np.asarray(ops.to_numpy(vectors), dtype=np.float32)


def encode_strings(generator: CandidateGenerator, strings: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of strings by the encoder of names, each string encoded once. (n, dim)."""
    different = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    vectors = generator.encoder.encode(list(different))
    return vectors[[different[string] for string in strings]]


def read(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Pairs to weigh: the candidates of the strings, and concepts of the names that are nearest."""
    return compare(generator, mentions, given, encode_in_context(model, generator, mentions))


def compare(
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
    vectors: NDArray[np.float32],
) -> Reading:
    """Compare mentions with all names of the candidates that they were given, and of the nearest.

    vectors (NDArray[float32]): Unit vectors of the mentions. Shape (n_mentions, dim).
    """
    kb, names, k = generator.kb, generator.names, generator.state.settings.search_names
    nearest, _ = names.search(vectors, k)
    indptr, concept, _ = kb.concepts_of_names(nearest.ravel())
    owner = np.repeat(np.arange(len(vectors)), np.diff(indptr[::k]))
    may = generator.allowed(concept, mentions.labels, owner)

    def likeness(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        """A soft maximum over the names of the concept, as in the loss: where a name has several
        concepts, their other names decide."""
        indptr, rows = kb.names_of_all(concept)
        pair = np.repeat(np.arange(len(concept)), np.diff(indptr))
        weight = np.empty(len(rows))
        for start in range(0, len(rows), _NAMES):
            part = slice(start, start + _NAMES)
            cosine = np.einsum("nd,nd->n", vectors[mention[pair[part]]], names.take(rows[part]))
            weight[part] = np.exp((cosine - 1) / TEMPERATURE)
        total = np.bincount(pair, weight, len(concept))
        return 1 + TEMPERATURE * np.log(np.maximum(total, np.exp(-2 / TEMPERATURE)))

    return weigh(kb, given, likeness, owner[may], concept[may], temperature=TEMPERATURE)


class Training(NameTraining):
    """Trains both sides of a dual encoder: names as above, and mentions towards names of theirs."""

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        n, seed = settings.candidates, settings.seed
        self._contrast = CandidateSampler(self.kb, n_candidates=n, seed=seed)

    def mine(self, encoder: FrozenEncoder, names: EncodedNames) -> None:
        super().mine(encoder, names)
        self._contrast.mine(names)

    def learn(self, examples: Sequence[Example]) -> float:
        model: Any = self.model
        names, name_concepts = self.draw(examples)
        gold, ids = self.gold(examples)
        strings, concepts = gold.strings, self.kb.find_all(ids)
        known = np.flatnonzero(concepts >= 0)
        known_strings = [strings[i] for i in known]
        rows = self._contrast.draw(known_strings, concepts[known])
        candidates = normalize_names(self.kb.names.take(rows))
        texts = {text: i for i, text in enumerate(dict.fromkeys([*names, *strings, *candidates]))}
        of_strings = np.array([texts[text] for text in strings], dtype=np.int64)
        of_candidates = np.array([texts[text] for text in candidates], dtype=np.int64)
        found, backprop_names = self.encoder.begin_update(list(texts))
        vectors: Any = found
        d_vectors: Any = model.ops.alloc2f(*vectors.shape)
        total = 0.0
        if names:  # they come first
            loss = f"{self.settings.loss}_loss"
            total, d_names = loss_and_gradients(loss, vectors[: len(names)], name_concepts)
            d_vectors[: len(names)] += d_names
        # Even without a mention: the pipe that the tokens come from waits for its gradient.
        mentions, backprop_mentions, others = self.read(examples, gold, vectors[of_strings])
        indptr, owners, _ = self.kb.concepts_of_names(rows)
        right = np.logical_or.reduceat(concepts[:, None] == owners, indptr[:-1], axis=1)
        value, d_mentions, d_candidates = loss_and_gradients(
            "collective_loss", mentions, vectors[of_candidates], right, temperature=TEMPERATURE
        )
        model.ops.scatter_add(d_vectors, of_candidates, d_candidates)
        model.ops.scatter_add(d_vectors, of_strings, backprop_mentions(d_mentions))
        backprop_names(d_vectors)
        read = model.ops.to_numpy(mentions)
        self._contrast.remember(known_strings, concepts[known], read[known])
        return float(total + value + others)

    def gold(self, examples: Sequence[Example]) -> tuple[Mentions, list[str]]:
        """Gold mentions, and the id of each."""
        return gold_mentions(examples, self.state.settings)

    def read(
        self, examples: Sequence[Example], gold: Mentions, words: Floats2d
    ) -> tuple[Any, Callable[[Any], Any], float]:
        """Read the gold mentions, as `models.bi_encoder` does.

        words: Vectors of their strings. Shape (n_mentions, dim).
        RETURNS (tuple): Their vectors, (n_mentions, dim); the callback, from the gradient of these
            to that of `words`; and the loss of all else that is learnt from these examples.
        """
        inputs = (gold.docs, gold.token_ranges(), words)
        return *self.model.begin_update(inputs), 0.0
