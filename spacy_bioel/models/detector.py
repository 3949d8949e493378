"""Mention detection models, tok2vec -> logits of spans or tags: common part of all architectures.

An architecture is a network over the tokens of a batch with a `DetectorKind`: its inference by
NumPy, its loss and its decoding. See `span_enumerator` and `bio_tagger`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import detector_shapes
from spacy_bioel.models.tok2vec import Tok2Vec, read_tokens, token_vectors
from spacy_bioel.models.torch_io import (
    DOCUMENT_TRANSFORMER,
    is_on_gpu,
    needs_torch,
    set_layer,
    torch_layer,
    weights_of,
)
from spacy_bioel.processor import one_thread_each

if TYPE_CHECKING:
    from torch import nn

# Features are the bits of a lexicon mask, and one more: a short form that the document defines.
SHORT_FORM = 64
N_FEATURES = 65


@dataclass(frozen=True)
class MentionBatch:
    """Documents, which may be empty, with their lexicon matches.

    spans (NDArray[int64]): Matches of spans, (start, width - 1, feature); tokens are counted over
        all documents. Shape (n, 3).
    words (NDArray[int64]): Matches of single tokens, (token, feature). Shape (n, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# Start token, end token (exclusive) and label of each span of a batch, as tokens are counted there.
# Shape (n_spans, 3).
TokenSpans = NDArray[np.int64]

# Output of a network for the tokens of a batch. Shape (n_tokens, ...), by architecture.
Logits = NDArray[np.float32]

MentionModel = Model[MentionBatch, Logits]
# Token vectors, tokens per document, lexicon matches of spans and of words; see `DetectorKind`.
Inputs = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

_TOKENS = 4096  # tokens scored together


@dataclass(frozen=True)
class DetectorKind:
    """Strategy of an architecture; module-level functions, so that it can be pickled.

    scorer (str): The network, a class of `nn.spans`.
    infer (Callable): Computes the logits from weights, the inputs of the network as arrays, and
        max_width, where no LSTM is between.
    loss (Callable): Computes the loss and its gradient from logits, gold spans, the probability of
        each, and the labels that were looked for at each token, shape (n_tokens, n_labels): what is
        not there of any other label is unknown.
    decode (Callable): Decodes logits, given the tokens of each document and a minimum probability,
        into spans in order of their start and their probabilities, shape (n_spans,).
    is_local (bool): Spans depend on the logits of their first token alone, and these, without an
        LSTM, on tokens and matches that are near: long documents are read in pieces.
    """

    scorer: str
    infer: Callable[..., Logits]
    loss: Callable[
        [Logits, TokenSpans, NDArray[np.float32], NDArray[np.bool_]], tuple[float, Logits]
    ]
    decode: Callable[[Logits, NDArray[np.int64], float], tuple[TokenSpans, NDArray[np.float32]]]
    is_local: bool = False


def mention_model(
    name: str, kind: DetectorKind, tok2vec: Tok2Vec, *, max_width: int, settings: dict[str, Any]
) -> MentionModel:
    """Make a model without its torch part, as the builders of the architectures do."""
    if any(node.name == DOCUMENT_TRANSFORMER for node in tok2vec.walk()):
        raise BioelError(Errors.B173.format(name=name))
    return Model(
        name,
        _forward,
        init=None,
        layers=[tok2vec],
        attrs={"kind": kind, "max_width": max_width, "settings": settings},
        dims={"nO": None},
        refs={"tok2vec": tok2vec, "scorer": None},
    )


def add_scorer(model: MentionModel, *, n_labels: int, width: int | None = None) -> None:
    """Add the torch part to a model, in the place of an earlier one.

    width (int | None): Width of the token vectors; None: the width of the tok2vec.
    RAISES BioelError: [B040] when it has an LSTM, and torch is missing.
    """
    settings = {
        "width": width or model.get_ref("tok2vec").get_dim("nO"),
        "n_labels": n_labels,
        "max_width": model.attrs["max_width"],
        "n_features": N_FEATURES,
        **model.attrs["settings"],
    }
    shapes = {} if settings["context"] else detector_shapes(**settings)
    make = partial(_make_scorer, model.attrs["kind"].scorer, settings)
    set_layer(model, torch_layer(make=make, shapes=shapes), ref="scorer")
    model.set_dim("nO", n_labels, force=True)


def _make_scorer(name: str, settings: dict[str, int | float]) -> nn.Module:
    from spacy_bioel.nn import spans

    scorer: nn.Module = getattr(spans, name)(**settings)
    return scorer


def mention_loss(
    model: MentionModel,
    logits: FloatsXd,
    gold: TokenSpans,
    likely: NDArray[np.float32],
    known: NDArray[np.bool_],
) -> tuple[float, FloatsXd]:
    """The loss of a batch and its gradient, on the device of the logits: `DetectorKind.loss`."""
    loss, gradient = model.attrs["kind"].loss(model.ops.to_numpy(logits), gold, likely, known)
    on_device: Any = model.ops.asarray(gradient)
    return loss, on_device


def find_spans(
    model: MentionModel, batch: MentionBatch, *, lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Find spans of at least the lowest probability, in order, and the probability of each, in a
    batch of at least one token."""
    kind, scorer, width = model.attrs["kind"], model.get_ref("scorer"), model.attrs["max_width"]
    by_torch = needs_torch(scorer) or is_on_gpu(scorer)
    weights = {} if by_torch else weights_of(scorer)
    # Tokens beside a piece of a document that its spans depend on; None: all.
    margin = 2 * (width - 1) if kind.is_local and not needs_torch(scorer) else None

    def find(part: tuple[int, slice, Inputs]) -> tuple[TokenSpans, NDArray[np.float32]]:
        first, used, inputs = part
        if by_torch:
            logits = scorer.ops.to_numpy(scorer.predict(inputs))
        else:
            logits = kind.infer(weights, *inputs, max_width=width)
        found, probabilities = kind.decode(logits[used], inputs[1], lowest)
        return found + np.array([first, first, 0]), probabilities

    with one_thread_each() as spread:
        vectors = token_vectors(model.get_ref("tok2vec"), batch.docs, spread=spread)
        found = spread(find, _parts(vectors, batch, margin))
    spans, probabilities = zip(*found, strict=True)
    return np.concatenate(spans), np.concatenate(probabilities)


def _parts(
    vectors: NDArray[np.float32], batch: MentionBatch, margin: int | None
) -> Iterator[tuple[int, slice, Inputs]]:
    """Split a batch: into whole documents without a margin, else at any token.

    YIELDS (tuple): The first token of a part, those of its inputs that are its own, and its inputs.
    """
    ends = np.cumsum([len(doc) for doc in batch.docs])
    edges = np.append(np.arange(0, ends[-1], _TOKENS), ends[-1])
    if margin is None:  # to the end of the document that is cut
        edges = np.unique(np.append(0, ends[np.searchsorted(ends, edges[1:])]))
    spans = batch.spans[np.argsort(batch.spans[:, 0], kind="stable")]
    for start, end in pairwise(edges.tolist()):
        low, high = max(0, start - (margin or 0)), min(int(ends[-1]), end + (margin or 0))
        lengths = np.diff(np.clip(ends, low, high), prepend=low)
        inside = _between(spans, low, high)
        inside = inside[inside[:, 0] + inside[:, 1] < high - low]
        inputs = (vectors[low:high], lengths, inside, _between(batch.words, low, high))
        yield start, slice(start - low, end - low), inputs


def _between(matches: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    """Matches that begin at tokens from low to high, in this order, counted from low."""
    first, last = np.searchsorted(matches[:, 0], [low, high])
    found = matches[first:last].copy()
    found[:, 0] -= low
    return found


def _forward(
    model: MentionModel, batch: MentionBatch, is_train: bool
) -> tuple[FloatsXd, Callable[[FloatsXd], list[Doc]]]:
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), batch.docs, is_train)
    lengths = np.array([len(doc) for doc in batch.docs], dtype=np.int64)
    inputs = (tokens, lengths, batch.spans, batch.words)
    scores, backprop_scores = model.get_ref("scorer")(inputs, is_train)

    def backprop(d_scores: FloatsXd) -> list[Doc]:
        return backprop_tokens(backprop_scores(d_scores)[0])

    return scores, backprop
