"""Mention detection models, tok2vec -> logits of spans or tags: common part of all architectures.

An architecture is a network over the tokens of a batch with a `DetectorKind`: its constructor, its
inference by NumPy, its loss and its decoding. See `span_enumerator` and `bio_tagger`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import Shapes
from spacy_bioel.models.tok2vec import Tok2Vec, read_tokens, token_vectors
from spacy_bioel.models.torch_io import (
    DOCUMENT_TRANSFORMER,
    N_FEATURES,
    Logits,
    MentionBatch,
    TokenSpans,
    is_on_gpu,
    needs_torch,
    network_of,
    torch_layer,
    weights_of,
)
from spacy_bioel.processor import one_thread_each

MentionModel = Model[MentionBatch, Logits]
# Token vectors, tokens per document, lexicon matches of spans and of words; see `DetectorKind`.
Inputs = tuple[Any, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

_TOKENS = 4096  # tokens scored together


@dataclass(frozen=True)
class DetectorKind:
    """Strategy of an architecture; module-level functions, so that it can be pickled.

    make (Callable): Makes the torch module. Called with width (of token vectors), n_labels,
        max_width, n_features and the settings of the architecture, by keyword. The module maps
        token vectors, lengths and lexicon matches of spans and of words to logits, as
        `nn.spans.SpanScorer.forward` does.
    shapes (Callable): Shapes of the weights of the module, from the same arguments as `make`.
    infer (Callable): Computes the logits from weights, the inputs of the module as arrays, and
        max_width, where no LSTM is between.
    loss (Callable): Computes the loss and its gradient from logits, gold spans, and the labels that
        were looked for at each token, shape (n_tokens, n_labels): what is not there of any other
        label is unknown.
    decode (Callable): Decodes logits, given the tokens of each document, shape (n_docs,), and a
        minimum probability, into spans in order of their start and their probabilities, shape
        (n_spans,).
    is_local (bool): Spans depend on the logits of their first token alone, and these, without an
        LSTM, on tokens and matches that are near: long documents are read in pieces.
    """

    make: Callable[..., Any]
    shapes: Callable[..., Shapes]
    infer: Callable[..., Logits]
    loss: Callable[[Logits, TokenSpans, NDArray[np.bool_]], tuple[float, Logits]]
    decode: Callable[[Logits, NDArray[np.int64], float], tuple[TokenSpans, NDArray[np.float32]]]
    is_local: bool = False


def mention_model(
    name: str, kind: DetectorKind, tok2vec: Tok2Vec, *, max_width: int, settings: dict[str, Any]
) -> MentionModel:
    """Make a model without its torch part, which `add_scorer` adds once the labels are known.

    max_width (int): The longest lexicon match in tokens.
    settings (dict): Settings of the architecture.
    RAISES BioelError: [B173] when the tok2vec is a transformer: only its weights would be saved.
    """
    if any(node.name == DOCUMENT_TRANSFORMER for node in tok2vec.walk()):
        raise BioelError(Errors.B173.format(name=name))
    return Model(
        name,
        _forward,
        init=None,
        layers=[tok2vec],
        attrs={
            "kind": kind,
            "max_width": max_width,
            "n_features": N_FEATURES,
            "settings": settings,
        },
        dims={"nO": None},
        refs={"tok2vec": tok2vec, "scorer": None},
    )


def add_scorer(model: MentionModel, *, n_labels: int, width: int | None = None) -> None:
    """Add the torch part to a model, in the place of an earlier one.

    n_labels (int): Number of labels.
    width (int | None): Width of the token vectors; None: the width of the tok2vec.
    RAISES BioelError: [B040] when it has an LSTM, and torch is missing.
    """
    kind, has_lstm = model.attrs["kind"], bool(model.attrs["settings"]["context"])
    settings = {
        "width": width or model.get_ref("tok2vec").get_dim("nO"),
        "n_labels": n_labels,
        "max_width": model.attrs["max_width"],
        "n_features": model.attrs["n_features"],
        **model.attrs["settings"],
    }
    wrapper = torch_layer(
        partial(kind.make, **settings),
        {} if has_lstm else kind.shapes(**settings),
        convert_inputs=_to_torch,
        convert_outputs=_from_torch,
    )
    before = model.maybe_get_ref("scorer")
    model.layers[:] = [layer for layer in model.layers if layer is not before]
    model.layers.append(wrapper)
    model.set_ref("scorer", wrapper)
    model.set_dim("nO", n_labels, force=True)


def mention_loss(
    model: MentionModel, logits: Any, gold: TokenSpans, known: NDArray[np.bool_]
) -> tuple[float, Any]:
    """Compute the loss of a batch and its gradient with respect to the logits, on their device.

    gold (TokenSpans): Gold mentions of the batch.
    known (NDArray[bool]): See `DetectorKind.loss`. Shape (n_tokens, n_labels).
    """
    loss, gradient = model.attrs["kind"].loss(model.ops.to_numpy(logits), gold, known)
    return loss, model.ops.asarray(gradient)


def find_spans(
    model: MentionModel, batch: MentionBatch, *, lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Find the spans of a batch with at least a given probability, by document, then start.

    batch (MentionBatch): A batch with at least one token.
    lowest (float): Minimum probability of a span.
    RETURNS (tuple): The spans, and the probability of each, shape (n_spans,).
    """
    logits_of = _logits_of(model)
    with one_thread_each() as spread:
        vectors = token_vectors(model.get_ref("tok2vec"), batch.docs, spread=spread)
        find = partial(_find_spans, logits_of, model.attrs["kind"], lowest)
        found = spread(find, _parts(vectors, batch, _margin(model)))
    spans, probabilities = zip(*found, strict=True)
    return np.concatenate(spans), np.concatenate(probabilities)


def _logits_of(model: MentionModel) -> Callable[..., Logits]:
    """The network as a function of arrays: NumPy's, or torch's on a GPU and with an LSTM."""
    scorer = model.get_ref("scorer")
    if needs_torch(scorer) or is_on_gpu(scorer):
        return partial(_by_torch, scorer)
    weights = weights_of(scorer)
    return partial(model.attrs["kind"].infer, weights, max_width=model.attrs["max_width"])


def _by_torch(scorer: Model, *inputs: Any) -> Logits:
    import torch

    network = network_of(scorer)
    arguments, _ = _to_torch(scorer, inputs, False)
    with torch.inference_mode():
        logits: Logits = network(*arguments.args).cpu().numpy()
    return logits


def _find_spans(
    logits_of: Callable[..., Logits],
    kind: DetectorKind,
    lowest: float,
    part: tuple[int, slice, Inputs],
) -> tuple[TokenSpans, NDArray[np.float32]]:
    first, used, inputs = part
    spans, probabilities = kind.decode(logits_of(*inputs)[used], inputs[1], lowest)
    return spans + np.array([first, first, 0]), probabilities


def _margin(model: MentionModel) -> int | None:
    """Tokens beside a piece of a document that its spans depend on; None: all."""
    if not model.attrs["kind"].is_local or needs_torch(model.get_ref("scorer")):
        return None
    return 2 * (model.attrs["max_width"] - 1)


def _parts(
    vectors: Any, batch: MentionBatch, margin: int | None
) -> Iterator[tuple[int, slice, Inputs]]:
    """Split a batch into parts of whole documents, and of pieces of a document that is longer.

    YIELDS (tuple): The first token of a part, those of its inputs that are its own, and its inputs.
    """
    lengths = np.array([len(doc) for doc in batch.docs], dtype=np.int64)
    spans = batch.spans[np.argsort(batch.spans[:, 0], kind="stable")]
    begins = np.diff(np.cumsum(lengths) // _TOKENS, prepend=0) > 0
    is_long = lengths > _TOKENS
    begins |= is_long | np.append(False, is_long)[:-1]
    first = 0
    for of_part in np.split(lengths, np.flatnonzero(begins)):
        last = first + int(of_part.sum())
        is_cut = margin is not None and len(of_part) == 1
        for start in range(first, last, _TOKENS) if is_cut else (first,):
            end = min(start + _TOKENS, last) if is_cut else last
            low, high = max(first, start - (margin or 0)), min(last, end + (margin or 0))
            read = of_part if not is_cut else np.array([high - low])
            inside = _between(spans, low, high)
            inside = inside[inside[:, 0] + inside[:, 1] < high]
            inside[:, 0] -= low
            words = _between(batch.words, low, high)
            words[:, 0] -= low
            if end > start:
                used = slice(start - low, end - low)
                yield start, used, (vectors[low:high], read, inside, words)
        first = last


def _between(matches: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    """Matches that begin at tokens from low to high, in this order, as a copy."""
    start, end = np.searchsorted(matches[:, 0], [low, high])
    return matches[start:end].copy()


def _forward(
    model: MentionModel, batch: MentionBatch, is_train: bool
) -> tuple[Any, Callable[[Any], Any]]:
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), batch.docs, is_train)
    lengths = np.array([len(doc) for doc in batch.docs], dtype=np.int64)
    inputs = (tokens, lengths, batch.spans, batch.words)
    scores, backprop_scores = model.get_ref("scorer")(inputs, is_train)

    def backprop(d_scores: Any) -> Any:
        return backprop_tokens(backprop_scores(d_scores))

    return scores, backprop


def _to_torch(
    wrapper: Model, inputs: Inputs, is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], Any]]:
    import torch

    flat, *features = inputs
    tokens = xp2torch(flat, requires_grad=is_train)
    args = (tokens, *(torch.from_numpy(array).to(tokens.device) for array in features))

    def backprop(d_args: ArgsKwargs) -> Any:
        return torch2xp(d_args.args[0])

    return ArgsKwargs(args=args, kwargs={}), backprop


def _from_torch(
    wrapper: Model, inputs_outputs: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable[[Any], ArgsKwargs]]:
    inputs, logits = inputs_outputs

    def backprop(d_scores: Any) -> ArgsKwargs:
        return ArgsKwargs(args=((logits,),), kwargs={"grad_tensors": (xp2torch(d_scores),)})

    return logits.detach().cpu().numpy() if not is_train else torch2xp(logits), backprop
