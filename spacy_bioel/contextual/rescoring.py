"""Common part of contextual models: their network and its files; what they read, weighed.

Strings are ranked once, however often they occur (`linking.candidates`). What each mention then
says in its document and what its string said are weighed together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import FloatsXd

from spacy_bioel.kb.columns import entries_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import name_ngrams
from spacy_bioel.linking.rescoring import Given, Rescorer
from spacy_bioel.models.fusion import Fusion, rank
from spacy_bioel.models.name_encoder import (
    EncoderFiles,
    EncoderSource,
    add_encoder,
    encoder_parts,
    load_encoder,
)
from spacy_bioel.models.tok2vec import read_tokens
from spacy_bioel.models.torch_io import (
    reading_part,
    require_torch,
    set_layer,
    torch_layer,
    weights_from_bytes,
    weights_to_bytes,
)
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import Candidate, IntArray

if TYPE_CHECKING:
    from torch import nn

# Columns of what is weighed.
#   string: log-odds against NIL that the string was given; the lowest where it was not
#   found: whether the string was given it
#   score: of mention and concept, by what was read
#   read: log of the share of the concept among the candidates by these scores
#   highest: no other candidate has a higher one
CONTEXTUAL_FEATURES = ("string", "found", "score", "read", "highest")
_LOWEST = 1e-4  # scores are rounded to this
_NONE = np.zeros(0, dtype=np.int64)
_TOK2VEC = "tok2vec.msgpack"


class NetworkRescorer(Rescorer):
    """Reads by a network over the token vectors of the layer "tok2vec".

    file (str): Of its weights.
    stored (Mapping): Attributes of the model that the network is made from: file, and functions to
        bytes and back.
    """

    features = CONTEXTUAL_FEATURES
    file: str
    stored: Mapping[str, tuple[str, Callable[[Any], bytes], Callable[[bytes], object]]] = {}

    def make_network(self) -> nn.Module:
        """Make the network, once the name encoder has its own."""
        raise NotImplementedError

    def add_network(self, source: EncoderSource | None = None) -> None:
        require_torch()
        self.model.get_ref("tok2vec").initialize()
        set_layer(self.model, torch_layer(self.make_network()))

    def parts(self) -> EncoderFiles:
        if not self.is_ready:
            return {}
        model, tok2vec = self.model, self.model.get_ref("tok2vec")
        parts: EncoderFiles = {self.file: lambda: weights_to_bytes(model.get_ref("network"))}
        for name, (file, to_bytes, _) in self.stored.items():
            parts[file] = partial(to_bytes, model.attrs[name])
        if not isinstance(tok2vec, Tok2VecListener):  # which is saved with its pipe
            parts[_TOK2VEC] = tok2vec.to_bytes
        return parts

    def load(self, parts: Mapping[str, bytes]) -> None:
        if {self.file, *(file for file, _, _ in self.stored.values())} & parts.keys():
            for name, (file, _, from_bytes) in self.stored.items():
                with reading_part(file):
                    self.model.attrs[name] = from_bytes(parts[file])
            self.add_network()
            weights_from_bytes(self.model.get_ref("network"), parts[self.file])
        if _TOK2VEC in parts:
            self.model.get_ref("tok2vec").from_bytes(parts[_TOK2VEC])


class ContextualRescorer(Rescorer):
    """Reads by a layer of its own, a model of word pieces with a `NetworkKind`.

    layer (str): Its name in the model.
    prefix (str): Of its files.
    """

    features = CONTEXTUAL_FEATURES
    layer: str
    prefix: str

    @property
    def reader(self) -> Model:
        return self.model.get_ref(self.layer)

    def add_network(self, source: EncoderSource) -> None:
        add_encoder(self.reader, source)
        self.model.set_ref("network", self.reader)

    def parts(self) -> EncoderFiles:
        parts = encoder_parts(self.reader) if self.is_ready else {}
        return {self.prefix + name: part for name, part in parts.items()}

    def load(self, parts: Mapping[str, bytes]) -> None:
        n = len(self.prefix)
        own = {name[n:]: part for name, part in parts.items() if name.startswith(self.prefix)}
        if own:
            load_encoder(self.reader, own)
            self.model.set_ref("network", self.reader)


def contextual_model(
    name: str,
    rescorer: type[Rescorer],
    layers: dict[str, Model],
    *,
    forward: Callable | None = None,
    **attrs: object,
) -> Model:
    """Make a linker's model without its contextual network, which its rescorer adds.

    layers (dict): Layers by name; "names" is the name encoder.
    forward (Callable | None): None: that of the layer of a `ContextualRescorer`.
    """
    return Model(
        name,
        forward or _by_reader,
        layers=list(layers.values()),
        attrs={"rescorer": rescorer} | attrs,
        refs={"network": None} | layers,
    )


def _by_reader(model: Model, inputs: object, is_train: bool) -> tuple[object, Callable]:
    return model.get_ref(model.attrs["rescorer"].layer)(inputs, is_train)


def forward_over_tokens(
    model: Model, docs: list[Doc], others: Sequence[Any], is_train: bool
) -> tuple[Any, Callable[[Any], list[FloatsXd]]]:
    """Run the layer "network" of a model on the token vectors of its layer "tok2vec" and others.

    RETURNS (tuple): Its output, and a callback from the gradient of the output to those of the
        other inputs of floats.
    """
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), docs, is_train)
    found, backprop = model.get_ref("network")((tokens, *others), is_train)

    def backprop_others(d_found: FloatsXd | tuple[FloatsXd, ...]) -> list[FloatsXd]:
        d_tokens, *d_others = backprop(d_found)
        backprop_tokens(d_tokens)
        return d_others

    return found, backprop_others


def nearest_names(kb: KnowledgeBase, strings: Sequence[str], concepts: IntArray) -> IntArray:
    """For each mention the name of its concept with the highest cosine of TF-IDF vectors.

    The vectors are of character 3-grams, with the frequencies of all names, as in the spelling
    search. The first name wins among equals, so that a string that is like none gets the preferred
    one.

    strings (Sequence[str]): Normalised mentions.
    concepts (IntArray): Concept row of each. Shape (n,).
    RETURNS (IntArray): Name rows. Shape (n,).
    """
    indptr, rows = kb.names_of_all(concepts)
    mention = np.repeat(np.arange(len(concepts)), np.diff(indptr))
    different, place = np.unique(rows, return_inverse=True)
    names = normalize_names(kb.names.take(different))
    owner, codes = name_ngrams([*strings, *names])
    weights = kb.ngrams.rarity(codes) ** 2
    norms = np.sqrt(np.bincount(owner, weights, len(strings) + len(names)))
    starts = np.searchsorted(owner, np.arange(len(strings) + len(names) + 1))
    # All 3-grams of each name, looked for among those of its mention.
    first, last = starts[len(strings) + place], starts[len(strings) + place + 1]
    pair = np.repeat(np.arange(len(rows)), last - first)
    _, at = entries_of(first, last - first)
    of_strings = (owner << 24 | codes)[: starts[len(strings)]]
    keys = mention[pair] << 24 | codes[at]
    found = np.minimum(np.searchsorted(of_strings, keys), max(0, len(of_strings) - 1))
    shared = of_strings[found] == keys if len(of_strings) else np.zeros(len(keys), dtype=bool)
    dots = np.bincount(pair, weights[at] * shared, len(rows))
    cosines = dots / np.maximum(norms[mention] * norms[len(strings) + place], 1e-12)
    order = np.lexsort((np.arange(len(rows)), -cosines.round(6), mention))
    nearest: IntArray = rows[order[np.searchsorted(mention[order], np.arange(len(concepts)))]]
    return nearest


@cache
def default_rescoring() -> Fusion:
    """Weights until `fit_fusion` has seen a corpus: the log-odds of both are added."""
    n = len(CONTEXTUAL_FEATURES)
    none, lowest = np.zeros(0), float(np.log(_LOWEST))
    direct = np.array([1.0, lowest, 0.0, 0.5, 0.0])
    return Fusion(np.zeros(n), np.ones(n), np.zeros((n, 0)), none, none, direct, -lowest)


@dataclass(eq=False)
class PairScores:
    """All pairs of a mention and a concept that are weighed, by mention.

    kb (KnowledgeBase): Where the concepts are.
    given (Sequence): Candidates that the string of each mention was given.
    mention, concept (IntArray): Number of the mention, concept row. Shape (n,).
    features (NDArray[float32]): Shape (n, len(CONTEXTUAL_FEATURES)).
    evidence (str): What candidates that were read say of it.
    is_read (NDArray[bool]): Which pairs were. Shape (n,).
    """

    kb: KnowledgeBase
    given: Given
    mention: IntArray
    concept: IntArray
    features: NDArray[np.float32]
    evidence: str
    is_read: NDArray[np.bool_]

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """The `top` best candidates of each mention, best first.

        fusion (Fusion | None): Weights for CONTEXTUAL_FEATURES; None: those of `default_rescoring`.
        """
        scores = (fusion or default_rescoring()).scores(self.features)
        order, shares = rank(self.kb, self.concept, scores, self.mention, top=top)
        by_string = [{c.id: c for c in found} for found in self.given]
        ranked: list[list[Candidate]] = [[] for _ in self.given]
        ids = self.kb.ids_of(self.concept[order])
        for row, id_ in zip(order.tolist(), ids, strict=True):
            number, score = int(self.mention[row]), round(float(shares[row]), 4)
            known = by_string[number].get(id_)
            name = known.name if known else self.kb.preferred_name(int(self.concept[row]))
            sources = [known.evidence] if known else []
            sources += [self.evidence] if self.is_read[row] else []
            evidence, kb = "+".join(sources), self.kb.fingerprint
            ranked[number].append(Candidate(id_, score, name, evidence, kb))
        return [tuple(found) for found in ranked]


def weigh(
    kb: KnowledgeBase,
    given: Given,
    score: Callable[[IntArray, IntArray], NDArray[np.floating]],
    mention: IntArray = _NONE,
    concept: IntArray = _NONE,
    *,
    temperature: float,
    evidence: str = "contextual",
    reads_given: bool = True,
) -> PairScores:
    """The pairs of mentions and the candidates that they were given, and further ones.

    score (Callable): Of pairs, by what was read. From numbers of mentions and concept rows, both
        of shape (n,), to shape (n,).
    mention, concept (IntArray): Further pairs, also such as were given. Shape (n,).
    temperature (float): Divisor of scores to become log-odds.
    evidence (str): What candidates that were read say of it.
    reads_given (bool): Whether those that a mention was given are read too.
    """
    owner = np.repeat(np.arange(len(given)), [len(found) for found in given])
    of_string = owner * len(kb) + kb.find_all([c.id for found in given for c in found])
    keys, place = np.unique(
        np.concatenate([of_string, mention * len(kb) + concept]), return_inverse=True
    )
    mention, concept = keys // len(kb), keys % len(kb)
    features = np.zeros((len(keys), len(CONTEXTUAL_FEATURES)), dtype=np.float32)
    probability = np.array([c.score for found in given for c in found], dtype=np.float64)
    taken = np.bincount(owner, probability, len(given))
    likeliest = np.zeros(len(given))
    np.maximum.at(likeliest, owner, probability)
    # Equivalents have the same probability together, and each of them has it.
    nil = 1 - np.where(taken > 1 + _LOWEST * 10, likeliest, taken)
    odds = np.maximum(probability, _LOWEST) / np.maximum(nil[owner], _LOWEST)
    features[:, 0] = np.log(_LOWEST)
    features[place[: len(of_string)], 0] = np.log(odds)
    features[place[: len(of_string)], 1] = 1.0
    scores = score(mention, concept)
    highest = np.full(len(given), -np.inf)
    np.maximum.at(highest, mention, scores)
    weight = np.exp((scores - highest[mention]) / temperature)
    total = np.bincount(mention, weight, len(given))
    features[:, 2] = scores
    features[:, 3] = np.log(np.maximum(weight / total[mention], _LOWEST))
    features[:, 4] = scores >= highest[mention] - 1e-5
    is_read = np.full(len(keys), reads_given)
    is_read[place[len(of_string) :]] = True
    return PairScores(kb, given, mention, concept, features, evidence, is_read)
