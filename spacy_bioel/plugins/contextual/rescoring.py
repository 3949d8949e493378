"""Rescoring code shared by the contextual models: networks, files and pair features.

The candidates for a string are ranked only once, however often it occurs (`linking.candidates`). A
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

from spacy_bioel.batch import Batch
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import name_ngrams
from spacy_bioel.linking.rescoring import Rescorer
from spacy_bioel.models.fusion import Fusion, rank
from spacy_bioel.models.inference import read_tokens
from spacy_bioel.models.name_encoder import (
    EncoderFiles,
    EncoderSource,
    add_encoder,
    encoder_parts,
    load_encoder,
)
from spacy_bioel.models.torch_io import (
    reading_part,
    require_torch,
    set_layer,
    torch_layer,
    weights_from_bytes,
    weights_to_bytes,
)
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import Candidate, IntArray, candidates_of

if TYPE_CHECKING:
    from torch import nn

# Features of a (mention, concept) pair:
#   string: log-odds against NIL from the string alone (the minimum if not a candidate);
#   is_string_candidate: whether the concept is a candidate for the string;
#   score: the contextual model's score;
#   log_probability: log of this score's softmax over the mention's candidates;
#   highest: 1 if no other candidate has a higher score.
CONTEXTUAL_FEATURES = ("string", "is_string_candidate", "score", "log_probability", "highest")
_MIN_PROBABILITY = 1e-4  # candidates' scores are rounded to four decimals
_NO_ROWS = np.zeros(0, dtype=np.int64)
_TOK2VEC = "tok2vec.msgpack"


class TokenVectorRescorer(Rescorer):
    """Rescorer with a network over the token vectors from the "tok2vec" layer.

    file (str): Name of the weights file.
    stored (Mapping): Model attributes that the network depends on, each with a file name, a
        function that converts the attribute to bytes, and a function that reads it from bytes.
    """

    features = CONTEXTUAL_FEATURES
    file: str
    stored: Mapping[str, tuple[str, Callable[[Any], bytes], Callable[[bytes], object]]] = {}

    def make_network(self) -> nn.Module:
        """Create the network. The name encoder must already have its own network."""
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
        if not isinstance(tok2vec, Tok2VecListener):  # the `tok2vec` pipe saves its own weights
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
    """Rescorer with a layer over word pieces, created by a `NetworkKind`.

    layer_name (str): Name of the layer in the linker's model.
    prefix (str): Prefix of the layer's file names.
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

    def parts(self) -> EncoderFiles:
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
    """Create the model for a contextual linker; the rescorer adds the network later.

    layers (dict): Layers by name; "names" is the name encoder.
    forward (Callable | None): Forward pass; None: run the layer of a `WordPieceRescorer`.
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
    """Run the "network" layer on the "tok2vec" layer's token vectors and additional inputs.

    RETURNS (tuple): The output, and a callback that takes the output's gradient and returns the
        gradients of the additional float inputs.
    """
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), docs, is_train)
    output, backprop = model.get_ref("network")((tokens, *more_inputs), is_train)

    def backprop_more_inputs(d_output: FloatsXd | tuple[FloatsXd, ...]) -> list[FloatsXd]:
        d_tokens, *d_more_inputs = backprop(d_output)
        backprop_tokens(d_tokens)
        return d_more_inputs

    return output, backprop_more_inputs


def token_ranges(batch: Batch) -> NDArray[np.int64]:
    """Return each span's start and end token, numbered across all documents. Shape (n, 2)."""
    offsets = np.cumsum([0, *map(len, batch.docs)]).tolist()
    ranges = [
        (offsets[owner] + span.start, offsets[owner] + span.end)
        for span, owner in zip(batch.spans, batch.owners, strict=True)
    ]
    return np.array(ranges, dtype=np.int64).reshape(-1, 2)


def nearest_names(kb: KnowledgeBase, strings: Sequence[str], concepts: IntArray) -> IntArray:
    """For each mention, return its concept's most similar name by TF-IDF cosine.

    The TF-IDF vectors contain character 3-grams, weighted by their rarity among all names, as in
    the n-gram search. Ties go to the first name, so for a string that is not similar to any name,
    the preferred name is returned.

    strings (Sequence[str]): Normalised mentions.
    concepts (IntArray): Concept row of each mention. Shape (n,).
    RETURNS (IntArray): Name rows. Shape (n,).
    """
    nearest = []
    for string, concept in zip(strings, concepts.tolist(), strict=True):
        rows = kb.names_of(concept)
        names = normalize_names(kb.names.take(rows))
        text, ngrams = name_ngrams([string, *names])
        weights = kb.ngrams.rarity(ngrams) ** 2
        is_shared = np.isin(ngrams, ngrams[text == 0])
        dots = np.bincount(text, weights * is_shared, 1 + len(names))
        norms = np.sqrt(np.bincount(text, weights, 1 + len(names)))
        cosines = dots / np.maximum(norms[0] * norms, 1e-12)
        nearest.append(rows[cosines[1:].round(6).argmax()])
    return np.array(nearest, dtype=np.int64)


@cache
def default_rescoring() -> Fusion:
    """Return default rescoring weights that add the string's and the model's log-odds."""
    n = len(CONTEXTUAL_FEATURES)
    no_hidden, min_log = np.zeros(0), float(np.log(_MIN_PROBABILITY))
    direct = np.array([1.0, min_log, 0.0, 0.5, 0.0])
    return Fusion(np.zeros(n), np.ones(n), np.zeros((n, 0)), no_hidden, no_hidden, direct, -min_log)


@dataclass(eq=False)
class PairScores:
    """Features of (mention, concept) pairs, sorted by mention.

    kb (KnowledgeBase): Contains the concepts.
    string_candidates (Sequence): Candidates for the string of each mention.
    mention, concept (IntArray): Mention index and concept row of each pair. Shape (n,).
    features (NDArray[float32]): Shape (n, len(CONTEXTUAL_FEATURES)).
    evidence (str): Name of the contextual model's evidence.
    has_evidence (NDArray[bool]): Whether each pair has this evidence. Shape (n,).
    """

    kb: KnowledgeBase
    string_candidates: Sequence[tuple[Candidate, ...]]
    mention: IntArray
    concept: IntArray
    features: NDArray[np.float32]
    evidence: str
    has_evidence: NDArray[np.bool_]

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """Return the `top` best candidates for each mention, best first.

        fusion (Fusion | None): Weights of CONTEXTUAL_FEATURES; None: `default_rescoring`.
        """
        scores = (fusion or default_rescoring()).scores(self.features)
        order, probabilities = rank(self.kb, self.concept, scores, self.mention, top=top)
        by_id = [{c.id: c for c in candidates} for candidates in self.string_candidates]
        mentions, ids = self.mention[order].tolist(), self.kb.ids_of(self.concept[order])
        names, evidence = list[str](), list[str]()
        for row, mention, id in zip(order.tolist(), mentions, ids, strict=True):
            if by_string := by_id[mention].get(id):
                name, sources = by_string.name, [by_string.evidence]
            else:
                name, sources = self.kb.preferred_name(int(self.concept[row])), []
            names.append(name)
            evidence.append("+".join(sources + [self.evidence] * bool(self.has_evidence[row])))
        columns = mentions, ids, probabilities[order].tolist(), names, evidence
        return candidates_of(len(by_id), self.kb.fingerprint, *columns)


def rescore_pairs(
    kb: KnowledgeBase,
    string_candidates: Sequence[tuple[Candidate, ...]],
    score: Callable[[IntArray, IntArray], NDArray[np.floating]],
    mention: IntArray = _NO_ROWS,
    concept: IntArray = _NO_ROWS,
    *,
    temperature: float,
    evidence: str = "contextual",
    evidence_for_all: bool = True,
) -> PairScores:
    """Score the mentions' string candidates and additional pairs with a contextual model.

    score (Callable): Takes mention indices and concept rows, shape (n,) each, and returns the
        scores of these pairs, shape (n,).
    mention, concept (IntArray): Additional pairs, which may include string candidates. Shape (n,).
    temperature (float): Divisor that turns scores into log-odds.
    evidence (str): Name of the contextual model's evidence.
    evidence_for_all (bool): Assign this evidence to all pairs, not only to the additional pairs.
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
    # Equivalent concepts do not compete for probability, so the sum may exceed 1.
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
