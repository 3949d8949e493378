"""Encoders of names: a list of strings -> vectors. What all architectures share.

An architecture is a network that maps the word pieces of names to vectors, and an `EncoderKind`
that says how it is made and stored; see `models.name_rescnn` and `models.name_transformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d
from tokenizers import Tokenizer

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.torch_io import output_from_torch, wrap_torch
from spacy_bioel.processor import one_thread_each

NameEncoder = Model[Sequence[str], Floats2d]
Parts = dict[str, Callable[[], bytes]]


# A GPU is given this many times the names that suit a CPU; see `_encode_batches` for too many.
_GPU_BATCHES = 32


@dataclass(frozen=True)
class EncoderSource:
    """What an encoder can be made from; an architecture takes what it needs.

    kb (KnowledgeBase): Its names.
    more_names (Sequence[str]): Normalised names from elsewhere, e.g. training mentions.
    embeddings (str | None): A Hugging Face model folder.
    vocabulary, width (int): Word pieces and size of embeddings that are made from the names.
    """

    kb: KnowledgeBase
    more_names: Sequence[str]
    embeddings: str | None
    vocabulary: int
    width: int


def _as_it_is(network: Any) -> Any:
    return network


@dataclass(frozen=True)
class EncoderKind:
    """What an architecture does its own way; functions of a module, so that it can be pickled.

    make (Callable): Gives the model its vocabulary and its network.
    parts (Callable): What is stored beside word pieces and weights, as bytes by file name.
    rebuild (Callable): From word pieces and these parts to a network whose weights come next.
    fast (Callable): From the network, in evaluation mode, to what predicts like it, but faster.
    """

    make: Callable[[NameEncoder, EncoderSource], None]
    parts: Callable[[NameEncoder], Parts]
    rebuild: Callable[[NameEncoder, Tokenizer, Mapping[str, bytes]], None]
    fast: Callable[[Any], Any] = _as_it_is


def name_encoder(
    name: str,
    kind: EncoderKind,
    *,
    max_tokens: int,
    batch_size: int,
    settings: dict[str, Any],
    dim: int | None = None,
) -> NameEncoder:
    """An encoder without a network, which exists once a vocabulary is known: `add_encoder`.

    batch_size (int): Names that are encoded together.
    settings (dict): Of the architecture.
    dim (int | None): Size of the vectors, if it is known already.
    """
    attrs = {
        "kind": kind,
        "max_tokens": max_tokens,
        "batch_size": batch_size,
        "settings": settings,
        "tokenizer": None,
        # Special pieces before and after those of each name.
        "prefix": [],
        "suffix": [],
        # Set by `perturbed` only.
        "shuffle": None,
        "attention": None,
    }
    return Model(name, _forward, attrs=attrs, dims={"nO": dim}, refs={"network": None})


def add_encoder(model: NameEncoder, source: EncoderSource) -> None:
    """Give the encoder its vocabulary and its network.

    RAISES BioelError: [B040] without torch; those of the architecture.
    """
    model.attrs["kind"].make(model, source)


def set_network(model: NameEncoder, tokenizer: Tokenizer, network: Any) -> None:
    """Take a network for these word pieces, in place of any before.

    network (torch.nn.Module): From piece ids, shape (n_tokens,), and pieces of each name, shape
        (n_names,), to vectors of shape (n_names, dim).
    """
    wrapper = wrap_torch(network, convert_inputs=_to_torch, convert_outputs=output_from_torch)
    model.attrs["tokenizer"] = tokenizer
    model.layers.clear()
    model.layers.append(wrapper)
    model.set_ref("network", wrapper)


def get_network(model: NameEncoder) -> Any:
    """The torch module of an encoder that has one."""
    shim: Any = model.get_ref("network").shims[0]
    return shim._model


def has_attention(model: NameEncoder) -> bool:
    """Whether the network of an encoder has attention that `perturbed` can restrict."""
    find_layers = getattr(get_network(model), "attention_layers", list)
    return bool(find_layers())


def fast_network(model: NameEncoder) -> Any:
    """The network as it is now, rearranged to predict; for `encode_names`."""
    return model.attrs["kind"].fast(get_network(model))


def encode_names(
    model: NameEncoder,
    names: Sequence[str],
    *,
    network: Any = None,
    batch_size: int | None = None,
) -> NDArray[np.float32]:
    """Unit vectors of many names.

    names (Sequence[str]): Normalised names.
    network (Any): What `fast_network` made, if that is to be used.
    batch_size (int | None): Names that are encoded together; None: what suits the architecture.
    RETURNS (NDArray[float32]): Shape (n_names, dim).
    """
    size = batch_size or model.attrs["batch_size"]
    if model.ops.device_type == "gpu" and batch_size is None:
        size *= _GPU_BATCHES
    batches = [names[start : start + size] for start in range(0, len(names), size)]
    encoded = _encode_batches(model, batches, network)
    vectors = np.concatenate([np.zeros((0, model.get_dim("nO")), np.float32), *encoded])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def _encode_batches(
    model: NameEncoder, batches: Sequence[Sequence[str]], predict: Any
) -> list[NDArray]:
    """Batches in parallel, each on one thread."""
    import torch

    predict = predict or get_network(model)
    device = model.get_ref("network").shims[0].device  # type: ignore[attr-defined]
    attention = model.attrs["attention"]
    kwargs = {} if attention is None else {"attention": attention}

    def encode(ids: list[list[int]]) -> NDArray:
        try:
            with torch.inference_mode():
                return predict(*_flat(ids, device), **kwargs).float().cpu().numpy()
        except torch.cuda.OutOfMemoryError:
            if len(ids) == 1:
                raise
        # What a GPU holds is known only by trying; out of the handler, its memory is free again.
        half = len(ids) // 2
        return np.concatenate([encode(ids[:half]), encode(ids[half:])])

    # Word pieces in order and on this thread: `shuffle` may draw from one generator.
    pieces = [_piece_ids(model, batch) for batch in batches]
    with one_thread_each() as spread:
        # Restricted attention is set in the layers of the one network, one batch at a time.
        is_shared = model.ops.device_type != "cpu" or attention is not None
        return list(map(encode, pieces)) if is_shared else spread(encode, pieces)


@contextmanager
def perturbed(
    model: NameEncoder,
    *,
    shuffle: Callable[[list[int]], list[int]] | None = None,
    attention: Callable[[int, bool], NDArray[np.bool_]] | None = None,
) -> Iterator[None]:
    """Predict as if names were written, or read, in another way; for probing.

    shuffle (Callable | None): From the pieces of a name, without special ones, to others.
    attention (Callable | None): See `nn.transformer.Attention`; for those that `has_attention`.
    """
    model.attrs["shuffle"], model.attrs["attention"] = shuffle, attention
    try:
        yield
    finally:
        model.attrs["shuffle"] = model.attrs["attention"] = None


def name_loss(vectors: Any, concepts: NDArray[np.int64], *, loss: str) -> tuple[float, Any]:
    """Loss of encoded names, and its gradient by their vectors.

    vectors (Floats2d): Shape (n, dim).
    concepts (NDArray[int64]): Concept row of each. Shape (n,).
    loss (str): "multi_similarity", "info_nce" or "marginal".
    """
    import torch

    from spacy_bioel.nn import losses

    functions: dict[str, Callable[..., Any]] = {
        "multi_similarity": losses.multi_similarity_loss,
        "info_nce": losses.info_nce_loss,
        "marginal": losses.marginal_loss,
    }
    tensor = xp2torch(vectors, requires_grad=True)
    value = functions[loss](tensor, torch.from_numpy(concepts).to(tensor.device))
    value.backward()
    gradient: Any = tensor.grad
    return float(value.detach()), torch2xp(gradient)


def _piece_ids(model: NameEncoder, names: Sequence[str]) -> list[list[int]]:
    """Word piece ids; a name without any gets the unknown piece, so that none is empty."""
    tokenizer, shuffle = model.attrs["tokenizer"], model.attrs["shuffle"]
    prefix, suffix = model.attrs["prefix"], model.attrs["suffix"]
    encodings = tokenizer.encode_batch_fast(list(names), add_special_tokens=False)
    pieces = [encoding.ids for encoding in encodings]
    if shuffle is not None:
        pieces = [shuffle(ids) for ids in pieces]
    unknown = [tokenizer.token_to_id("[UNK]") or 0]
    return [[*prefix, *ids, *suffix] or unknown for ids in pieces]


def _forward(
    model: NameEncoder, names: Sequence[str], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list]]:
    inputs = (_piece_ids(model, names), model.attrs["attention"])
    vectors, backprop = model.get_ref("network")(inputs, is_train)

    def backprop_names(d_vectors: Floats2d) -> list:
        backprop(d_vectors)
        return []

    return vectors, backprop_names


def _to_torch(
    wrapper: Model, inputs: tuple[list[list[int]], Any], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], list]]:
    ids, attention = inputs
    shim: Any = wrapper.shims[0]
    kwargs = {} if attention is None else {"attention": attention}
    return ArgsKwargs(args=_flat(ids, shim.device), kwargs=kwargs), lambda d_args: []


def _flat(ids: list[list[int]], device: Any) -> tuple[Any, Any]:
    """Pieces of all names one after another, and how many each name has."""
    import torch

    # From pinned memory a GPU fetches them while it still works on what came before.
    is_pinned = device.type == "cuda"
    flat = torch.tensor([piece for name in ids for piece in name], pin_memory=is_pinned)
    lengths = torch.tensor([len(name) for name in ids], pin_memory=is_pinned)
    return flat.to(device, non_blocking=True), lengths.to(device, non_blocking=True)
