"""Dual encoder: compares the vector of a mention in context with the vectors of all names.

The name tower is a `models.name_encoder.NameEncoder`. `token_networks.MentionTower` takes the token
vectors from a `tok2vec` pipe that the mention detector can share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats2d, FloatsXd

from spacy_bioel.batch import Batch
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import SEARCHED, CandidateGenerator, LinkerState
from spacy_bioel.linking.searches import EncodedNames, FrozenEncoder, NameSearch
from spacy_bioel.linking.training import NameTraining, gold_mentions, without
from spacy_bioel.models.inference import Tok2Vec
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.pipe import require_token_vectors
from spacy_bioel.plugins.contextual.errors import ContextualErrors
from spacy_bioel.plugins.contextual.rescoring import (
    PairScores,
    TokenVectorRescorer,
    contextual_model,
    forward_over_tokens,
    rescore_pairs,
    token_ranges,
)
from spacy_bioel.settings import TrainingSettings
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from torch import nn

DualEncoder = Model[Any, Floats2d]
TEMPERATURE = 0.05
_CONTEXT_TOKENS = 64  # tokens of context on each side of a separately encoded mention


def build_dual_encoder_v1(
    tok2vec: Tok2Vec,
    names: NameEncoder,
    *,
    pooling: str = "ends",
    from_words: bool = True,
    collective: bool = True,
) -> DualEncoder:
    """Registered as `spacy-bioel.DualEncoder.v1`; for the paper, see
    `plugins.contextual.token_networks`.

    tok2vec (Model): A listener to the shared `tok2vec` pipe or, with `collective = false`, a
        separate tok2vec.
    names (NameEncoder): The name encoder, such as `spacy-bioel.TransformerNames.v1`, as in the
        paper, or the smaller `spacy-bioel.ResCNN.v1`.
    pooling (str): "ends": use the mention's first and last token; "mean": the mean of its tokens.
    from_words (bool): Add the name encoder's vector for the mention's string to the vector of the
        mention's tokens. Otherwise only the tokens are used, as in the paper.
    collective (bool): Encode a document once for all its mentions. Otherwise each mention is
        encoded separately, with 64 tokens before and after it: the paper's baseline.
    RAISES BioelError: [B175] if the pooling is unknown, [B177] for a listener with `collective =
        false`, because a listener has vectors only for whole documents.
    """
    if pooling not in ("ends", "mean"):
        raise BioelError(ContextualErrors.B175.format(pooling=pooling))
    if not collective and isinstance(tok2vec, Tok2VecListener):
        raise BioelError(ContextualErrors.B177)
    settings = {"pooling": pooling, "from_words": from_words}
    return contextual_model(
        "dual_encoder",
        DualEncoderRescorer,
        {"tok2vec": tok2vec, "names": names},
        forward=_dual_encoder_forward,
        settings=settings,
        collective=collective,
    )


def _cut_out_mentions(docs: Sequence[Doc], spans: IntArray) -> tuple[list[Doc], IntArray]:
    """Create a short document for each mention, containing only the mention and its context.

    spans (IntArray): Start and end token of each mention, numbered across all documents.
        Shape (n_mentions, 2).
    RETURNS (tuple): The short documents, and the spans numbered across them.
    """
    offsets = np.cumsum([0, *(len(doc) for doc in docs)])
    doc_index = np.searchsorted(offsets, spans[:, 0], side="right") - 1
    excerpts, excerpt_spans, n_tokens = [], [], 0
    for index, (start, end) in zip(doc_index, spans - offsets[doc_index, None], strict=True):
        first = max(0, int(start) - _CONTEXT_TOKENS)
        excerpts.append(docs[index][first : int(end) + _CONTEXT_TOKENS].as_doc())
        excerpt_spans.append((n_tokens + start - first, n_tokens + end - first))
        n_tokens += len(excerpts[-1])
    return excerpts, np.array(excerpt_spans, dtype=np.int64).reshape(-1, 2)


def _dual_encoder_forward(
    model: DualEncoder, inputs: tuple[list[Doc], IntArray, Floats2d], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], FloatsXd]]:
    docs, spans, string_vectors = inputs
    if not model.attrs["collective"]:
        docs, spans = _cut_out_mentions(docs, spans)
    vectors, backprop = forward_over_tokens(model, docs, (spans, string_vectors), is_train)
    return vectors, lambda d_vectors: backprop(d_vectors)[0]


_NAMES_PER_COMPARISON = 16_384  # names compared at once; limits memory use


def encode_mentions(
    model: Model[Any, Any], generator: CandidateGenerator, batch: Batch
) -> NDArray[np.float32]:
    """Return unit vectors for all mentions in a batch of documents. Shape (n_mentions, dim).

    RAISES BioelError: [B174] if the `tok2vec` pipe did not run on the documents.
    """
    require_token_vectors(model, batch.docs)
    string_vectors = encode_strings(generator, batch.strings)
    spans = token_ranges(batch)
    if not len(spans):
        return string_vectors
    ops: Any = model.ops
    vectors = model.predict((list(batch.docs), spans, string_vectors))
    return np.asarray(ops.to_numpy(vectors), dtype=np.float32)


def encode_strings(generator: CandidateGenerator, strings: Sequence[str]) -> NDArray[np.float32]:
    """Return unit vectors for strings, encoding each distinct string once. Shape (n, dim)."""
    row_of = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    vectors = generator.encoder.encode(list(row_of))
    return vectors[[row_of[string] for string in strings]]


def rescore_by_vectors(
    generator: CandidateGenerator, batch: Batch, vectors: NDArray[np.float32]
) -> PairScores:
    """Score the string candidates and the nearest names' concepts by vector similarity.

    vectors (NDArray[float32]): Unit vectors of the mentions. Shape (n_mentions, dim).
    """
    kb, names = generator.kb, generator.names
    nearest, _ = names.search(vectors, SEARCHED)
    indptr, concept, _ = kb.concepts_of_names(nearest.ravel())
    owner = np.repeat(np.arange(len(vectors)), np.diff(indptr[::SEARCHED]))
    is_allowed = generator.allowed(concept, batch.labels, owner)
    owner, concept = owner[is_allowed], concept[is_allowed]

    def similarity(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        """Return the soft maximum, as in the loss, of a mention's similarities to a concept's
        names. If several concepts share a name, their other names break the tie."""
        indptr, rows = kb.names_of_all(concept)
        pair = np.repeat(np.arange(len(concept)), np.diff(indptr))
        weight = np.empty(len(rows))
        for start in range(0, len(rows), _NAMES_PER_COMPARISON):
            part = slice(start, start + _NAMES_PER_COMPARISON)
            cosine = np.einsum("nd,nd->n", vectors[mention[pair[part]]], names.take(rows[part]))
            weight[part] = np.exp((cosine - 1) / TEMPERATURE)
        total = np.bincount(pair, weight, len(concept))
        return 1 + TEMPERATURE * np.log(np.maximum(total, np.exp(-2 / TEMPERATURE)))

    return rescore_pairs(kb, batch.candidates, similarity, owner, concept, temperature=TEMPERATURE)


class CandidateSampler:
    """Samples the names to compare mentions with in training, reproducibly for a given seed.

    Half of the names are random. The other half are the nearest names of wrong concepts from the
    last mining, as in Bhowmik, Stratos and de Melo (2021), who use one name per concept.

    n_candidates (int): Number of names in each half, per mention. All mentions in an update share
        the names.
    """

    def __init__(self, kb: KnowledgeBase, *, n_candidates: int, seed: int) -> None:
        self.kb = kb
        self.n_candidates = n_candidates
        self._generator = np.random.default_rng(seed)
        self._vectors: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._mined: dict[tuple[str, int], IntArray] = {}

    def remember(
        self, strings: Sequence[str], concepts: IntArray, vectors: NDArray[np.float32]
    ) -> None:
        """Store the latest mention vectors for mining."""
        self._vectors.update(zip(_mention_keys(strings, concepts), vectors, strict=True))

    def mine(self, search: NameSearch) -> None:
        """Find the nearest names of wrong concepts for each stored mention.

        search (NameSearch): Returns name rows of the knowledge base.
        """
        if not self._vectors:
            return
        nearest, _ = search.search(np.stack(list(self._vectors.values())), 2 * self.n_candidates)
        for key, rows in zip(self._vectors, nearest, strict=True):
            self._mined[key] = without(self.kb, rows, {key[1]})[: self.n_candidates]

    def draw(self, strings: Sequence[str], concepts: IntArray) -> IntArray:
        """Return distinct name rows to compare mentions with, including one per correct concept.

        concepts (IntArray): Concept row of each mention. Shape (n_mentions,).
        """
        right = [self._generator.choice(self.kb.names_of(row)) for row in concepts.tolist()]
        mined = [self._mined[key] for key in _mention_keys(strings, concepts) if key in self._mined]
        n_random = self.n_candidates * max(1, len(strings))
        random = self._generator.integers(self.kb.n_names, size=n_random)
        return np.unique(np.concatenate([np.array(right, dtype=np.int64), *mined, random]))


def _mention_keys(strings: Sequence[str], concepts: IntArray) -> list[tuple[str, int]]:
    return list(zip(strings, concepts.tolist(), strict=True))


class DualEncoderTraining(NameTraining):
    """Trains the name tower like `NameTraining` and pulls mention vectors towards correct names."""

    with_all_mentions = False  # whether to also encode mentions with no id or several ids

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        n, seed = settings.candidates, settings.seed
        self._candidate_sampler = CandidateSampler(self.kb, n_candidates=n, seed=seed)

    def mine(self, encoder: FrozenEncoder, names: EncodedNames) -> None:
        super().mine(encoder, names)
        self._candidate_sampler.mine(names)

    def learn(self, examples: Sequence[Example]) -> float:
        from spacy_bioel.plugins.contextual.token_networks import collective_loss

        model: Any = self.model
        names, name_concepts = self.draw(examples)
        settings = self.state.settings
        gold, ids = gold_mentions(examples, settings, with_all=self.with_all_mentions)
        strings, concepts = gold.strings, self.kb.find_all(ids)
        known = np.flatnonzero(concepts >= 0)
        known_strings = [strings[i] for i in known]
        rows = self._candidate_sampler.draw(known_strings, concepts[known])
        candidates = normalize_names(self.kb.names.take(rows))
        # Each distinct text is encoded once. The texts in `names` come first.
        row_of = {text: i for i, text in enumerate(dict.fromkeys([*names, *strings, *candidates]))}
        ops: Any = model.ops
        string_rows = ops.asarray([row_of[text] for text in strings], dtype="int64")
        candidate_rows = ops.asarray([row_of[text] for text in candidates], dtype="int64")
        vectors: Any
        vectors, backprop_names = self.encoder.begin_update(list(row_of))
        d_vectors: Any = ops.alloc2f(*vectors.shape)
        name_loss = 0.0
        if names:
            name_loss, d_names = self.loss_of_names(vectors[: len(names)], name_concepts)
            d_vectors[: len(names)] += d_names
        # Run this even if there are no mentions, because the `tok2vec` pipe waits for its gradient.
        encoded = self.encode_gold(examples, gold, vectors[string_rows])
        mentions, backprop_mentions, other_loss = encoded
        indptr, owners, _ = self.kb.concepts_of_names(rows)
        right = np.logical_or.reduceat(concepts[:, None] == owners, indptr[:-1], axis=1)
        mention_loss, d_mentions, d_candidates = loss_and_gradients(
            collective_loss, mentions, vectors[candidate_rows], right, temperature=TEMPERATURE
        )
        ops.scatter_add(d_vectors, candidate_rows, d_candidates)
        ops.scatter_add(d_vectors, string_rows, backprop_mentions(d_mentions))
        backprop_names(d_vectors)
        mention_vectors = ops.to_numpy(mentions)
        self._candidate_sampler.remember(known_strings, concepts[known], mention_vectors[known])
        return float(name_loss + mention_loss + other_loss)

    def encode_gold(
        self, examples: Sequence[Example], gold: Batch, string_vectors: Floats2d
    ) -> tuple[Any, Callable[[Any], Any], float]:
        """Encode the gold mentions for an update.

        string_vectors: Vectors of the mentions' strings. Shape (n_mentions, dim).
        RETURNS (tuple): Vectors of the mentions, (n_mentions, dim); a callback that takes their
            gradient and returns the gradient of `string_vectors`; and the loss of all other tasks.
        """
        inputs = (gold.docs, token_ranges(gold), string_vectors)
        return *self.model.begin_update(inputs), 0.0


class DualEncoderRescorer(TokenVectorRescorer):
    """Rescores candidates by the similarity between mention and name vectors."""

    training = DualEncoderTraining
    file = "mentions.safetensors"

    def make_network(self) -> nn.Module:
        from spacy_bioel.plugins.contextual.token_networks import MentionTower

        return MentionTower(
            width=self.model.get_ref("tok2vec").get_dim("nO"),
            dim=self.model.get_ref("names").get_dim("nO"),
            **self.model.attrs["settings"],
        )

    def score(self, generator: CandidateGenerator, batch: Batch) -> PairScores:
        """Score the string candidates and the nearest names' concepts in context."""
        vectors = encode_mentions(self.model, generator, batch)
        return rescore_by_vectors(generator, batch, vectors)
