"""Encoders of names: a list of strings -> vectors. What all architectures share.

An architecture is a network that maps the word pieces of names to vectors, and an `EncoderKind`
that says how it is made and stored; see `models.name_rescnn` and `models.name_transformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    pieces = [piece_ids(model, batch) for batch in batches]
    return encode_pieces(model, pieces, network=network)


def encode_pieces(
    model: NameEncoder, batches: Sequence[Sequence[list[int]]], *, network: Any = None
) -> NDArray[np.float32]:
    """Unit vectors of names that are word pieces already.

    batches (Sequence[Sequence[list[int]]]): Ids of each name, as `piece_ids` has them; names of one
        batch are encoded together.
    network (Any): See `encode_names`.
    RETURNS (NDArray[float32]): Shape (n_names, dim).
    """
    encoded = _encode_batches(model, batches, network)
    vectors = np.concatenate([np.zeros((0, model.get_dim("nO")), np.float32), *encoded])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def _encode_batches(
    model: NameEncoder, batches: Sequence[Sequence[list[int]]], predict: Any
) -> list[NDArray]:
    """Batches in parallel, each on one thread."""
    import torch

    predict = predict or get_network(model)
    device = model.get_ref("network").shims[0].device  # type: ignore[attr-defined]

    def encode(ids: Sequence[list[int]]) -> NDArray:
        try:
            with torch.inference_mode():
                return predict(*_flat(ids, device)).float().cpu().numpy()
        except torch.cuda.OutOfMemoryError:
            if len(ids) == 1:
                raise
        # What a GPU holds is known only by trying; out of the handler, its memory is free again.
        half = len(ids) // 2
        return np.concatenate([encode(ids[:half]), encode(ids[half:])])

    with one_thread_each() as spread:
        on_cpu = model.ops.device_type == "cpu"
        return spread(encode, batches) if on_cpu else list(map(encode, batches))


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


def piece_ids(model: NameEncoder, names: Sequence[str]) -> list[list[int]]:
    """Word piece ids of each name, special ones too; the unknown piece for a name without any."""
    tokenizer = model.attrs["tokenizer"]
    prefix, suffix = model.attrs["prefix"], model.attrs["suffix"]
    encodings = tokenizer.encode_batch_fast(list(names), add_special_tokens=False)
    unknown = [tokenizer.token_to_id("[UNK]") or 0]
    return [[*prefix, *encoding.ids, *suffix] or unknown for encoding in encodings]


def _forward(
    model: NameEncoder, names: Sequence[str], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list]]:
    vectors, backprop = model.get_ref("network")(piece_ids(model, names), is_train)

    def backprop_names(d_vectors: Floats2d) -> list:
        backprop(d_vectors)
        return []

    return vectors, backprop_names


def _to_torch(
    wrapper: Model, ids: list[list[int]], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], list]]:
    shim: Any = wrapper.shims[0]
    return ArgsKwargs(args=_flat(ids, shim.device), kwargs={}), lambda d_args: []


def _flat(ids: Sequence[list[int]], device: Any) -> tuple[Any, Any]:
    """Pieces of all names one after another, and how many each name has."""
    import torch

    # From pinned memory a GPU fetches them while it still works on what came before.
    is_pinned = device.type == "cuda"
    flat = torch.tensor([piece for name in ids for piece in name], pin_memory=is_pinned)
    lengths = torch.tensor([len(name) for name in ids], pin_memory=is_pinned)
    return flat.to(device, non_blocking=True), lengths.to(device, non_blocking=True)
