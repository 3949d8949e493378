"""Transformer name encoder from a Hugging Face checkpoint, such as SapBERT.

Configuration, word pieces and weights are saved with the pipe, so that loading a pipeline does not
need the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.checkpoint import (
    CONFIG,
    config_to_json,
    misfit,
    read_backbone,
    read_checkpoint,
    special_pieces,
)
from spacy_bioel.models.name_encoder import (
    EncoderKind,
    EncoderSource,
    NameEncoder,
    Parts,
    name_encoder,
    set_network,
)
from spacy_bioel.models.vocabulary import n_pieces


def build_transformer_names_v1(
    *, path: str | None = None, pooling: str = "cls", max_tokens: int = 25
) -> NameEncoder:
    """Registered as `spacy-bioel.TransformerNames.v1`; see `nn.transformer` for the paper.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub, read by `initialize`; None: the argument `embeddings` of `initialize`.
    pooling (str): "cls" or "mean".
    max_tokens (int): Maximum number of word pieces of a name, special ones included.
    RETURNS (Model[Sequence[str], Floats2d]): An encoder without its network, which `add_encoder`
        adds; the size of the vectors is that of the checkpoint.
    RAISES BioelError: [B155] on an unknown pooling.
    """
    if pooling not in ("cls", "mean"):
        raise BioelError(Errors.B155.format(pooling=pooling))
    # A large batch, because the network groups its names by length.
    settings = {"path": path, "pooling": pooling}
    return name_encoder(
        "name_transformer", _KIND, max_tokens=max_tokens, batch_size=2048, settings=settings
    )


def _make(model: NameEncoder, source: EncoderSource) -> None:
    path = model.attrs["settings"]["path"] or source.embeddings
    if path is None:
        raise BioelError(Errors.B151)
    folder, backbone, tokenizer = read_checkpoint(path, max_pieces=model.attrs["max_tokens"])
    _add(model, tokenizer, backbone, folder=folder)


def _add(model: NameEncoder, tokenizer: Tokenizer, backbone: Any, *, folder: Path | None) -> None:
    """Set word pieces and network. RAISES BioelError: [B154] on "cls" pooling without [CLS]."""
    from spacy_bioel.nn.transformer import NameTransformer

    prefix, suffix = special_pieces(tokenizer)
    if model.attrs["settings"]["pooling"] == "cls" and not prefix:
        raise misfit(folder, "no special piece before a name", "one, such as [CLS]")
    model.attrs["prefix"], model.attrs["suffix"] = prefix, suffix
    tokenizer.enable_truncation(max(1, model.attrs["max_tokens"] - len(prefix) - len(suffix)))
    network = NameTransformer(backbone, pooling=model.attrs["settings"]["pooling"])
    set_network(model, tokenizer, network)
    model.attrs["config"] = config_to_json(backbone.config)
    model.set_dim("nO", backbone.config.hidden_size, force=True)


def _parts(model: NameEncoder) -> Parts:
    text = model.attrs["config"]
    return {CONFIG: lambda: text.encode("utf8")}


def _rebuild(model: NameEncoder, tokenizer: Tokenizer, parts: Mapping[str, bytes]) -> None:
    backbone, config = read_backbone(parts)
    rows, pieces = backbone.config.vocab_size, n_pieces(tokenizer)
    if rows < pieces:
        raise misfit(None, f"word piece {pieces - 1}", f"only the {rows} of its embeddings")
    _add(model, tokenizer, backbone, folder=None)
    model.attrs["config"] = config  # verbatim: it is part of the fingerprint


_KIND = EncoderKind(make=_make, parts=_parts, rebuild=_rebuild)
