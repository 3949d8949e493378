"""Name encoders, strings -> vectors: common part of all architectures.

An architecture is a network from word pieces of names to vectors, with an `EncoderKind`: its
construction, its files and its inference. See `models.name_rescnn` and `models.name_transformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d
from tokenizers import Tokenizer

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.torch_io import network_of, output_from_torch, wrap_torch
from spacy_bioel.processor import one_thread_each
from spacy_bioel.text.normalize import normalize_names

if TYPE_CHECKING:
    from torch import nn

NameEncoder = Model[Sequence[str], Floats2d]
Parts = dict[str, Callable[[], bytes]]
# From word pieces of names, at least one each, to vectors, shape (n_names, dim).
Infer = Callable[[Sequence[list[int]]], NDArray[np.float32]]


# Batches on a GPU are this many times as large; `_encode_batches` halves those out of memory.
_GPU_BATCHES = 32


@dataclass(frozen=True)
class EncoderSource:
    """Sources of vocabulary and network; each architecture uses a part of them.

    kb (KnowledgeBase): The KB whose names are encoded.
    more_names (Sequence[str]): Further normalised names, e.g. training mentions.
    embeddings (str | None): A Hugging Face model folder.
    vocabulary, width (int): Number of word pieces and size of embeddings, if made from names.
    read_texts (Callable): Reads the training documents, normalised: few architectures need them.
    """

    kb: KnowledgeBase
    more_names: Sequence[str]
    embeddings: str | None
    vocabulary: int
    width: int
    read_texts: Callable[[], Iterable[str]] = tuple

    @property
    def names(self) -> list[str]:
        """Normalised names of the knowledge base, and the further ones."""
        return [*normalize_names(list(self.kb.names)), *self.more_names]


def infer_by_torch(network: Callable[[Any, Any], Any], device: Any) -> Infer:
    """The torch network itself; batches that do not fit into the memory of a GPU are halved."""

    def infer(names: Sequence[list[int]]) -> NDArray[np.float32]:
        import torch

        try:
            with torch.inference_mode():
                found: NDArray[np.float32] = network(*_flat(names, device)).float().cpu().numpy()
                return found
        except torch.cuda.OutOfMemoryError:
            if len(names) == 1:
                raise
        # Outside the handler, which holds references to the tensors of the failed batch.
        half = len(names) // 2
        return np.concatenate([infer(names[:half]), infer(names[half:])])

    return infer


def _by_torch(model: NameEncoder) -> Infer:
    return infer_by_torch(get_network(model), device_of(model))


@dataclass(frozen=True)
class EncoderKind:
    """Strategy of an architecture; module-level functions, so that it can be pickled.

    make (Callable): Adds vocabulary and network to a model.
    parts (Callable): Files beside word pieces and weights: bytes by file name.
    rebuild (Callable): Rebuilds the network from word pieces and these files, without weights.
    infer (Callable): Makes the function of inference, with the current weights.
    """

    make: Callable[[NameEncoder, EncoderSource], None]
    parts: Callable[[NameEncoder], Parts]
    rebuild: Callable[[NameEncoder, Tokenizer, Mapping[str, bytes]], None]
    infer: Callable[[NameEncoder], Infer] = _by_torch


def name_encoder(
    name: str,
    kind: EncoderKind,
    *,
    max_tokens: int,
    batch_size: int,
    settings: dict[str, Any],
    dim: int | None = None,
) -> NameEncoder:
    """Make an encoder without its network, which `add_encoder` adds.

    max_tokens (int): Maximum number of word pieces of a name.
    batch_size (int): Names encoded together.
    settings (dict): Settings of the architecture.
    dim (int | None): Size of the vectors; None: not known yet.
    """
    attrs = {
        "kind": kind,
        "max_tokens": max_tokens,
        "batch_size": batch_size,
        "settings": settings,
        "tokenizer": None,
        # Special pieces before and after each name.
        "prefix": [],
        "suffix": [],
    }
    return Model(name, _forward, attrs=attrs, dims={"nO": dim}, refs={"network": None})


def add_encoder(model: NameEncoder, source: EncoderSource) -> None:
    """Add vocabulary and network to an encoder.

    RAISES BioelError: [B040] without torch; those of the architecture.
    """
    model.attrs["kind"].make(model, source)


def set_network(model: NameEncoder, tokenizer: Tokenizer, network: nn.Module) -> None:
    """Set tokenizer and network, replacing any previous ones.

    network (torch.nn.Module): Maps piece ids, shape (n_tokens,), and lengths of names, shape
        (n_names,), to vectors of shape (n_names, dim).
    """
    wrapper = wrap_torch(network, convert_inputs=names_to_torch, convert_outputs=output_from_torch)
    set_layer(model, tokenizer, wrapper)


def set_layer(model: NameEncoder, tokenizer: Tokenizer, wrapper: Model) -> None:
    """Set tokenizer and layer of the network, replacing any previous ones."""
    model.attrs["tokenizer"] = tokenizer
    model.layers.clear()
    model.layers.append(wrapper)
    model.set_ref("network", wrapper)


def get_network(model: NameEncoder) -> Any:
    """Torch module of an encoder. Call it after `add_encoder`."""
    return network_of(model.get_ref("network"))


def inference_of(model: NameEncoder) -> Infer:
    """The function of inference with the current weights, for `encode_names`."""
    made: Infer = model.attrs["kind"].infer(model)
    return made


def encode_names(
    model: NameEncoder,
    names: Sequence[str],
    *,
    infer: Infer | None = None,
    batch_size: int | None = None,
) -> NDArray[np.float32]:
    """Encode names in parallel batches.

    names (Sequence[str]): Normalised names.
    infer (Callable | None): That of `inference_of`; None: it is made anew.
    batch_size (int | None): Names encoded together; None: the default of the architecture.
    RETURNS (NDArray[float32]): Unit vectors. Shape (n_names, dim).
    """
    size = batch_size or model.attrs["batch_size"]
    if model.ops.device_type == "gpu" and batch_size is None:
        size *= _GPU_BATCHES
    batches = [names[start : start + size] for start in range(0, len(names), size)]
    pieces = [piece_ids(model, batch) for batch in batches]
    return encode_pieces(model, pieces, infer=infer)


def encode_pieces(
    model: NameEncoder, batches: Sequence[Sequence[list[int]]], *, infer: Infer | None = None
) -> NDArray[np.float32]:
    """Encode tokenised names, batches in parallel, each on one thread.

    batches (Sequence[Sequence[list[int]]]): Piece ids of each name, as from `piece_ids`; the names
        of a batch are encoded together.
    infer (Callable | None): See `encode_names`.
    RETURNS (NDArray[float32]): Unit vectors. Shape (n_names, dim).
    """
    infer = infer or inference_of(model)
    with one_thread_each() as spread:
        on_cpu = model.ops.device_type == "cpu"
        encoded = spread(infer, batches) if on_cpu else list(map(infer, batches))
    vectors = np.concatenate([np.zeros((0, model.get_dim("nO")), np.float32), *encoded])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def name_loss(vectors: Any, concepts: NDArray[np.int64], *, loss: str) -> tuple[float, Any]:
    """Compute the loss of encoded names and its gradient with respect to their vectors.

    vectors (Floats2d): Vectors of names. Shape (n, dim).
    concepts (NDArray[int64]): Concept row of each name. Shape (n,).
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
    """Word piece ids of each name, special pieces included; never empty ([UNK] if need be)."""
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


def names_to_torch(
    wrapper: Model, ids: list[list[int]], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], list]]:
    """Convert the word pieces of names; a `convert_inputs` for a layer with a torch network."""
    shim: Any = wrapper.shims[0]
    return ArgsKwargs(args=_flat(ids, shim.device), kwargs={}), lambda d_args: []


def device_of(model: NameEncoder) -> Any:
    """Device of the torch network of an encoder."""
    shim: Any = model.get_ref("network").shims[0]
    return shim.device


def _flat(ids: Sequence[list[int]], device: Any) -> tuple[Any, Any]:
    """Concatenated pieces of all names, and the number of pieces of each name."""
    import torch

    # Copies from pinned memory overlap with the computation of the previous batch.
    is_pinned = device.type == "cuda"
    flat = torch.tensor([piece for name in ids for piece in name], pin_memory=is_pinned)
    lengths = torch.tensor([len(name) for name in ids], pin_memory=is_pinned)
    return flat.to(device, non_blocking=True), lengths.to(device, non_blocking=True)
