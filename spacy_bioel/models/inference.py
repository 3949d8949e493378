"""NumPy inference for token vectors, and for the networks in `models.networks`.

All numbers are float32. Weights have the same names as in the `state_dict` of the torch networks,
so saved pipelines run without torch. Results agree with torch to within 1e-5, unless the model is
quantised: it then multiplies integers (see `integers`).

A tok2vec is a listener to a `tok2vec` pipe, or part of the model. Tokens with identical features
are embedded once per batch, and the layers of spaCy's CNN run in NumPy, whose matrix products take
a third as long as thinc's. Only rounded weights are cached; they are reused until the weights
change. If any layer is not recognised, the tok2vec's own `predict` runs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model, NumpyOps, zero_init
from thinc.types import Floats2d

from spacy_bioel.integers import IntegerMatrix
from spacy_bioel.types import FloatArray, IntArray

Weights = Mapping[str, NDArray]
Shapes = dict[str, tuple[int, ...]]
Matrix = FloatArray | IntegerMatrix  # weights, shape (width out, width in).

# Number of start tokens scored together: few enough that sums stay in the processor's cache.
STARTS_PER_BLOCK = 512


def linear(x: FloatArray, weight: Matrix, bias: FloatArray | None = None) -> FloatArray:
    """Compute x W' + b. x: shape (n, width in); weight: (width out, width in)."""
    y = weight.times(x) if isinstance(weight, IntegerMatrix) else x @ weight.T
    if bias is not None:
        y += bias
    return y


def maybe_quantized(weight: FloatArray, quantized: bool) -> Matrix:
    """Return a weight matrix for `linear`, rounded to integers if the model is quantised."""
    return IntegerMatrix.of(weight) if quantized else weight


def relu(x: FloatArray) -> FloatArray:
    """Replace negative numbers with 0, in place."""
    return np.maximum(x, 0, out=x)


def layer_norm(x: FloatArray, gain: FloatArray, bias: FloatArray, *, epsilon: float) -> FloatArray:
    """Scale each row to mean 0 and variance 1, then multiply by gain and add bias."""
    width = np.float32(x.shape[1])
    y = x - _row_sums(x) / width
    y /= np.sqrt(_row_sums(y * y) / width + np.float32(epsilon))
    y *= gain
    y += bias
    return y


def _row_sums(x: FloatArray) -> FloatArray:
    """Sum each row by halving: NumPy's summation order depends on the processor. Shape (n, 1)."""
    while (width := x.shape[1]) > 1:
        half = width // 2
        sums = x[:, :half] + x[:, half : 2 * half]
        if width % 2:
            sums[:, 0] += x[:, -1]
        x = sums
    return x


# Detectors: logits from token vectors and gazetteer matches, as defined in `models.networks`.


def add_matches(
    weights: Weights, tokens: FloatArray, spans: IntArray, words: IntArray
) -> FloatArray:
    """Add embeddings of gazetteer matches to token vectors (see `models.networks.TokenReader`)."""
    tokens = tokens.copy()
    embeddings = weights["token_features.weight"]
    n_features = len(embeddings) // 3
    start, width, feature = spans.T
    length = np.maximum(width - 1, 0)  # tokens between the first and the last token of a match
    inner = np.repeat(start + 1 - np.cumsum(length) + length, length) + np.arange(length.sum())
    inner_feature = np.repeat(feature, length) + 2 * n_features
    positions = np.concatenate([start, start + width, inner])
    features = np.concatenate([feature, feature + n_features, inner_feature])
    _add_rows(tokens, words[:, 0], weights["word_features.weight"][words[:, 1]])
    _add_rows(tokens, positions, embeddings[features])
    return tokens


def _add_rows(x: FloatArray, positions: IntArray, rows: FloatArray) -> None:
    """Add each row to x at its position, in order; positions may repeat."""
    order = np.argsort(positions, kind="stable")
    in_order = positions[order]
    first = np.flatnonzero(np.diff(in_order, prepend=-1))
    n_same = np.diff(first, append=len(order))
    for i in range(n_same.max(initial=0)):  # the i-th row at each position
        at = order[first[n_same > i] + i]
        x[positions[at]] += rows[at]


def span_logits(
    weights: Weights, tokens: FloatArray, lengths: IntArray, spans: IntArray, words: IntArray,
    *, max_width: int, quantized: bool = False,
) -> FloatArray:  # fmt: skip
    """Score all spans; see `models.networks.SpanScorer.forward` for arguments and shape."""
    n = len(tokens)
    tokens = add_matches(weights, tokens, spans, words)
    parts = [weights[f"{name}.weight"] for name in ("start", "end", "content")]
    padded = np.zeros((n + max_width - 1, 3 * len(parts[0])), np.float32)
    padded[:n] = linear(tokens, maybe_quantized(np.concatenate(parts), quantized))
    starts, ends, content = np.split(padded, 3, axis=1)
    starts = starts[:n] + weights["start.bias"]
    if "output.weight" in weights:
        logits = _hidden_logits(weights, starts, ends, content, spans)
    else:
        ends = sliding_window_view(ends, max_width, axis=0).swapaxes(1, 2)
        content = sliding_window_view(content, max_width, axis=0).swapaxes(1, 2)
        sums = np.cumsum(content, axis=1, dtype=np.float64).astype(np.float32)
        logits = starts[:, None] + ends + sums
    n_left = np.repeat(np.cumsum(lengths), lengths) - np.arange(n)
    logits[np.arange(max_width) >= n_left[:, None]] = -np.inf  # spans that end outside the document
    return logits


def _hidden_logits(
    weights: Weights, starts: FloatArray, ends: FloatArray, content: FloatArray, spans: IntArray
) -> FloatArray:
    """Score spans with a hidden layer, block by block (see `models.networks.SpanScorer`)."""
    # Use float64, so that the order of additions hardly ever changes the float32 result.
    output, widths = weights["output.weight"].astype(np.float64), weights["width.weight"]
    n, max_width = len(starts), len(widths)
    logits = np.empty((n, max_width, len(output)), np.float32)
    for low in range(0, n, STARTS_PER_BLOCK):
        high = min(low + STARTS_PER_BLOCK, n)
        inside = spans[(spans[:, 0] >= low) & (spans[:, 0] < high)]
        total = np.zeros_like(starts[low:high])
        hidden = np.empty_like(total)
        for width in range(max_width):
            total += content[low + width : high + width]
            np.multiply(total, np.float32(1 / (width + 1)), out=hidden)
            hidden += starts[low:high]
            hidden += ends[low + width : high + width]
            hidden += widths[width]
            start, _, feature = inside[inside[:, 1] == width].T
            if len(start):
                _add_rows(hidden, start - low, weights["span_features.weight"][feature])
            logits[low:high, width] = relu(hidden) @ output.T
    logits += weights["output.bias"]
    return logits


def tag_logits(
    weights: Weights, tokens: FloatArray, lengths: IntArray, spans: IntArray, words: IntArray,
    *, max_width: int, quantized: bool = False,
) -> FloatArray:  # fmt: skip
    """Score all tags (see `models.networks.TagScorer.forward`)."""
    tokens = add_matches(weights, tokens, spans, words)
    output = maybe_quantized(weights["output.weight"].copy(), quantized)
    return linear(tokens, output, weights["output.bias"])


def _linear_shapes(name: str, width_out: int, width_in: int) -> Shapes:
    return {f"{name}.weight": (width_out, width_in), f"{name}.bias": (width_out,)}


START_BIAS = -4.0  # initial label bias; strongly negative because almost no spans are mentions


def detector_shapes(
    *, width: int, n_labels: int, n_features: int, max_width: int, hidden: int | None = None,
    **others: object,
) -> Shapes:  # fmt: skip
    """Return the weight shapes of a `SpanScorer` or, if `hidden` is None, of a `TagScorer`."""
    shapes: Shapes = {
        "word_features.weight": (n_features, width),
        "token_features.weight": (3 * n_features, width),
    }
    if hidden is None:
        return shapes | _linear_shapes("output", 2 * n_labels + 1, width)
    size = hidden or n_labels
    shapes |= _linear_shapes("start", size, width)
    shapes |= {"end.weight": (size, width), "content.weight": (size, width)}
    if hidden:
        shapes |= {"span_features.weight": (n_features, hidden)}
        shapes |= {"width.weight": (max_width, hidden)} | _linear_shapes("output", n_labels, hidden)
    return shapes


# Name encoder: vectors from the word pieces of names.


class NumpyResCNN:
    """`models.networks.ResCNN` in NumPy, with a copy of the current weights.

    Without position embeddings, the input of the first convolution depends only on the word piece,
    and is computed once for each distinct piece. The taps of all filters at the same offset form
    one matrix: a block takes four products, and one in-place addition for each offset other than 0.

    weights (Weights): Weights of the torch network.
    tables (Weights): Frozen embeddings (see `models.networks.FrozenEmbeddings`).
    widths (Sequence[int]): Odd filter widths.
    quantized (bool): Whether to multiply integers.
    """

    def __init__(
        self, weights: Weights, tables: Weights, *, widths: Sequence[int], quantized: bool = False
    ) -> None:
        # Copy the arrays, as `_Block` does, because training modifies them in place.
        self.weights: dict[str, Any] = {
            name: maybe_quantized(array.copy(), quantized and array.ndim > 1)
            for name, array in weights.items()
            if not name.startswith("blocks.")
        }
        self.tables = tables
        self.has_positions = bool(tables["positions"].any())
        n_blocks = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("blocks."))
        self.blocks = [_Block(weights, f"blocks.{i}.", widths, quantized) for i in range(n_blocks)]

    def _linear(self, x: FloatArray, name: str) -> FloatArray:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _embed(self, ids: IntArray, positions: IntArray) -> FloatArray:
        tables = self.tables
        words = tables["words"][ids].astype(np.float32)
        if "scale" in tables:
            words *= tables["scale"][ids]
        words += tables["positions"][positions]
        words += tables["token_type"]
        normed = layer_norm(words, tables["norm_weight"], tables["norm_bias"], epsilon=1e-12)
        return self._linear(normed, "project")

    def __call__(self, names: Sequence[list[int]]) -> FloatArray:
        """Encode names, each a list of one or more word pieces. Shape (n_names, dim)."""
        lengths = np.array([len(name) for name in names])
        ids = np.concatenate(names)
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(len(ids)) - np.repeat(starts, lengths)
        n_left = np.repeat(lengths, lengths) - positions
        if self.has_positions:
            x = self._embed(ids, positions)
        else:
            distinct, index = np.unique(ids, return_inverse=True)
            x = self._embed(distinct, np.zeros_like(distinct))[index]
        for block in self.blocks:
            x += block(x, positions, n_left)
        if "attention.0.weight" not in self.weights:
            return np.maximum.reduceat(x, starts)
        scores = self._linear(relu(self._linear(x, "attention.0")), "attention.3")
        highest = np.repeat(np.maximum.reduceat(scores, starts), lengths, axis=0)
        attention = np.exp(scores - highest)
        pooled = np.add.reduceat(attention * x, starts)
        return np.divide(pooled, np.add.reduceat(attention, starts), dtype=np.float32)


class _Block:
    """Encoding block with filters sorted from widest to narrowest."""

    def __init__(
        self, weights: Weights, prefix: str, widths: Sequence[int], quantized: bool
    ) -> None:
        filters = [weights[f"{prefix}convolutions.{i}.weight"] for i in range(len(widths))]
        order = sorted(range(len(widths)), key=lambda i: -widths[i])

        def taps(offset: int) -> FloatArray:
            reaching = [i for i in order if widths[i] // 2 >= abs(offset)]
            return np.concatenate([filters[i][:, :, widths[i] // 2 + offset] for i in reaching])

        reach = max(widths) // 2
        centre = taps(0)
        self.bias = np.concatenate([weights[f"{prefix}convolutions.{i}.bias"] for i in order])
        sides = {offset: taps(offset) for offset in range(-reach, reach + 1) if offset}
        self.offsets = [(offset, len(rows)) for offset, rows in sides.items()]
        self.filters = maybe_quantized(np.concatenate([centre, *sides.values()]), quantized)
        # Reorder the first layer's columns, which follow the network's own filter order.
        columns = np.split(weights[f"{prefix}feed_forward.0.weight"], len(filters), axis=1)
        self.first = (
            maybe_quantized(np.concatenate([columns[i] for i in order], axis=1), quantized),
            weights[f"{prefix}feed_forward.0.bias"].copy(),
        )
        self.second = (
            maybe_quantized(weights[f"{prefix}feed_forward.3.weight"].copy(), quantized),
            weights[f"{prefix}feed_forward.3.bias"].copy(),
        )

    def __call__(self, x: FloatArray, positions: IntArray, n_left: IntArray) -> FloatArray:
        """Compute the convolutions and the feed-forward network.

        positions, n_left (IntArray): Number of tokens in the same name before each token, and from
            this token on.
        """
        products = linear(x, self.filters)
        column, n = len(self.bias), len(x)
        features = products[:, :column] + self.bias
        for offset, n_filters in self.offsets:
            taps = products[:, column : column + n_filters]
            column += n_filters
            # Zero the products that would combine tokens from different names.
            taps[positions < offset if offset > 0 else n_left <= -offset] = 0
            rows = slice(max(0, -offset), max(0, n - max(0, offset)))
            neighbours = slice(max(0, offset), max(0, n - max(0, -offset)))
            features[rows, :n_filters] += taps[neighbours]
        return linear(relu(linear(relu(features), *self.first)), *self.second)


def rescnn_shapes(
    *, width: int, dim: int, blocks: int, filters: int, widths: Sequence[int], pooling: str,
    **others: object,
) -> Shapes:  # fmt: skip
    """Return the weight shapes of `models.networks.ResCNN` for an embedding width."""
    concatenated = filters * len(widths)
    hidden = (concatenated + dim) // 2
    shapes = _linear_shapes("project", dim, width)
    for i in range(blocks):
        for j, filter_width in enumerate(widths):
            shapes[f"blocks.{i}.convolutions.{j}.weight"] = (filters, dim, filter_width)
            shapes[f"blocks.{i}.convolutions.{j}.bias"] = (filters,)
        shapes |= _linear_shapes(f"blocks.{i}.feed_forward.0", hidden, concatenated)
        shapes |= _linear_shapes(f"blocks.{i}.feed_forward.3", dim, hidden)
    if pooling == "attention":
        shapes |= _linear_shapes("attention.0", dim // 2, dim)
        shapes |= _linear_shapes("attention.3", 1, dim // 2)
    return shapes


Tok2Vec = Model[list[Doc], list[Floats2d]]
ArrayFunction = Callable[[FloatArray], FloatArray]  # shape (n, width in) to (n, width out)
Layers = list[ArrayFunction]

# Number of tokens processed together: few enough that results stay in the processor's cache.
_TOKENS_PER_BLOCK = 1024
# The layers of the tok2vec, its embedding and its CNN are recognised by the module that defines
# their forward function. CNN layers must also have the expected parameters.
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
    """Initialise a tok2vec's parameters to zero before loading saved weights.

    thinc would draw random numbers several times per layer, which takes half of the loading time.
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
    # Truncate arrays to document length: some tok2vecs return a row for an empty document.
    flat = tok2vec.ops.flatten([v[:n] for v, n in zip(vectors, lengths, strict=True)])

    def backprop_tokens(d_flat: Floats2d) -> list[Doc]:
        return backprop(tok2vec.ops.unflatten(d_flat, lengths))

    return flat, backprop_tokens


def token_vectors(
    tok2vec: Model,
    docs: Sequence[Doc],
    *,
    parallel_map: Callable[[Callable, Iterable], Iterable] = map,
    quantized: bool = False,
) -> FloatArray:
    """Compute the token vectors of all documents, as `tok2vec.predict` does up to rounding.

    tok2vec (Model): Any tok2vec. Fast on a CPU: `spacy.Tok2Vec.v2` with `spacy.MultiHashEmbed.v2`
        without static vectors and `spacy.MaxoutWindowEncoder.v2`.
    parallel_map (Callable): A `map` that may run parts of the documents in parallel.
    RETURNS (NDArray[float32]): Shape (n_tokens, width).
    """
    functions = _numpy_functions(tok2vec, quantized)
    if functions is None:
        predicted: Any = read_tokens(tok2vec, list(docs), False)[0]
        return predicted
    mix, convolve = functions
    embed, encode = tok2vec.layers
    distinct, index = _unique_rows(np.concatenate(embed.layers[0].predict(docs)))
    embedded = _apply(mix, embed.layers[2].predict(distinct))
    # Like thinc, pad both sides of a document with as many zero rows as the CNN can see.
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


def _numpy_functions(tok2vec: Model, quantized: bool = False) -> tuple[Layers, Layers] | None:
    """Return the mixing and CNN layers as functions, or None if any layer is not recognised."""
    modules = [layer._func.__module__ for layer in (tok2vec, *tok2vec.layers)]
    if type(tok2vec.ops) is not NumpyOps or modules != [_CHAIN, _CHAIN, _WITH_ARRAY]:
        return None
    embed, encode = tok2vec.layers
    if tuple(layer._func.__module__ for layer in embed.layers) != _EMBED_LAYERS:
        return None
    try:
        mix, cnn = embed.layers[3].layers[0], encode.layers[0]
        return _layer_functions(mix, quantized), _layer_functions(cnn, quantized)
    except KeyError:
        return None


def _layer_functions(layer: Model, quantized: bool) -> Layers:
    """Convert a thinc layer to a list of functions. RAISES KeyError: If it is not recognised."""
    kind = layer._func.__module__
    if _PARAMETERS[kind] != layer.param_names:
        raise KeyError(kind)
    parameters: Any = [layer.get_param(name) for name in layer.param_names]
    if kind == _CHAIN:
        return [function for part in layer.layers for function in _layer_functions(part, quantized)]
    if kind == _RESIDUAL:
        inner = _layer_functions(layer.layers[0], quantized)
        return [lambda x: np.add(y := _apply(inner, x), x, out=y)]
    if kind == _EXPAND_WINDOW:
        windows: Any = layer.ops.seq2col
        return [partial(windows, nW=layer.attrs["window_size"])]
    if kind == _LAYER_NORM:
        return [partial(layer_norm, gain=parameters[0], bias=parameters[1], epsilon=1e-8)]
    if kind == _MAXOUT:  # piece by piece
        weight, bias = (np.concatenate(p.swapaxes(0, 1)) for p in parameters)
        matrix, n_pieces = maybe_quantized(weight, quantized), layer.get_dim("nP")
        return [lambda x: reduce(np.maximum, np.split(linear(x, matrix, bias), n_pieces, axis=1))]
    return []  # dropout has no effect at inference time


def _apply(functions: Sequence[ArrayFunction], x: FloatArray) -> FloatArray:
    for function in functions:
        x = function(x)
    return x


def _unique_rows(features: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], IntArray]:
    """Return the distinct rows, and the index of each row among them. features: (n, n_columns)."""
    # Compare rows by a 64-bit hash; collisions are as unlikely as for spaCy's string hashes.
    weights = [pow(_HASH_BASE, column + 1, 1 << 64) for column in range(features.shape[1])]
    keys = (features * np.array(weights, dtype=np.uint64)).sum(axis=1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return features[first], inverse
