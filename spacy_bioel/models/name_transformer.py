"""Transformer name encoder from a Hugging Face checkpoint, such as SapBERT.

Configuration, word pieces and weights are saved with the pipe, so that loading a pipeline does not
need the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.checkpoint import (
    checkpoint_kind,
    misfit,
    read_checkpoint,
    set_backbone,
    special_pieces,
)
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, pieces_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def build_transformer_names_v1(
    *, path: str | None = None, pooling: str = "cls", max_tokens: int = 25
) -> NameEncoder:
    """Registered as `spacy-bioel.TransformerNames.v1`; see `nn.encoders` for the paper.

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
    return pieces_model("name_transformer", _KIND, settings, max_tokens=max_tokens, batch_size=2048)


def _make(model: NameEncoder, source: EncoderSource) -> None:
    path = model.attrs["settings"]["path"] or source.embeddings
    if path is None:
        raise BioelError(Errors.B151)
    folder, backbone, tokenizer = read_checkpoint(path, max_pieces=model.attrs["max_tokens"])
    _add(model, tokenizer, backbone, folder)


def _add(
    model: NameEncoder, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set word pieces and network. RAISES BioelError: [B154] on "cls" pooling without [CLS]."""
    from spacy_bioel.nn.encoders import NameTransformer

    prefix, suffix = special_pieces(tokenizer)
    if model.attrs["settings"]["pooling"] == "cls" and not prefix:
        raise misfit(folder, "no special piece before a name", "one, such as [CLS]")
    model.attrs["prefix"], model.attrs["suffix"] = prefix, suffix
    tokenizer.enable_truncation(max(1, model.attrs["max_tokens"] - len(prefix) - len(suffix)))
    network = NameTransformer(backbone, pooling=model.attrs["settings"]["pooling"])
    set_backbone(model, tokenizer, network)
    model.set_dim("nO", backbone.config.hidden_size, force=True)


_KIND = checkpoint_kind(_make, _add)
