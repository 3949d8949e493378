"""Layers of a multi-task linker: states of its levels, logits, vectors of mentions, training.

`models.multitask` has the architecture, `nn.multitask` the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d

from spacy_bioel.models.tok2vec import forward_over_tokens, token_vectors
from spacy_bioel.models.torch_io import MentionBatch, wrap_torch
from spacy_bioel.text.windows import begins_sentence

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
NIL, UNKNOWN = 0, -100  # see `nn.multitask`, which needs torch


@dataclass(frozen=True)
class Lesson:
    """Gold answers for a batch, see `nn.multitask.Targets`, and random classes beside them.

    mentions (IntArray): Start and end token (exclusive), counted over all documents. (n, 2).
    """

    mentions: IntArray
    tags: IntArray
    types: IntArray
    classes: IntArray
    task: str | None
    others: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))


def wrap_multitask(network: Any) -> Model:
    """The torch module `nn.multitask.Multitask` as a layer."""
    return wrap_torch(network, convert_inputs=_to_torch, convert_outputs=_from_torch)


def network_of(model: Model) -> Any:
    """The torch module, `nn.multitask.Multitask`."""
    shim: Any = model.get_ref("network").shims[0]
    return shim._model


def sentence_lengths(docs: Sequence[Doc]) -> IntArray:
    """Tokens of each sentence of the documents: what the levels read at a time, as published."""
    begins = [b for doc in docs for b in begins_sentence([token.text for token in doc])]
    return np.diff(np.append(np.flatnonzero(begins), len(begins)))


def read_states(model: Model, batch: MentionBatch) -> dict[str, Any]:
    """Vectors of the tokens of a batch at the level of each task, as torch tensors.

    RETURNS (dict): By task. Shape (n_tokens, size) each.
    """
    import torch

    network = network_of(model)
    vectors: Any = token_vectors(model.get_ref("tok2vec"), batch.docs)
    if not len(vectors):
        return {task: xp2torch(vectors).new_zeros(0, network.size) for task in network.tasks}
    tokens = xp2torch(vectors)
    arrays = (sentence_lengths(batch.docs), batch.spans, batch.words)
    inputs = (torch.from_numpy(array).to(tokens.device) for array in arrays)
    with torch.inference_mode():
        found: dict[str, Any] = network.states(tokens, *inputs)
    return found


def tag_logits(model: Model, states: Mapping[str, Any]) -> FloatArray:
    """Logits of the BILOU tags of each token. Shape (n_tokens, 5)."""
    network = network_of(model)
    return _to_numpy(lambda: network.tags(states["mentions"]))


def type_logits(model: Model, states: Mapping[str, Any], places: IntArray) -> FloatArray | None:
    """Logits of the types of each mention, NIL first; None where types are not learnt.

    places (IntArray): Start and end token (exclusive) of each mention. Shape (n_mentions, 2).
    RETURNS (FloatArray | None): Shape (n_mentions, 1 + n_types).
    """
    network = network_of(model)
    if network.types is None:
        return None
    return _to_numpy(lambda: network.types(_mean(states["types"], places)))


def class_logits(model: Model, states: Mapping[str, Any], places: IntArray | None) -> FloatArray:
    """Logits of all classes for each mention, NIL first; of a linear layer, so that those of the
    mean of a mention's tokens are the mean of theirs.

    places (IntArray | None): As for `type_logits`; None: of each token.
    RETURNS (FloatArray): Shape (n, 1 + n_classes).
    """
    network, tokens = network_of(model), states["links"]
    return _to_numpy(lambda: network.logits(tokens if places is None else _mean(tokens, places)))


def mention_vectors(
    model: Model, states: Mapping[str, Any], places: IntArray, words: FloatArray
) -> FloatArray:
    """Unit vectors of mentions, to be compared with those of names.

    places (IntArray): As for `type_logits`.
    words (FloatArray): Vectors of the mentions' strings. Shape (n_mentions, dim).
    RETURNS (FloatArray): Shape (n_mentions, dim).
    """
    import torch

    network, tokens = network_of(model), states["links"]
    arrays = [torch.from_numpy(array).to(tokens.device) for array in (places, words)]
    return _to_numpy(lambda: network.tower(tokens, *arrays))


def _mean(tokens: Any, places: IntArray) -> Any:
    import torch

    from spacy_bioel.nn.documents import mean_of_spans

    return mean_of_spans(tokens, torch.from_numpy(places).to(tokens.device))


def _to_numpy(compute: Callable[[], Any]) -> FloatArray:
    import torch

    with torch.inference_mode():
        found: FloatArray = compute().cpu().numpy()
    return found


# Training.


def forward(
    model: Model, inputs: tuple[MentionBatch, Lesson, Any], is_train: bool
) -> tuple[tuple[Floats2d, float], Callable[[Floats2d], Any]]:
    """From a batch, its gold answers and vectors of the mentions' strings to vectors of the
    mentions, and the loss. The callback takes the gradient of the vectors; it adds that of the loss
    and returns that of the strings."""
    batch, lesson, strings = inputs
    return forward_over_tokens(model, batch.docs, (batch, lesson, strings), is_train)


def _to_torch(
    wrapper: Model, inputs: tuple[Any, MentionBatch, Lesson, Any], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], Any]]:
    import torch

    from spacy_bioel.nn.multitask import Targets

    flat, batch, lesson, words = inputs
    lengths = sentence_lengths(batch.docs)
    tokens = xp2torch(flat, requires_grad=is_train)
    strings = xp2torch(words, requires_grad=is_train)

    def there(array: Any) -> Any:
        return torch.as_tensor(array, dtype=torch.int64, device=tokens.device)

    answers = {
        name: there(getattr(lesson, name)) for name in ("tags", "types", "classes", "others")
    }
    args = (
        tokens,
        *(there(array) for array in (lengths, batch.spans, batch.words, lesson.mentions)),
        strings,
        Targets(task=lesson.task, **answers),
    )

    def backprop(d_args: ArgsKwargs) -> Any:
        # What was detached, or not read, has no gradient.
        return tuple(
            torch2xp(torch.zeros_like(x) if x.grad is None else x.grad) for x in (tokens, strings)
        )

    return ArgsKwargs(args=args, kwargs={}), backprop


def _from_torch(
    wrapper: Model, inputs_outputs: tuple[Any, tuple[Any, Any]], is_train: bool
) -> tuple[tuple[Any, float], Callable[[Any], ArgsKwargs]]:
    _, (vectors, loss) = inputs_outputs

    def backprop(d_vectors: Any) -> ArgsKwargs:
        import torch

        pairs = ((vectors, xp2torch(d_vectors)), (loss, torch.ones_like(loss)))
        outputs, gradients = zip(*(pair for pair in pairs if pair[0].requires_grad), strict=True)
        return ArgsKwargs(args=(outputs,), kwargs={"grad_tensors": gradients})

    return (torch2xp(vectors.detach()), float(loss.detach())), backprop
