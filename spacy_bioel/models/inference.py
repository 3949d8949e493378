"""Inference by NumPy: the equations of `models.networks`, on their weights as arrays.

All numbers are float32. Weights have the names of the torch networks' own (`state_dict`), so that
a saved pipeline is read without torch. Results equal those of torch to 1e-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from spacy_bioel.types import FloatArray, IntArray

Weights = Mapping[str, NDArray]
Shapes = dict[str, tuple[int, ...]]

_BLOCK = 512  # rows whose sums are computed together: they stay in the processor's cache


def linear(x: FloatArray, weight: FloatArray, bias: FloatArray | None = None) -> FloatArray:
    """x W' + b. x: shape (n, width in); weight: (width out, width in)."""
    y = x @ weight.T
    if bias is not None:
        y += bias
    return y


def relu(x: FloatArray) -> FloatArray:
    """Replace negative numbers by 0, in place."""
    return np.maximum(x, 0, out=x)


def layer_norm(x: FloatArray, gain: FloatArray, bias: FloatArray, *, epsilon: float) -> FloatArray:
    """Shift and scale each row to mean 0 and variance 1, then by gain and bias."""
    y = x - x.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", y, y) / np.float32(x.shape[1])
    y /= np.sqrt(variance + np.float32(epsilon))[:, None]
    y *= gain
    y += bias
    return y


# Detectors: token vectors and gazetteer matches -> logits. See `models.networks` for the equations.


def add_matches(
    weights: Weights, tokens: FloatArray, spans: IntArray, words: IntArray
) -> FloatArray:
    """Add the embeddings of gazetteer matches to token vectors; see `models.networks.TokenReader`."""
    tokens = tokens.copy()
    embeddings = weights["token_features.weight"]
    n_features = len(embeddings) // 3
    start, width, feature = spans.T
    length = np.maximum(width - 1, 0)  # tokens between the first and the last
    inner = np.repeat(start + 1 - np.cumsum(length) + length, length) + np.arange(length.sum())
    places = np.concatenate([start, start + width, inner])
    kinds = np.concatenate(
        [feature, feature + n_features, np.repeat(feature, length) + 2 * n_features]
    )
    _add_rows(tokens, words[:, 0], weights["word_features.weight"][words[:, 1]])
    _add_rows(tokens, places, embeddings[kinds])
    return tokens


def _add_rows(x: FloatArray, places: IntArray, rows: FloatArray) -> None:
    """Add rows to those of x at some places, of which some may be equal, in their order."""
    if not len(places):
        return
    order = np.argsort(places, kind="stable")
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    x[places[order][first]] += np.add.reduceat(rows[order], first)


def span_logits(
    weights: Weights, tokens: FloatArray, lengths: IntArray, spans: IntArray, words: IntArray,
    *, max_width: int,
) -> FloatArray:  # fmt: skip
    """Logits of all spans; see `models.networks.SpanScorer.forward` for arguments and shape."""
    n = len(tokens)
    tokens = add_matches(weights, tokens, spans, words)
    starts = linear(tokens, weights["start.weight"], weights["start.bias"])
    padding = np.zeros((max_width - 1, starts.shape[1]), np.float32)
    ends, content = (
        np.concatenate([tokens @ weights[f"{k}.weight"].T, padding]) for k in ("end", "content")
    )
    if "output.weight" in weights:
        logits = _hidden_logits(weights, starts, ends, content, spans)
    else:
        ends, content = (
            sliding_window_view(x, max_width, axis=0).swapaxes(1, 2) for x in (ends, content)
        )
        sums = np.cumsum(content, axis=1, dtype=np.float64).astype(np.float32)
        logits = starts[:, None] + ends + sums
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(n)
    logits[np.arange(max_width) >= left[:, None]] = -np.inf  # outside of the document
    return logits


def _hidden_logits(
    weights: Weights, starts: FloatArray, ends: FloatArray, content: FloatArray, spans: IntArray
) -> FloatArray:
    output, widths = weights["output.weight"], weights["width.weight"]
    n, max_width = len(starts), len(widths)
    logits = np.empty((n, max_width, len(output)), np.float32)
    for low in range(0, n, _BLOCK):
        high = min(low + _BLOCK, n)
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
    *, max_width: int,
) -> FloatArray:  # fmt: skip
    """Logits of all tags; see `models.networks.TagScorer.forward`."""
    tokens = add_matches(weights, tokens, spans, words)
    return linear(tokens, weights["output.weight"], weights["output.bias"])


def _linear_shapes(name: str, width_out: int, width_in: int) -> Shapes:
    return {f"{name}.weight": (width_out, width_in), f"{name}.bias": (width_out,)}


def detector_shapes(
    *, width: int, n_labels: int, n_features: int, max_width: int, hidden: int | None = None,
    **others: object,
) -> Shapes:  # fmt: skip
    """Shapes of the weights of `models.networks.SpanScorer`; without `hidden`, of `TagScorer`."""
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


# Name encoder: word pieces of names -> vectors.


class ResCNN:
    """ResCNN of Lai, Ji and Zhai (2021), see `models.networks`, with its current weights.

    Without position embeddings the input of the first convolution depends on the word piece alone,
    and is computed once for each different one. The taps of all filters at one offset form one
    matrix: a block takes four products, and one addition in place for each offset but 0.

    weights (Weights): Of the torch network.
    tables (Weights): Frozen embeddings, see `models.networks.FrozenEmbeddings`.
    widths (Sequence[int]): Odd filter widths.
    """

    def __init__(self, weights: Weights, tables: Weights, *, widths: Sequence[int]) -> None:
        # Copies, as blocks have: the arrays of a network that is trained change.
        own = {name: array for name, array in weights.items() if not name.startswith("blocks.")}
        self.weights = {name: array.copy() for name, array in own.items()}
        self.tables = tables
        self.has_positions = bool(tables["positions"].any())
        n_blocks = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("blocks."))
        self.blocks = [_Block(weights, f"blocks.{i}.", widths) for i in range(n_blocks)]

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
        """Encode names. names: word pieces of each, at least one. RETURNS: Shape (n_names, dim)."""
        lengths = np.array([len(name) for name in names])
        ids = np.concatenate(names)
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(len(ids)) - np.repeat(starts, lengths)
        left = np.repeat(lengths, lengths) - positions
        if self.has_positions:
            x = self._embed(ids, positions)
        else:
            different, number = np.unique(ids, return_inverse=True)
            x = self._embed(different, np.zeros_like(different))[number]
        for block in self.blocks:
            x += block(x, positions, left)
        if "attention.0.weight" not in self.weights:
            return np.maximum.reduceat(x, starts)
        scores = self._linear(relu(self._linear(x, "attention.0")), "attention.3")
        highest = np.repeat(np.maximum.reduceat(scores, starts), lengths, axis=0)
        shares = np.exp(scores - highest)
        pooled = np.add.reduceat(shares * x, starts)
        return np.divide(pooled, np.add.reduceat(shares, starts), dtype=np.float32)


class _Block:
    """An encoding block, its filters sorted from the widest to the narrowest."""

    def __init__(self, weights: Weights, prefix: str, widths: Sequence[int]) -> None:
        made = [weights[f"{prefix}convolutions.{i}.weight"] for i in range(len(widths))]
        order = sorted(range(len(widths)), key=lambda i: -widths[i])

        def taps(offset: int) -> FloatArray:
            reaching = [i for i in order if widths[i] // 2 >= abs(offset)]
            return np.concatenate([made[i][:, :, widths[i] // 2 + offset] for i in reaching])

        reach = max(widths) // 2
        self.centre = taps(0)
        self.bias = np.concatenate([weights[f"{prefix}convolutions.{i}.bias"] for i in order])
        sides = {offset: taps(offset) for offset in range(-reach, reach + 1) if offset}
        self.offsets = [(offset, len(rows)) for offset, rows in sides.items()]
        self.sides = np.concatenate([self.centre[:0], *sides.values()])
        # Columns of the first layer follow the network's order of the filters.
        first = weights[f"{prefix}feed_forward.0.weight"]
        columns = np.split(first, np.cumsum([len(one) for one in made])[:-1], axis=1)
        self.first = (
            np.concatenate([columns[i] for i in order], axis=1),
            weights[f"{prefix}feed_forward.0.bias"].copy(),
        )
        self.second = tuple(
            weights[f"{prefix}feed_forward.3.{k}"].copy() for k in ("weight", "bias")
        )

    def __call__(self, x: FloatArray, positions: IntArray, left: IntArray) -> FloatArray:
        """Convolutions and feed-forward network.

        positions, left (IntArray): Tokens of the same name before each token, and from it on.
        """
        features = linear(x, self.centre, self.bias)
        products = x @ self.sides.T
        column, n = 0, len(x)
        for offset, filters in self.offsets:
            taps = products[:, column : column + filters]
            column += filters
            # Those that would reach into another name.
            taps[positions < offset if offset > 0 else left <= -offset] = 0
            rows = slice(max(0, -offset), max(0, n - max(0, offset)))
            neighbours = slice(max(0, offset), max(0, n - max(0, -offset)))
            features[rows, :filters] += taps[neighbours]
        return linear(relu(linear(relu(features), *self.first)), *self.second)


def rescnn_shapes(
    *, width: int, dim: int, blocks: int, filters: int, widths: Sequence[int], pooling: str,
    **others: object,
) -> Shapes:  # fmt: skip
    """Shapes of the trained weights of `models.networks.ResCNN`. width (int): Of the embeddings."""
    concatenated = filters * len(widths)
    hidden = (concatenated + dim) // 2
    shapes = _linear_shapes("project", dim, width)
    for i in range(blocks):
        for j, reach in enumerate(widths):
            shapes[f"blocks.{i}.convolutions.{j}.weight"] = (filters, dim, reach)
            shapes[f"blocks.{i}.convolutions.{j}.bias"] = (filters,)
        shapes |= _linear_shapes(f"blocks.{i}.feed_forward.0", hidden, concatenated)
        shapes |= _linear_shapes(f"blocks.{i}.feed_forward.3", dim, hidden)
    if pooling == "attention":
        shapes |= _linear_shapes("attention.0", dim // 2, dim)
        shapes |= _linear_shapes("attention.3", 1, dim // 2)
    return shapes
