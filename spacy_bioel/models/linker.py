"""Encoders of names: a list of strings -> unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.torch_io import require_torch, wrap_torch
from spacy_bioel.models.vocabulary import EmbeddingTables

NameEncoder = Model[Sequence[str], Floats2d]


def build_rescnn_v1(
    *,
    dim: int = 256,
    blocks: int = 4,
    filters: int = 100,
    widths: list[int] = [1, 3, 5],  # noqa: B006 - read only; a config default has to be a list
    pooling: str = "max",
    dropout: float = 0.2,
    max_tokens: int = 25,
) -> NameEncoder:
    """Registered as `spacy-bioel.ResCNN.v1`; see `nn.rescnn` for the paper and the arguments.

    max_tokens (int): Word pieces that are read of a name.
    RETURNS (Model[Sequence[str], Floats2d]): Its torch part exists once a vocabulary is known,
        see `add_rescnn`.
    RAISES BioelError: [B045] on an unknown pooling.
    """
    if pooling not in ("max", "attention"):
        raise BioelError(Errors.B045.format(pooling=pooling))
    return Model(
        "rescnn",
        _forward,
        attrs={
            "max_tokens": max_tokens,
            "tokenizer": None,
            "settings": {
                "dim": dim,
                "blocks": blocks,
                "filters": filters,
                "widths": list(widths),
                "pooling": pooling,
                "dropout": dropout,
            },
        },
        dims={"nO": dim},
        refs={"network": None},
    )


def add_rescnn(model: NameEncoder, tokenizer: Tokenizer, tables: EmbeddingTables) -> None:
    """Give the encoder its vocabulary and its network. RAISES BioelError: [B040] without torch."""
    require_torch()
    import torch

    from spacy_bioel.nn.rescnn import FrozenEmbeddings, ResCNN

    tokenizer.no_padding()
    tokenizer.enable_truncation(model.attrs["max_tokens"])
    tensors: dict[str, Any] = {name: torch.from_numpy(t) for name, t in tables.items()}
    embeddings = FrozenEmbeddings(**tensors)
    network = ResCNN(embeddings, **model.attrs["settings"])
    model.attrs["tokenizer"] = tokenizer
    wrapper = wrap_torch(network, convert_inputs=_to_torch, convert_outputs=_from_torch)
    model.layers.clear()
    model.layers.append(wrapper)
    model.set_ref("network", wrapper)


def encode_names(
    model: NameEncoder, names: Sequence[str], *, batch_size: int = 256
) -> NDArray[np.float32]:
    """Unit vectors of many names.

    names (Sequence[str]): Normalised names.
    batch_size (int): Names that are encoded together; small enough for the processor's caches.
    RETURNS (NDArray[float32]): Shape (n_names, dim).
    """
    vectors = np.zeros((len(names), model.get_dim("nO")), dtype=np.float32)
    for start in range(0, len(names), batch_size):
        batch = names[start : start + batch_size]
        vectors[start : start + batch_size] = model.ops.to_numpy(model.predict(batch))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)


def name_loss(vectors: Any, concepts: NDArray[np.int64]) -> tuple[float, Any]:
    """Multi-Similarity loss of encoded names, and its gradient by their vectors.

    vectors (Floats2d): Shape (n, dim).
    concepts (NDArray[int64]): Concept row of each. Shape (n,).
    """
    import torch

    from spacy_bioel.nn.losses import multi_similarity_loss

    tensor = xp2torch(vectors, requires_grad=True)
    loss = multi_similarity_loss(tensor, torch.from_numpy(concepts).to(tensor.device))
    loss.backward()
    gradient: Any = tensor.grad
    return float(loss.detach()), torch2xp(gradient)


def encoder_parts(model: NameEncoder) -> dict[str, Callable[[], bytes]]:
    """What `load_encoder` needs, as bytes by file name; nothing before `add_rescnn`."""
    from safetensors.numpy import save

    from spacy_bioel.models.weights import weights_to_bytes

    tokenizer = model.attrs["tokenizer"]
    if tokenizer is None:
        return {}
    shim: Any = model.get_ref("network").shims[0]
    tables = {name: t.cpu().numpy() for name, t in shim._model.embeddings.tables().items()}
    return {
        "tokenizer.json": lambda: tokenizer.to_str().encode("utf8"),
        "embeddings.safetensors": lambda: save(tables),
        "model.safetensors": lambda: weights_to_bytes(model),
    }


def load_encoder(model: NameEncoder, parts: Mapping[str, bytes]) -> None:
    """Take back what `encoder_parts` gave, if there is an encoder among the parts."""
    from safetensors.numpy import load

    from spacy_bioel.models.weights import weights_from_bytes

    if "tokenizer.json" in parts:
        tokenizer = Tokenizer.from_str(parts["tokenizer.json"].decode("utf8"))
        add_rescnn(model, tokenizer, load(parts["embeddings.safetensors"]))
        weights_from_bytes(model, parts["model.safetensors"])


def _piece_ids(model: NameEncoder, names: Sequence[str]) -> list[list[int]]:
    """Word piece ids; a name without any gets the unknown piece, so that none is empty."""
    tokenizer = model.attrs["tokenizer"]
    unknown = [tokenizer.token_to_id("[UNK]") or 0]
    encodings = tokenizer.encode_batch_fast(list(names), add_special_tokens=False)
    return [encoding.ids or unknown for encoding in encodings]


def _forward(
    model: NameEncoder, names: Sequence[str], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list]]:
    vectors, backprop = model.get_ref("network")(_piece_ids(model, names), is_train)

    def backprop_names(d_vectors: Floats2d) -> list:
        backprop(d_vectors)
        return []

    return vectors, backprop_names


def _to_torch(
    wrapper: Model, ids: list[list[int]], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], list]]:
    import torch

    lengths = torch.tensor([len(name) for name in ids])
    flat = torch.tensor([piece for name in ids for piece in name])
    shim: Any = wrapper.shims[0]
    args = (flat.to(shim.device), lengths.to(shim.device))
    return ArgsKwargs(args=args, kwargs={}), lambda d_args: []


def _from_torch(
    wrapper: Model, inputs_outputs: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable[[Any], ArgsKwargs]]:
    _, vectors = inputs_outputs

    def backprop(d_vectors: Any) -> ArgsKwargs:
        return ArgsKwargs(args=((vectors,),), kwargs={"grad_tensors": (xp2torch(d_vectors),)})

    return torch2xp(vectors.detach()), backprop
