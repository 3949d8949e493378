"""Token vectors that a network is trained on: their files, and fast inference on a CPU.

The tok2vec is a listener to a pipe `tok2vec`, which is saved with that pipe, or the model's own.
Tokens with equal features are embedded once per batch, and NumPy runs the layers of spaCy's CNN:
its matrix products take a third of the time of thinc's. Nothing is cached between calls, because
weights may change. A model with any layer that is not recognised falls back to its own `predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model, NumpyOps
from thinc.types import Floats2d

from spacy_bioel.models.inference import FloatArray, layer_norm, maxout, window
from spacy_bioel.models.name_encoder import Parts

if TYPE_CHECKING:
    from torch import Tensor

_OWN = "tok2vec.msgpack"

Tok2Vec = Model[list[Doc], list[Floats2d]]


def is_listener(tok2vec: Model) -> bool:
    """Whether a model is a listener to a pipe `tok2vec`."""
    return isinstance(tok2vec, Tok2VecListener)


def read_tokens(
    tok2vec: Model, docs: list[Doc], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], Any]]:
    """Vectors of the tokens of all documents, shape (n_tokens, width), and their callback."""
    lengths: Any = [len(doc) for doc in docs]
    found, backprop = tok2vec(docs, is_train)
    # Some tok2vec models return a row for an empty document: cut each array to its document.
    flat = tok2vec.ops.flatten([v[:n] for v, n in zip(found, lengths, strict=True)])

    def backprop_tokens(d_flat: Floats2d) -> Any:
        return backprop(tok2vec.ops.unflatten(d_flat, lengths))

    return flat, backprop_tokens


def forward_over_tokens(
    model: Model, docs: list[Doc], others: tuple[Any, ...], is_train: bool
) -> tuple[Any, Callable[[Any], Any]]:
    """Run the layer "network" of a model on the token vectors of its layer "tok2vec".

    others (tuple): Further inputs of the network, the last of which are vectors of strings.
    RETURNS (tuple): Its output, and a callback from the gradient of the output to that of the
        strings.
    """
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), docs, is_train)
    found, backprop = model.get_ref("network")((tokens, *others), is_train)

    def backprop_strings(d_found: Tensor) -> Any:
        d_tokens, d_strings = backprop(d_found)
        backprop_tokens(d_tokens)
        return d_strings

    return found, backprop_strings


def tok2vec_parts(tok2vec: Model) -> Parts:
    """Files for `load_tok2vec`; empty for a listener."""
    return {} if is_listener(tok2vec) else {_OWN: tok2vec.to_bytes}


def load_tok2vec(tok2vec: Model, parts: Mapping[str, bytes]) -> None:
    """Load the files of `tok2vec_parts`, if there are any."""
    if _OWN in parts:
        tok2vec.from_bytes(parts[_OWN])


_TOKENS = 1024  # tokens computed together: intermediate results stay in the processor's cache

# Modules of the forward functions of the embedding's layers, in order.
_EMBED = (
    "spacy.ml.featureextractor",
    "thinc.layers.list2ragged",
    "thinc.layers.with_array",
    "thinc.layers.with_array",
    "thinc.layers.ragged2list",
)
_CHAIN, _RESIDUAL = "thinc.layers.chain", "thinc.layers.residual"
_MAXOUT, _LAYER_NORM = "thinc.layers.maxout", "thinc.layers.layernorm"
_WINDOW, _DROPOUT = "thinc.layers.expand_window", "thinc.layers.dropout"
_PARAMETERS = {_MAXOUT: ("W", "b"), _LAYER_NORM: ("G", "b"), _WINDOW: (), _DROPOUT: ()}

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits

Spread = Callable[[Callable, Iterable], Iterable]
Function = Callable[[FloatArray], FloatArray]  # shape (n, width in) to (n, width out)


def token_vectors(tok2vec: Model, docs: Sequence[Doc], *, spread: Spread = map) -> FloatArray:
    """Token vectors of all documents, concatenated.

    They equal `tok2vec.predict(docs)` up to rounding.

    tok2vec (Model): Any tok2vec. Fast on a CPU: `spacy.Tok2Vec.v2` with `spacy.MultiHashEmbed.v2`
        without static vectors and `spacy.MaxoutWindowEncoder.v2`.
    spread (Callable): A `map` that may run parts of the documents in parallel.
    RETURNS (NDArray[float32]): Shape (n_tokens, width).
    """
    if not _is_known(tok2vec):
        found: Any = read_tokens(tok2vec, list(docs), False)[0]
        return found
    encode = tok2vec.get_ref("encode")
    embedded, number = _embed(tok2vec.get_ref("embed"), docs)
    pad = encode.attrs["pad"]
    vectors = np.empty((len(number), embedded.shape[1]), np.float32)
    run = partial(_run_part, _function(encode.layers[0]), embedded, number, vectors, pad)
    list(spread(run, _parts([len(doc) for doc in docs], pad)))
    return vectors


def _run_part(
    network: Function,
    embedded: FloatArray,
    number: NDArray[np.int64],
    vectors: FloatArray,
    pad: int,
    part: list[_Piece],
) -> None:
    """Fill in the vectors of the tokens of pieces, with `pad` rows of zeros around each."""
    tokens = np.concatenate([np.arange(piece.low, piece.high) for piece in part])
    owner = np.repeat(np.arange(len(part)), [piece.high - piece.low for piece in part])
    rows = np.arange(len(tokens)) + pad * (owner + 1)
    starts, ends = np.array([(piece.start, piece.end) for piece in part])[owner].T
    padded = np.zeros((len(rows) + pad * (len(part) + 1), embedded.shape[1]), np.float32)
    padded[rows] = embedded[number[tokens]]
    own = rows[(starts <= tokens) & (tokens < ends)]
    vectors[part[0].start : part[-1].end] = network(padded)[own]


def _is_known(tok2vec: Model) -> bool:
    if type(tok2vec.ops) is not NumpyOps or not tok2vec.has_ref("encode"):
        return False
    embed, encode = tok2vec.get_ref("embed"), tok2vec.get_ref("encode")
    return (
        _computes(tok2vec) == _CHAIN
        and tok2vec.layers == [embed, encode]
        and tuple(map(_computes, embed.layers)) == _EMBED
        and _has_function(embed.layers[3].layers[0])
        and _computes(encode) == "thinc.layers.with_array"
        and _has_function(encode.layers[0])
    )


def _computes(layer: Model) -> str:
    """Module of the forward function of a layer."""
    return layer._func.__module__


def _embed(embed: Model, docs: Sequence[Doc]) -> tuple[FloatArray, NDArray[np.int64]]:
    """Embeddings of the different tokens, before the convolutions, and the number of each token.

    RETURNS (tuple): Shape (n_different, width), shape (n_tokens,).
    """
    extract, _, hash_embed, mix, _ = embed.layers
    features = np.concatenate(extract.predict(docs))
    unique, inverse = _unique_rows(features)
    return _function(mix.layers[0])(hash_embed.predict(unique)), inverse


def _unique_rows(features: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Unique rows, and the index of each row among them. features: shape (n, n_columns)."""
    # Rows are compared by a 64-bit hash, with collisions as unlikely as those of spaCy's hashes
    # of strings.
    weights = [pow(_BASE, column + 1, 1 << 64) for column in range(features.shape[1])]
    keys = (features * np.array(weights, dtype=np.uint64)).sum(axis=1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return features[first], inverse


class _Piece(NamedTuple):
    """Tokens of a document: the network reads [low, high), the vectors of [start, end) are used."""

    low: int
    start: int
    end: int
    high: int


def _parts(lengths: Sequence[int], pad: int) -> Iterator[list[_Piece]]:
    """Split documents into parts of as many as fit, and long ones into pieces that overlap.

    pad (int): Tokens on both sides that a vector depends on.
    """
    part: list[_Piece] = []
    first = 0
    for length in lengths:
        last = first + length
        for start in range(first, last, _TOKENS):
            end = min(start + _TOKENS, last)
            if part and end - part[0].start > _TOKENS:
                yield part
                part = []
            part.append(_Piece(max(first, start - pad), start, end, min(last, end + pad)))
        first = last
    if part:
        yield part


def _has_function(layer: Model) -> bool:
    if _computes(layer) in (_CHAIN, _RESIDUAL):
        return all(map(_has_function, layer.layers))
    return _PARAMETERS.get(_computes(layer)) == layer.param_names


def _function(layer: Model) -> Function:
    """NumPy function of a thinc layer that `_has_function` accepts."""
    kind = _computes(layer)
    if kind == _CHAIN:
        return partial(_chain, [_function(part) for part in layer.layers])
    if kind == _RESIDUAL:
        return partial(_residual, _function(layer.layers[0]))
    if kind == _WINDOW:
        return partial(window, size=layer.attrs["window_size"])
    if kind == _DROPOUT:
        return partial(_chain, [])
    parameters: Any = [layer.get_param(name) for name in layer.param_names]
    if kind == _LAYER_NORM:
        return partial(_layer_norm, *parameters)
    # Pieces apart, each contiguous.
    weight, bias = (np.ascontiguousarray(array.swapaxes(0, 1)) for array in parameters)
    return partial(maxout, weight=weight, bias=bias)


def _chain(functions: Sequence[Function], x: FloatArray) -> FloatArray:
    for function in functions:
        x = function(x)
    return x


def _residual(function: Function, x: FloatArray) -> FloatArray:
    return np.add(y := function(x), x, out=y)


def _layer_norm(gain: FloatArray, bias: FloatArray, x: FloatArray) -> FloatArray:
    return layer_norm(x, gain, bias, epsilon=1e-8)


def build_with_spelling_v1(tok2vec: Tok2Vec, spelling: Tok2Vec) -> Tok2Vec:
    """Registered as `spacy-bioel.WithSpelling.v1`.

    An uncased checkpoint does not distinguish "NO" from "no", and splits "CYP2D6" into pieces. A
    small tok2vec of shapes, prefixes and suffixes adds that information.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    spelling (Model): A spaCy tok2vec over the same documents.
    RETURNS (Model): A tok2vec whose width is the sum of both widths.
    """
    return Model(
        "with_spelling",
        _forward,
        init=_init,
        layers=[tok2vec, spelling],
        dims={"nO": None},
    )


def _init(model: Model, X: object = None, Y: object = None) -> None:
    for layer in model.layers:
        layer.initialize(X=X)
    model.set_dim("nO", sum(layer.get_dim("nO") for layer in model.layers))


def _forward(
    model: Model, docs: Any, is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Any]]:
    found = [layer(docs, is_train) for layer in model.layers]
    # Some tok2vec models return a row for an empty document.
    parts = [[v[: len(doc)] for v, doc in zip(of, docs, strict=True)] for of, _ in found]
    width = model.layers[0].get_dim("nO")

    def backprop(d_vectors: list[Floats2d]) -> Any:
        (_, backprop_first), (_, backprop_second) = found
        backprop_second([model.ops.as_contig(d[:, width:]) for d in d_vectors])
        return backprop_first([model.ops.as_contig(d[:, :width]) for d in d_vectors])

    xp = model.ops.xp
    return [xp.hstack(of_doc) for of_doc in zip(*parts, strict=True)], backprop
