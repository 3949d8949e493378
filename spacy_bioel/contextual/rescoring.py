"""Rescoring shared by the contextual models: their networks and files, and features of pairs.

Candidates of a string are ranked once, however often the string occurs (`linking.candidates`). A
contextual model then scores each mention in its document, and a fusion combines both scores.
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
    EncoderSource,
    Parts,
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

# Features of a pair of a mention and a concept.
#   string: log-odds of the concept against NIL for the string alone; the minimum if not a candidate
#   is_string_candidate: whether the concept is a candidate of the string
#   score: score of the contextual model
#   log_probability: log of the softmax of these scores over the candidates of the mention
#   highest: whether no other candidate has a higher score
CONTEXTUAL_FEATURES = ("string", "is_string_candidate", "score", "log_probability", "highest")
_MIN_PROBABILITY = 1e-4  # scores of candidates are rounded to four digits
_NO_ROWS = np.zeros(0, dtype=np.int64)
_TOK2VEC = "tok2vec.msgpack"


class TokenVectorRescorer(Rescorer):
    """Rescorer with a network over the token vectors of the layer "tok2vec".

    file (str): Name of the file of weights.
    stored (Mapping): Attributes of the model that the network is made from. Each has a file name, a
        function to bytes, and one from bytes.
    """

    features = CONTEXTUAL_FEATURES
    file: str
    stored: Mapping[str, tuple[str, Callable[[Any], bytes], Callable[[bytes], object]]] = {}

    def make_network(self) -> nn.Module:
        """Make the network. The name encoder must already have one."""
        raise NotImplementedError

    def add_network(self, source: EncoderSource | None = None) -> None:
        require_torch()
        self.model.get_ref("tok2vec").initialize()
        set_layer(self.model, torch_layer(self.make_network()))

    def parts(self) -> Parts:
        if not self.is_ready:
            return {}
        model, tok2vec = self.model, self.model.get_ref("tok2vec")
        parts: Parts = {self.file: lambda: weights_to_bytes(model.get_ref("network"))}
        for name, (file, to_bytes, _) in self.stored.items():
            parts[file] = partial(to_bytes, model.attrs[name])
        if not isinstance(tok2vec, Tok2VecListener):  # the pipe tok2vec saves what it listens to
            parts[_TOK2VEC] = tok2vec.to_bytes
        return parts

    def load(self, parts: Mapping[str, bytes]) -> None:
        files = {self.file, *(file for file, _, _ in self.stored.values())}
        if files & parts.keys():
            for name, (file, _, from_bytes) in self.stored.items():
                with reading_part(file):
                    self.model.attrs[name] = from_bytes(parts[file])
            self.add_network()
            weights_from_bytes(self.model.get_ref("network"), parts[self.file])
        if _TOK2VEC in parts:
            self.model.get_ref("tok2vec").from_bytes(parts[_TOK2VEC])


class WordPieceRescorer(Rescorer):
    """Rescorer with a layer over word pieces, made by a `NetworkKind`.

    layer_name (str): Name of the layer in the linker's model.
    prefix (str): Prefix of the names of its files.
    """

    features = CONTEXTUAL_FEATURES
    layer_name: str
    prefix: str

    @property
    def contextual_layer(self) -> Model:
        return self.model.get_ref(self.layer_name)

    def add_network(self, source: EncoderSource) -> None:
        add_encoder(self.contextual_layer, source)
        self.model.set_ref("network", self.contextual_layer)

    def parts(self) -> Parts:
        parts = encoder_parts(self.contextual_layer) if self.is_ready else {}
        return {self.prefix + name: part for name, part in parts.items()}

    def load(self, parts: Mapping[str, bytes]) -> None:
        n = len(self.prefix)
        layer_parts = {k[n:]: part for k, part in parts.items() if k.startswith(self.prefix)}
        if layer_parts:
            load_encoder(self.contextual_layer, layer_parts)
            self.model.set_ref("network", self.contextual_layer)


def contextual_model(
    name: str,
    rescorer: type[Rescorer],
    layers: dict[str, Model],
    *,
    forward: Callable | None = None,
    **attrs: object,
) -> Model:
    """Make the model of a contextual linker. Its rescorer adds the network later.

    layers (dict): Layers by name; "names" is the name encoder.
    forward (Callable | None): None runs the layer of a `WordPieceRescorer`.
    """
    return Model(
        name,
        forward or _contextual_layer_forward,
        layers=list(layers.values()),
        attrs={"rescorer": rescorer} | attrs,
        refs={"network": None} | layers,
    )


def _contextual_layer_forward(
    model: Model, inputs: object, is_train: bool
) -> tuple[object, Callable]:
    return model.get_ref(model.attrs["rescorer"].layer_name)(inputs, is_train)


def forward_over_tokens(
    model: Model, docs: list[Doc], more_inputs: Sequence[Any], is_train: bool
) -> tuple[Any, Callable[[Any], list[FloatsXd]]]:
    """Run the layer "network" on the token vectors of the layer "tok2vec" and further inputs.

    RETURNS (tuple): The output, and a callback from the gradient of the output to the gradients of
        the further inputs of floats.
    """
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), docs, is_train)
    output, backprop = model.get_ref("network")((tokens, *more_inputs), is_train)

    def backprop_more_inputs(d_output: FloatsXd | tuple[FloatsXd, ...]) -> list[FloatsXd]:
        d_tokens, *d_more_inputs = backprop(d_output)
        backprop_tokens(d_tokens)
        return d_more_inputs

    return output, backprop_more_inputs


def nearest_names(kb: KnowledgeBase, strings: Sequence[str], concepts: IntArray) -> IntArray:
    """Return, for each mention, the name of its concept with the highest cosine of TF-IDF vectors.

    The vectors are of character 3-grams, weighted by their rarity among all names, as in the n-gram
    search. Ties go to the first name, so a string without a similar name gets the preferred one.

    strings (Sequence[str]): Normalised mentions.
    concepts (IntArray): Concept row of each mention. Shape (n,).
    RETURNS (IntArray): Name rows. Shape (n,).
    """
    n_strings = len(strings)
    indptr, rows = kb.names_of_all(concepts)
    mention = np.repeat(np.arange(len(concepts)), np.diff(indptr))
    unique_rows, name_index = np.unique(rows, return_inverse=True)
    names = normalize_names(kb.names.take(unique_rows))
    # 3-grams of the strings, then those of the names.
    text_index, ngrams = name_ngrams([*strings, *names])
    weights = kb.ngrams.rarity(ngrams) ** 2
    norms = np.sqrt(np.bincount(text_index, weights, n_strings + len(names)))
    starts = np.searchsorted(text_index, np.arange(n_strings + len(names) + 1))
    # All 3-grams of each name, looked up among those of its mention.
    first, last = starts[n_strings + name_index], starts[n_strings + name_index + 1]
    pair = np.repeat(np.arange(len(rows)), last - first)
    _, ngram_index = entries_of(first, last - first)
    string_keys = (text_index << 24 | ngrams)[: starts[n_strings]]
    name_keys = mention[pair] << 24 | ngrams[ngram_index]
    position = np.minimum(np.searchsorted(string_keys, name_keys), max(0, len(string_keys) - 1))
    is_shared = np.zeros(len(name_keys), dtype=bool)
    if len(string_keys):
        is_shared = string_keys[position] == name_keys
    dots = np.bincount(pair, weights[ngram_index] * is_shared, len(rows))
    cosines = dots / np.maximum(norms[mention] * norms[n_strings + name_index], 1e-12)
    order = np.lexsort((np.arange(len(rows)), -cosines.round(6), mention))
    nearest: IntArray = rows[order[np.searchsorted(mention[order], np.arange(len(concepts)))]]
    return nearest


@cache
def default_rescoring() -> Fusion:
    """Return the weights used until `fit_fusion` has seen a corpus: the sum of both log-odds."""
    n = len(CONTEXTUAL_FEATURES)
    no_hidden, min_log = np.zeros(0), float(np.log(_MIN_PROBABILITY))
    direct = np.array([1.0, min_log, 0.0, 0.5, 0.0])
    return Fusion(np.zeros(n), np.ones(n), np.zeros((n, 0)), no_hidden, no_hidden, direct, -min_log)


@dataclass(eq=False)
class PairScores:
    """Features of pairs of a mention and a concept, sorted by mention.

    kb (KnowledgeBase): Holds the concepts.
    string_candidates (Sequence): Candidates of the string of each mention.
    mention, concept (IntArray): Number of the mention, concept row. Shape (n,).
    features (NDArray[float32]): Shape (n, len(CONTEXTUAL_FEATURES)).
    evidence (str): Name of the evidence of the contextual model.
    has_evidence (NDArray[bool]): Pairs that have this evidence. Shape (n,).
    """

    kb: KnowledgeBase
    string_candidates: Given
    mention: IntArray
    concept: IntArray
    features: NDArray[np.float32]
    evidence: str
    has_evidence: NDArray[np.bool_]

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """Return the `top` best candidates of each mention, best first.

        fusion (Fusion | None): Weights of CONTEXTUAL_FEATURES; None: those of `default_rescoring`.
        """
        scores = (fusion or default_rescoring()).scores(self.features)
        order, probabilities = rank(self.kb, self.concept, scores, self.mention, top=top)
        candidates_by_id = [{c.id: c for c in candidates} for candidates in self.string_candidates]
        ranked: list[list[Candidate]] = [[] for _ in self.string_candidates]
        ids = self.kb.ids_of(self.concept[order])
        for row, id_ in zip(order.tolist(), ids, strict=True):
            number, score = int(self.mention[row]), round(float(probabilities[row]), 4)
            by_string = candidates_by_id[number].get(id_)
            if by_string:
                name, sources = by_string.name, [by_string.evidence]
            else:
                name, sources = self.kb.preferred_name(int(self.concept[row])), []
            if self.has_evidence[row]:
                sources.append(self.evidence)
            evidence = "+".join(sources)
            ranked[number].append(Candidate(id_, score, name, evidence, self.kb.fingerprint))
        return [tuple(candidates) for candidates in ranked]


def rescore_pairs(
    kb: KnowledgeBase,
    string_candidates: Given,
    score: Callable[[IntArray, IntArray], NDArray[np.floating]],
    mention: IntArray = _NO_ROWS,
    concept: IntArray = _NO_ROWS,
    *,
    temperature: float,
    evidence: str = "contextual",
    evidence_for_all: bool = True,
) -> PairScores:
    """Score the string candidates of mentions, and further pairs, with a contextual model.

    score (Callable): Scores pairs: from numbers of mentions and concept rows, both of shape (n,),
        to shape (n,).
    mention, concept (IntArray): Further pairs; string candidates may be among them. Shape (n,).
    temperature (float): Divisor that turns scores into log-odds.
    evidence (str): Name of the evidence of the contextual model.
    evidence_for_all (bool): Give this evidence to all pairs; else only to the further pairs.
    """
    n_mentions = len(string_candidates)
    owner = np.repeat(np.arange(n_mentions), [len(c) for c in string_candidates])
    flat = [candidate for candidates in string_candidates for candidate in candidates]
    string_pairs = owner * len(kb) + kb.find_all([candidate.id for candidate in flat])
    pairs, pair_index = np.unique(
        np.concatenate([string_pairs, mention * len(kb) + concept]), return_inverse=True
    )
    from_string, further = pair_index[: len(string_pairs)], pair_index[len(string_pairs) :]
    mention, concept = pairs // len(kb), pairs % len(kb)
    features = np.zeros((len(pairs), len(CONTEXTUAL_FEATURES)), dtype=np.float32)
    probability = np.array([candidate.score for candidate in flat], dtype=np.float64)
    total_probability = np.bincount(owner, probability, n_mentions)
    max_probability = np.zeros(n_mentions)
    np.maximum.at(max_probability, owner, probability)
    # Each of several equivalent concepts has the probability of all, so their sum may exceed 1.
    has_equivalents = total_probability > 1 + _MIN_PROBABILITY * 10
    nil = 1 - np.where(has_equivalents, max_probability, total_probability)
    odds = np.maximum(probability, _MIN_PROBABILITY) / np.maximum(nil[owner], _MIN_PROBABILITY)
    features[:, 0] = np.log(_MIN_PROBABILITY)
    features[from_string, 0] = np.log(odds)
    features[from_string, 1] = 1.0
    scores = score(mention, concept)
    highest = np.full(n_mentions, -np.inf)
    np.maximum.at(highest, mention, scores)
    weight = np.exp((scores - highest[mention]) / temperature)
    total_weight = np.bincount(mention, weight, n_mentions)
    features[:, 2] = scores
    features[:, 3] = np.log(np.maximum(weight / total_weight[mention], _MIN_PROBABILITY))
    features[:, 4] = scores >= highest[mention] - 1e-5
    has_evidence = np.full(len(pairs), evidence_for_all)
    has_evidence[further] = True
    return PairScores(kb, string_candidates, mention, concept, features, evidence, has_evidence)
