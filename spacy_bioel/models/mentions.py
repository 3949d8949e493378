"""Mention detection: tok2vec (thinc) -> all spans scored (torch)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d

from spacy_bioel.models.torch_io import require_torch, wrap_torch
from spacy_bioel.models.types import SpanBatch, SpanScores

# Bits of a lexicon mask, and "this is a short form that the document defines".
SHORT_FORM = 64
N_FEATURES = 65

Tok2Vec = Model[list[Doc], list[Floats2d]]
SpanEnumerator = Model[SpanBatch, SpanScores]


def build_span_enumerator_v1(
    tok2vec: Tok2Vec,
    *,
    max_width: int = 10,
    hidden: int = 128,
    context: int = 0,
    dropout: float = 0.2,
) -> SpanEnumerator:
    """Registered as `spacy-bioel.SpanEnumerator.v1`.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    max_width (int): L, the longest span in tokens; longer mentions cannot be found.
    hidden (int): Size of the hidden layer that scores a span; 0 for a linear score, equation 4 of
        Bhowmik et al. (2021) as published: no hidden layer, no width, and lexicon matches of a
        span reach its score through its tokens alone.
    context (int): Size of a bidirectional LSTM between tok2vec and scorer; 0 for none.
    dropout (float): In training, on token vectors and hidden layer.
    RETURNS (Model[SpanBatch, SpanScores]): Its torch part exists once labels are known, see
        `add_span_scorer`.
    """
    return Model(
        "span_enumerator",
        _forward,
        init=None,
        layers=[tok2vec],
        attrs={
            "max_width": max_width,
            "n_features": N_FEATURES,
            "settings": {"hidden": hidden, "context": context, "dropout": dropout},
        },
        dims={"nO": None},
        refs={"tok2vec": tok2vec, "scorer": None},
    )


def add_span_scorer(model: SpanEnumerator, *, n_labels: int, width: int | None = None) -> None:
    """Give the model its torch part, once: the number of labels and the width are known now.

    RAISES BioelError: [B040] without torch.
    """
    require_torch()
    from spacy_bioel.nn.spans import LinearSpanScorer, SpanScorer

    settings = dict(model.attrs["settings"])
    hidden = settings.pop("hidden")
    make = partial(SpanScorer, hidden=hidden) if hidden else LinearSpanScorer
    scorer = make(
        width=width or model.get_ref("tok2vec").get_dim("nO"),
        n_labels=n_labels,
        max_width=model.attrs["max_width"],
        n_features=model.attrs["n_features"],
        **settings,
    )
    wrapper = wrap_torch(scorer, convert_inputs=_to_torch, convert_outputs=_from_torch)
    model.layers.append(wrapper)
    model.set_ref("scorer", wrapper)
    model.set_dim("nO", n_labels)


def _forward(
    model: SpanEnumerator, batch: SpanBatch, is_train: bool
) -> tuple[Any, Callable[[Any], Any]]:
    vectors, backprop_vectors = model.get_ref("tok2vec")(batch.docs, is_train)
    lengths: Any = [len(doc) for doc in batch.docs]
    # A tok2vec may return a row for an empty document; the concatenation must not have it.
    flat = model.ops.flatten([v[:n] for v, n in zip(vectors, lengths, strict=True)])
    inputs = (flat, np.asarray(lengths, dtype=np.int64), batch.spans, batch.words)
    scores, backprop_scores = model.get_ref("scorer")(inputs, is_train)

    def backprop(d_scores: Any) -> Any:
        d_flat = backprop_scores(d_scores)
        return backprop_vectors(model.ops.unflatten(d_flat, lengths))

    return scores, backprop


def _to_torch(
    wrapper: Model, inputs: tuple[Any, Any, Any, Any], is_train: bool
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
