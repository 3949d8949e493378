"""ResCNN name encoder, with frozen word piece embeddings of a BERT or computed from the names."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load, save
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import ResCNN, rescnn_shapes
from spacy_bioel.models.name_encoder import (
    EncoderSource,
    Infer,
    NameEncoder,
    NetworkKind,
    get_network,
    infer_by_torch,
    pieces_model,
)
from spacy_bioel.models.torch_io import device_of, is_on_gpu, set_layer, torch_layer, weights_of
from spacy_bioel.models.vocabulary import (
    EmbeddingTables,
    load_huggingface,
    make_vocabulary,
    n_pieces,
)
from spacy_bioel.models.weights import reading_part
from spacy_bioel.text.normalize import normalize_name

if TYPE_CHECKING:
    from torch import nn

_TABLES = "embeddings.safetensors"


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

    max_tokens (int): Maximum number of word pieces of a name.
    RETURNS (Model[Sequence[str], Floats2d]): An encoder without its network, which `add_encoder`
        adds.
    RAISES BioelError: [B045] on an unknown pooling.
    """
    if pooling not in ("max", "attention"):
        raise BioelError(Errors.B045.format(pooling=pooling))
    settings: dict[str, Any] = {"dim": dim, "blocks": blocks, "filters": filters}
    settings |= {"widths": list(widths), "pooling": pooling, "dropout": dropout}
    # 256 names fit the processor's caches.
    model = pieces_model("rescnn", _KIND, settings, max_tokens=max_tokens, batch_size=256)
    model.set_dim("nO", dim)
    return model


def add_rescnn(
    model: NameEncoder, tokenizer: Tokenizer, tables: EmbeddingTables, *, source: str = _TABLES
) -> None:
    """Add vocabulary and network to an encoder.

    source (str): Where the tables are from, for messages.
    RAISES BioelError: [B044] when the tables belong to another vocabulary.
    """
    rows, pieces = len(tables["words"]), n_pieces(tokenizer)
    if rows < pieces:
        raise BioelError(Errors.B044.format(folder=source, rows=rows, pieces=pieces))
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.attrs["max_tokens"])
    settings = model.attrs["settings"]
    model.attrs.update(tokenizer=tokenizer, tables=tables)
    shapes = rescnn_shapes(width=tables["words"].shape[1], **settings)
    set_layer(model, torch_layer(make=partial(_network, tables, settings), shapes=shapes))


def _network(tables: EmbeddingTables, settings: dict[str, Any]) -> nn.Module:
    import torch

    from spacy_bioel.nn import rescnn

    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in tables.items()}
    return rescnn.ResCNN(rescnn.FrozenEmbeddings(**tensors), **settings)


def _make(model: NameEncoder, source: EncoderSource) -> None:
    """Make word pieces and embeddings from a Hugging Face folder, else from the names."""
    max_tokens, kb = model.attrs["max_tokens"], source.kb
    if source.embeddings is not None:
        made = load_huggingface(Path(source.embeddings), max_tokens=max_tokens)
    else:
        made = make_vocabulary(
            [normalize_name(name) for name in kb.names],
            kb.name_concepts[kb.name_offsets[:-1]].astype(np.int64),
            more_names=source.more_names,
            size=source.vocabulary,
            width=source.width,
            max_tokens=max_tokens,
        )
    add_rescnn(model, *made, source=source.embeddings or _TABLES)
    get_network(model)


def _tables_to_bytes(model: NameEncoder) -> bytes:
    return save(model.attrs["tables"])


def _rebuild(model: NameEncoder, tokenizer: Tokenizer, data: bytes) -> None:
    with reading_part(_TABLES):
        tables = load(data)
        _check_tables(tables, max_tokens=model.attrs["max_tokens"])
    add_rescnn(model, tokenizer, tables)


def _check_tables(tables: EmbeddingTables, *, max_tokens: int) -> None:
    """Check types and shapes. RAISES ValueError: When the tables do not fit `FrozenEmbeddings`."""
    found = {name: table.shape for name, table in tables.items()}
    n, width = found.get("words", (0, 0))
    expected = {"words": (n, width), "positions": (max_tokens, width), "token_type": (width,)}
    expected |= {"norm_weight": (width,), "norm_bias": (width,)}
    if "scale" in found:  # words are integers
        expected["scale"] = (n, 1)
    kinds = {table.dtype for name, table in tables.items() if name != "words"}
    if found != expected or kinds != {np.dtype(np.float32)}:
        raise ValueError(f"expected float32 of the shapes {expected}, found {found}")


def _infer(model: NameEncoder) -> Infer:
    layer = model.get_ref("network")
    if is_on_gpu(layer):
        return infer_by_torch(get_network(model), device_of(layer))
    widths = model.attrs["settings"]["widths"]
    return ResCNN(weights_of(layer), model.attrs["tables"], widths=widths)


_KIND = NetworkKind(_make, _TABLES, _tables_to_bytes, _rebuild, _infer)
