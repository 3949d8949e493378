"""Token vectors that a network is trained on, and fast inference on a CPU.

The tok2vec is a listener to a pipe `tok2vec`, or the model's own.
Tokens with equal features are embedded once per batch, and NumPy runs the layers of spaCy's CNN:
its matrix products take a third of the time of thinc's. Nothing is cached between calls, because
weights may change. A model with any layer that is not recognised falls back to its own `predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model, NumpyOps, zero_init
from thinc.types import Floats2d

from spacy_bioel.models.inference import layer_norm
from spacy_bioel.types import FloatArray

Tok2Vec = Model[list[Doc], list[Floats2d]]


def make_parameters(tok2vec: Model) -> None:
    """Make the parameters that loaded weights replace: zeros, for thinc would draw random numbers
    for each layer several times, which takes half of the loading."""
    drawn = [
        (layer, init)
        for layer in tok2vec.walk()
        if isinstance(init := layer.init, partial)
        and init.func.__module__.startswith("thinc.layers.")
        and layer.param_names
        and all(map(callable, init.args))
    ]
    try:
        for layer, init in drawn:
            layer.init = partial(init.func, *[zero_init] * len(init.args))
        tok2vec.initialize()
    finally:
        for layer, init in drawn:
            layer.init = init


def read_tokens(
    tok2vec: Model, docs: list[Doc], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list[Doc]]]:
    """Vectors of the tokens of all documents, shape (n_tokens, width), and their callback."""
    lengths: Any = [len(doc) for doc in docs]
    found, backprop = tok2vec(docs, is_train)
    # Some tok2vec models return a row for an empty document: cut each array to its document.
    flat = tok2vec.ops.flatten([v[:n] for v, n in zip(found, lengths, strict=True)])

    def backprop_tokens(d_flat: Floats2d) -> list[Doc]:
        return backprop(tok2vec.ops.unflatten(d_flat, lengths))

    return flat, backprop_tokens


_TOKENS = 1024  # tokens computed together: intermediate results stay in the processor's cache

# Modules of the forward functions of the layers of a tok2vec, of its embedding, and of a CNN, with
# the parameters of the latter.
_CHAIN, _WITH_ARRAY = "thinc.layers.chain", "thinc.layers.with_array"
_EMBED = (
    "spacy.ml.featureextractor",
    "thinc.layers.list2ragged",
    _WITH_ARRAY,
    _WITH_ARRAY,
    "thinc.layers.ragged2list",
)
_RESIDUAL, _WINDOW = "thinc.layers.residual", "thinc.layers.expand_window"
_MAXOUT, _LAYER_NORM = "thinc.layers.maxout", "thinc.layers.layernorm"
_PARAMETERS: dict[str, tuple[str, ...]] = {_MAXOUT: ("W", "b"), _LAYER_NORM: ("G", "b")}
_PARAMETERS |= {_CHAIN: (), _RESIDUAL: (), _WINDOW: (), "thinc.layers.dropout": ()}

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits

ParallelMap = Callable[[Callable, Iterable], Iterable]
Function = Callable[[FloatArray], FloatArray]  # shape (n, width in) to (n, width out)


def token_vectors(
    tok2vec: Model, docs: Sequence[Doc], *, parallel_map: ParallelMap = map
) -> FloatArray:
    """Token vectors of all documents, concatenated.

    They equal `tok2vec.predict(docs)` up to rounding.

    tok2vec (Model): Any tok2vec. Fast on a CPU: `spacy.Tok2Vec.v2` with `spacy.MultiHashEmbed.v2`
        without static vectors and `spacy.MaxoutWindowEncoder.v2`.
    parallel_map (Callable): A `map` that may run parts of the documents in parallel.
    RETURNS (NDArray[float32]): Shape (n_tokens, width).
    """
    known = _known(tok2vec)
    if known is None:
        found: Any = read_tokens(tok2vec, list(docs), False)[0]
        return found
    mix, convolve = known
    embed, encode = tok2vec.layers
    different, number = _unique_rows(np.concatenate(embed.layers[0].predict(docs)))
    embedded = _run(mix, embed.layers[2].predict(different))
    # As thinc has them: rows of zeros around each document, as many as a vector depends on.
    pad = encode.attrs["pad"]
    owner = np.repeat(np.arange(1, len(docs) + 1), [len(doc) for doc in docs])
    rows = np.arange(len(number)) + pad * owner
    place = np.full(len(number) + pad * (len(docs) + 1), len(embedded))
    place[rows] = number
    width = embedded.shape[1]
    embedded = np.concatenate([embedded, np.zeros((1, width), np.float32)])
    vectors = np.empty((len(place), width), np.float32)

    def fill(start: int) -> None:
        low, end = max(0, start - pad), start + _TOKENS
        found = _run(convolve, embedded[place[low : end + pad]])
        vectors[start:end] = found[start - low : end - low]

    list(parallel_map(fill, range(0, len(place), _TOKENS)))
    return vectors[rows]


def _known(tok2vec: Model) -> tuple[list[Function], list[Function]] | None:
    """NumPy functions of the layer that mixes embeddings, and of the CNN; None: not known."""
    modules = [layer._func.__module__ for layer in (tok2vec, *tok2vec.layers)]
    if type(tok2vec.ops) is not NumpyOps or modules != [_CHAIN, _CHAIN, _WITH_ARRAY]:
        return None
    embed, encode = tok2vec.layers
    if tuple(layer._func.__module__ for layer in embed.layers) != _EMBED:
        return None
    try:
        return _functions(embed.layers[3].layers[0]), _functions(encode.layers[0])
    except KeyError:
        return None


def _functions(layer: Model) -> list[Function]:
    """NumPy functions of a thinc layer, to be called one after the other.

    RAISES KeyError: When it is not known.
    """
    kind = layer._func.__module__
    if _PARAMETERS[kind] != layer.param_names:
        raise KeyError(kind)
    parameters: Any = [layer.get_param(name) for name in layer.param_names]
    if kind == _CHAIN:
        return [function for part in layer.layers for function in _functions(part)]
    if kind == _RESIDUAL:
        return [partial(_residual, _functions(layer.layers[0]))]
    if kind == _WINDOW:
        return [partial(_window, layer.attrs["window_size"])]
    if kind == _LAYER_NORM:
        return [partial(layer_norm, gain=parameters[0], bias=parameters[1], epsilon=1e-8)]
    if kind == _MAXOUT:  # pieces apart, each contiguous
        return [partial(_maxout, *(np.ascontiguousarray(p.swapaxes(0, 1)) for p in parameters))]
    return []  # dropout


def _run(functions: Sequence[Function], x: FloatArray) -> FloatArray:
    for function in functions:
        x = function(x)
    return x


def _residual(functions: Sequence[Function], x: FloatArray) -> FloatArray:
    return np.add(y := _run(functions, x), x, out=y)


def _window(size: int, x: FloatArray) -> FloatArray:
    """Each row beside its neighbours, zeros outside. (n, d) -> (n, (2 * size + 1) * d)."""
    n, d = x.shape
    found = np.zeros((n, 2 * size + 1, d), np.float32)
    for at in range(2 * size + 1):
        shift = at - size
        found[max(0, -shift) : n - max(0, shift), at] = x[max(0, shift) : n + min(0, shift)]
    return found.reshape(n, -1)


def _maxout(weight: FloatArray, bias: FloatArray, x: FloatArray) -> FloatArray:
    """The largest of several linear functions. weight: (n_pieces, width out, width in)."""
    best = x @ weight[0].T
    best += bias[0]
    for of_piece, constant in zip(weight[1:], bias[1:], strict=True):
        y = x @ of_piece.T
        y += constant
        np.maximum(best, y, out=best)
    return best


def _unique_rows(features: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Unique rows, and the index of each row among them. features: shape (n, n_columns)."""
    # Rows are compared by a 64-bit hash, with collisions as unlikely as those of spaCy's hashes
    # of strings.
    weights = [pow(_BASE, column + 1, 1 << 64) for column in range(features.shape[1])]
    keys = (features * np.array(weights, dtype=np.uint64)).sum(axis=1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return features[first], inverse
