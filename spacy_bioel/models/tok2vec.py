"""Token vectors: spaCy's tok2vec in training, and fast inference on a CPU.

The tok2vec is a listener to a `tok2vec` pipe, or part of the model. Tokens with identical features
are embedded once per batch, and the layers of spaCy's CNN run in NumPy, whose matrix products take
a third of the time that thinc's take. Nothing is cached between calls, because weights may change.
If any layer is not recognised, the tok2vec's own `predict` runs instead.
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
from spacy_bioel.types import FloatArray, IntArray

Tok2Vec = Model[list[Doc], list[Floats2d]]
ArrayFunction = Callable[[FloatArray], FloatArray]  # shape (n, width in) to (n, width out)

# Number of tokens processed together: few enough that results stay in the processor's cache.
_TOKENS_PER_BLOCK = 1024
# Layers are recognised by the modules of their forward functions: the layers of a tok2vec, of its
# embedding, and of its CNN. CNN layers must also have the expected parameters.
_CHAIN, _WITH_ARRAY = "thinc.layers.chain", "thinc.layers.with_array"
_EMBED_LAYERS = (
    "spacy.ml.featureextractor",
    "thinc.layers.list2ragged",
    _WITH_ARRAY,
    _WITH_ARRAY,
    "thinc.layers.ragged2list",
)
_RESIDUAL, _EXPAND_WINDOW = "thinc.layers.residual", "thinc.layers.expand_window"
_MAXOUT, _LAYER_NORM = "thinc.layers.maxout", "thinc.layers.layernorm"
_PARAMETERS: dict[str, tuple[str, ...]] = {_MAXOUT: ("W", "b"), _LAYER_NORM: ("G", "b")}
_PARAMETERS |= {_CHAIN: (), _RESIDUAL: (), _EXPAND_WINDOW: (), "thinc.layers.dropout": ()}

_HASH_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits


def make_parameters(tok2vec: Model) -> None:
    """Initialise the parameters of a tok2vec to zero, before saved weights are loaded.

    thinc would draw random numbers several times for each layer, taking half of the loading time.
    """
    random_layers = [
        (layer, init)
        for layer in tok2vec.walk()
        if isinstance(init := layer.init, partial)
        and init.func.__module__.startswith("thinc.layers.")
        and layer.param_names
        and all(map(callable, init.args))
    ]
    try:
        for layer, init in random_layers:
            layer.init = partial(init.func, *[zero_init] * len(init.args))
        tok2vec.initialize()
    finally:
        for layer, init in random_layers:
            layer.init = init


def read_tokens(
    tok2vec: Model, docs: list[Doc], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list[Doc]]]:
    """Compute the token vectors of all documents, shape (n_tokens, width), and a callback for their
    gradient."""
    lengths: Any = [len(doc) for doc in docs]
    vectors, backprop = tok2vec(docs, is_train)
    # Some tok2vec models return a row for an empty document: cut each array to fit its document.
    flat = tok2vec.ops.flatten([v[:n] for v, n in zip(vectors, lengths, strict=True)])

    def backprop_tokens(d_flat: Floats2d) -> list[Doc]:
        return backprop(tok2vec.ops.unflatten(d_flat, lengths))

    return flat, backprop_tokens


def token_vectors(
    tok2vec: Model,
    docs: Sequence[Doc],
    *,
    parallel_map: Callable[[Callable, Iterable], Iterable] = map,
) -> FloatArray:
    """Compute the token vectors of all documents, identical to `tok2vec.predict` up to rounding.

    tok2vec (Model): Any tok2vec. Fast on a CPU: `spacy.Tok2Vec.v2` with `spacy.MultiHashEmbed.v2`
        without static vectors and `spacy.MaxoutWindowEncoder.v2`.
    parallel_map (Callable): A `map` that may run parts of the documents in parallel.
    RETURNS (NDArray[float32]): Shape (n_tokens, width).
    """
    functions = _numpy_functions(tok2vec)
    if functions is None:
        predicted: Any = read_tokens(tok2vec, list(docs), False)[0]
        return predicted
    mix, convolve = functions
    embed, encode = tok2vec.layers
    distinct, index = _unique_rows(np.concatenate(embed.layers[0].predict(docs)))
    embedded = _apply(mix, embed.layers[2].predict(distinct))
    # As in thinc, put as many rows of zeros on each side of a document as the CNN sees there.
    pad = encode.attrs["pad"]
    doc_number = np.repeat(np.arange(1, len(docs) + 1), [len(doc) for doc in docs])
    rows = np.arange(len(index)) + pad * doc_number
    padded_index = np.full(len(index) + pad * (len(docs) + 1), len(embedded))
    padded_index[rows] = index
    width = embedded.shape[1]
    embedded = np.concatenate([embedded, np.zeros((1, width), np.float32)])
    vectors = np.empty((len(padded_index), width), np.float32)

    def fill_block(start: int) -> None:
        low, end = max(0, start - pad), start + _TOKENS_PER_BLOCK
        block = _apply(convolve, embedded[padded_index[low : end + pad]])
        vectors[start:end] = block[start - low : end - low]

    list(parallel_map(fill_block, range(0, len(padded_index), _TOKENS_PER_BLOCK)))
    return vectors[rows]


def _numpy_functions(tok2vec: Model) -> tuple[list[ArrayFunction], list[ArrayFunction]] | None:
    """Return the layers that mix embeddings, and the CNN layers, as functions of arrays; None if
    any layer is not recognised."""
    modules = [layer._func.__module__ for layer in (tok2vec, *tok2vec.layers)]
    if type(tok2vec.ops) is not NumpyOps or modules != [_CHAIN, _CHAIN, _WITH_ARRAY]:
        return None
    embed, encode = tok2vec.layers
    if tuple(layer._func.__module__ for layer in embed.layers) != _EMBED_LAYERS:
        return None
    try:
        return _layer_functions(embed.layers[3].layers[0]), _layer_functions(encode.layers[0])
    except KeyError:
        return None


def _layer_functions(layer: Model) -> list[ArrayFunction]:
    """Return a thinc layer as functions of arrays, to be applied one after the other.

    RAISES KeyError: If the layer is not recognised.
    """
    kind = layer._func.__module__
    if _PARAMETERS[kind] != layer.param_names:
        raise KeyError(kind)
    parameters: Any = [layer.get_param(name) for name in layer.param_names]
    if kind == _CHAIN:
        return [function for part in layer.layers for function in _layer_functions(part)]
    if kind == _RESIDUAL:
        return [partial(_residual, _layer_functions(layer.layers[0]))]
    if kind == _EXPAND_WINDOW:
        return [partial(_window, layer.attrs["window_size"])]
    if kind == _LAYER_NORM:
        return [partial(layer_norm, gain=parameters[0], bias=parameters[1], epsilon=1e-8)]
    if kind == _MAXOUT:  # store each piece as a contiguous matrix
        return [partial(_maxout, *(np.ascontiguousarray(p.swapaxes(0, 1)) for p in parameters))]
    return []  # dropout has no effect in inference


def _apply(functions: Sequence[ArrayFunction], x: FloatArray) -> FloatArray:
    for function in functions:
        x = function(x)
    return x


def _residual(functions: Sequence[ArrayFunction], x: FloatArray) -> FloatArray:
    y = _apply(functions, x)
    return np.add(y, x, out=y)


def _window(size: int, x: FloatArray) -> FloatArray:
    """Concatenate each row with its neighbours, zero-padded. Shape (n, (2 * size + 1) * d)."""
    n, d = x.shape
    windows = np.zeros((n, 2 * size + 1, d), np.float32)
    for offset in range(-size, size + 1):
        rows = slice(max(0, -offset), n - max(0, offset))
        windows[rows, offset + size] = x[max(0, offset) : n + min(0, offset)]
    return windows.reshape(n, -1)


def _maxout(weight: FloatArray, bias: FloatArray, x: FloatArray) -> FloatArray:
    """Compute the maximum of several linear functions. weight: (n_pieces, width out, width in)."""
    best = x @ weight[0].T
    best += bias[0]
    for piece_weight, piece_bias in zip(weight[1:], bias[1:], strict=True):
        y = x @ piece_weight.T
        y += piece_bias
        np.maximum(best, y, out=best)
    return best


def _unique_rows(features: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], IntArray]:
    """Return the distinct rows, and the index of each row among them. features: (n, n_columns)."""
    # Rows are compared by a 64-bit hash; collisions are as unlikely as for spaCy's string hashes.
    weights = [pow(_HASH_BASE, column + 1, 1 << 64) for column in range(features.shape[1])]
    keys = (features * np.array(weights, dtype=np.uint64)).sum(axis=1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return features[first], inverse
