"""Dual encoder: each mention has a vector, by what the document says, compared with all names.

One tower is a `models.name_encoder.NameEncoder`. The other, `token_networks.MentionTower`, takes
the token vectors of a pipe `tok2vec`, which the mention detector may share.
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

from spacy_bioel.contextual.rescoring import (
    NetworkRescorer,
    PairScores,
    contextual_model,
    forward_over_tokens,
    weigh,
)
from spacy_bioel.entities import Mentions
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import SEARCHED, CandidateGenerator, LinkerState
from spacy_bioel.linking.rescoring import Given
from spacy_bioel.linking.searches import EncodedNames, FrozenEncoder, NameSearch
from spacy_bioel.linking.training import NameTraining, gold_mentions, without
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.tok2vec import Tok2Vec
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.pipe import require_token_vectors
from spacy_bioel.settings import TrainingSettings
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from torch import nn

DualEncoder = Model[Any, Floats2d]
TEMPERATURE = 0.05
# Tokens of context on each side of a mention, where mentions are encoded one by one.
_CONTEXT = 64


def build_dual_encoder_v1(
    tok2vec: Tok2Vec,
    names: NameEncoder,
    *,
    pooling: str = "ends",
    from_words: bool = True,
    collective: bool = True,
) -> DualEncoder:
    """Registered as `spacy-bioel.DualEncoder.v1`; see `contextual.token_networks` for the paper.

    tok2vec (Model): A listener to the shared pipe `tok2vec`; with `collective = false`, a tok2vec
        of its own.
    names (NameEncoder): The name encoder, e.g. `spacy-bioel.TransformerNames.v1` as in the paper,
        or the small `spacy-bioel.ResCNN.v1`.
    pooling (str): "ends" or "mean" of the mention's tokens.
    from_words (bool): Add the name encoder's vector of the mention's string to that of its tokens;
        else, as in the paper, use the tokens only.
    collective (bool): Encode a document once for all of its mentions. Else encode each mention
        separately, with `_CONTEXT` tokens before and after it: the paper's baseline.
    RAISES BioelError: [B175] on an unknown pooling, [B177] for a listener with
        `collective = false`: its vectors are those of whole documents.
    """
    if pooling not in ("ends", "mean"):
        raise BioelError(Errors.B175.format(pooling=pooling))
    if not collective and isinstance(tok2vec, Tok2VecListener):
        raise BioelError(Errors.B177)
    settings = {"pooling": pooling, "from_words": from_words}
    return contextual_model(
        "dual_encoder",
        DualEncoderRescorer,
        {"tok2vec": tok2vec, "names": names},
        forward=_forward,
        settings=settings,
        collective=collective,
    )


def _one_by_one(docs: Sequence[Doc], spans: IntArray) -> tuple[list[Doc], IntArray]:
    """Cut out one short document per mention: the mention with its context.

    spans (IntArray): Start and end token of each mention, counted over the concatenated documents.
        Shape (n_mentions, 2).
    RETURNS (tuple[list[Doc], IntArray]): The cut documents, and the spans counted over them.
    """
    offsets = np.cumsum([0, *(len(doc) for doc in docs)])
    owners = np.searchsorted(offsets, spans[:, 0], side="right") - 1
    excerpts, places, n_tokens = [], [], 0
    for owner, (start, end) in zip(owners, spans - offsets[owners, None], strict=True):
        first = max(0, int(start) - _CONTEXT)
        excerpts.append(docs[owner][first : int(end) + _CONTEXT].as_doc())
        places.append((n_tokens + start - first, n_tokens + end - first))
        n_tokens += len(excerpts[-1])
    return excerpts, np.array(places, dtype=np.int64).reshape(-1, 2)


def _forward(
    model: DualEncoder, inputs: tuple[list[Doc], IntArray, Floats2d], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], FloatsXd]]:
    docs, spans, words = inputs
    if not model.attrs["collective"]:
        docs, spans = _one_by_one(docs, spans)
    found, backprop = forward_over_tokens(model, docs, (spans, words), is_train)
    return found, lambda d_found: backprop(d_found)[0]


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


def compare(
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Given,
    vectors: NDArray[np.float32],
) -> PairScores:
    """Compare mentions with all names of the candidates that they were given, and of the nearest.

    vectors (NDArray[float32]): Unit vectors of the mentions. Shape (n_mentions, dim).
    """
    kb, names = generator.kb, generator.names
    nearest, _ = names.search(vectors, SEARCHED)
    indptr, concept, _ = kb.concepts_of_names(nearest.ravel())
    owner = np.repeat(np.arange(len(vectors)), np.diff(indptr[::SEARCHED]))
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


class CandidateSampler:
    """Draws the names that mentions compete with in a dual encoder; deterministic for a seed.

    Half are drawn at random and half are those that were nearest when last mined, as in Bhowmik,
    Stratos and de Melo (2021), who have one name of each concept.

    n_candidates (int): Of each half, for each mention; they serve all mentions of the update.
    """

    def __init__(self, kb: KnowledgeBase, *, n_candidates: int, seed: int) -> None:
        self.kb = kb
        self.n_candidates = n_candidates
        self._generator = np.random.default_rng(seed)
        self._read: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._mined: dict[tuple[str, int], IntArray] = {}

    def remember(
        self, strings: Sequence[str], concepts: IntArray, vectors: NDArray[np.float32]
    ) -> None:
        """Keep the vectors of mentions as they were last read, to mine with."""
        self._read.update(zip(_keys(strings, concepts), vectors, strict=True))

    def mine(self, search: NameSearch) -> None:
        """Find the names nearest to the mentions that were read, those of the right concept aside.

        search (NameSearch): Name rows of the knowledge base.
        """
        if not self._read:
            return
        found, _ = search.search(np.stack(list(self._read.values())), 2 * self.n_candidates)
        for key, rows in zip(self._read, found, strict=True):
            self._mined[key] = without(self.kb, rows, {key[1]})[: self.n_candidates]

    def draw(self, strings: Sequence[str], concepts: IntArray) -> IntArray:
        """Name rows to tell the mentions from, each once, one of each right concept among them.

        strings (Sequence[str]), concepts (IntArray): Of the mentions. Shape (n_mentions,).
        """
        right = [self._generator.choice(self.kb.names_of(row)) for row in concepts.tolist()]
        mined = [self._mined[key] for key in _keys(strings, concepts) if key in self._mined]
        n_random = self.n_candidates * max(1, len(strings))
        by_chance = self._generator.integers(self.kb.n_names, size=n_random)
        return np.unique(np.concatenate([np.array(right, dtype=np.int64), *mined, by_chance]))


def _keys(strings: Sequence[str], concepts: IntArray) -> list[tuple[str, int]]:
    return list(zip(strings, concepts.tolist(), strict=True))


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
        from spacy_bioel.contextual.token_networks import collective_loss

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
            total, d_names = self.loss_of_names(vectors[: len(names)], name_concepts)
            d_vectors[: len(names)] += d_names
        # Even without a mention: the pipe that the tokens come from waits for its gradient.
        mentions, backprop_mentions, others = self.read(examples, gold, vectors[of_strings])
        indptr, owners, _ = self.kb.concepts_of_names(rows)
        right = np.logical_or.reduceat(concepts[:, None] == owners, indptr[:-1], axis=1)
        value, d_mentions, d_candidates = loss_and_gradients(
            collective_loss, mentions, vectors[of_candidates], right, temperature=TEMPERATURE
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
        """Read the gold mentions, as `contextual.dual_encoder` does.

        words: Vectors of their strings. Shape (n_mentions, dim).
        RETURNS (tuple): Their vectors, (n_mentions, dim); the callback, from the gradient of these
            to that of `words`; and the loss of all else that is learnt from these examples.
        """
        inputs = (gold.docs, gold.token_ranges(), words)
        return *self.model.begin_update(inputs), 0.0


class DualEncoderRescorer(NetworkRescorer):
    training = Training
    file = "mentions.safetensors"

    def make_network(self) -> nn.Module:
        from spacy_bioel.contextual.token_networks import MentionTower

        return MentionTower(
            width=self.model.get_ref("tok2vec").get_dim("nO"),
            dim=self.model.get_ref("names").get_dim("nO"),
            **self.model.attrs["settings"],
        )

    def read(self, generator: CandidateGenerator, mentions: Mentions, given: Given) -> PairScores:
        """Pairs: the candidates of the strings, and concepts of the names that are nearest."""
        vectors = encode_in_context(self.model, generator, mentions)
        return compare(generator, mentions, given, vectors)
