"""Cross-encoder: a transformer that scores a mention in its context together with a candidate.

Training starts from a Hugging Face checkpoint. Configuration, word pieces and weights are saved
with the pipe, so that loading a pipeline does not need the checkpoint.

In a linker (`build_reranker_v1`) the name encoder generates candidates and is not trained further;
the cross-encoder reranks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import Floats1d
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.checkpoint import (
    checkpoint_parts,
    load_checkpoint_parts,
    misfit,
    of_prefix,
    read_checkpoint,
    set_backbone,
    special_pieces,
    with_prefix,
)
from spacy_bioel.models.marked import Pair, PairPieces
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Parts
from spacy_bioel.models.reading import ReadingKind, reading_model
from spacy_bioel.models.torch_io import arrays_to_torch, with_usable_precision

PairScorer = Model[Sequence[Pair], Floats1d]

_PREFIX = "pairs."  # of its files in a linker
# Word pieces not used in pretraining, which mark the mention; BERT has them, others may not.
_UNUSED = ("[unused1]", "[unused2]")
# Pairs tokenised at once: bounds the memory.
_PAIRS = 1024


def build_cross_encoder_v1(
    *,
    path: str | None = None,
    max_pieces: int = 128,
    learn_rate_scale: float = 1.0,
    mixed_precision: bool = False,
) -> PairScorer:
    """Registered as `spacy-bioel.CrossEncoder.v1`; see `nn.encoders` for the paper.

    `models.marked` defines the input of a pair, and its truncation.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub. It is read by `add_cross_encoder`.
    max_pieces (int): Maximum number of word pieces of a pair, special ones included.
    learn_rate_scale (float): Factor on the learning rate of the checkpoint's weights; the new
        layer uses the full learning rate.
    mixed_precision (bool): Train under bfloat16 autocast, on a GPU, and on a CPU that has bfloat16.
    RETURNS (Model[Sequence[Pair], Floats1d]): A model from pairs to logits, which are comparable
        among the candidates of one mention. `add_cross_encoder` adds its torch part.
    """
    network = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    attrs = {
        "path": path,
        "max_pieces": max_pieces,
        "network_settings": network,
        # Set together with the network: a PairPieces, and the backbone's configuration.
        "pieces": None,
        "config": None,
    }
    return Model("cross_encoder", _forward, attrs=attrs, refs={"network": None})


def build_reranker_v1(names: NameEncoder, pairs: PairScorer) -> Model:
    """Registered as `spacy-bioel.Reranker.v1`: candidate generation and reranking, as in BLINK.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence.
    pairs (PairScorer): The cross-encoder, `spacy-bioel.CrossEncoder.v1`.
    """
    kind = ReadingKind(add=_add_pairs, parts=_pairs_parts, load=_load_pairs)
    return reading_model("reranker", kind, _forward_pairs, {"names": names, "pairs": pairs})


def add_cross_encoder(model: PairScorer) -> None:
    """Load the checkpoint and add a new linear layer on top.

    RAISES BioelError: [B159] no checkpoint is named; [B040, B150] torch or transformers is missing;
        [B152] no checkpoint is found, [B153] a file is missing, [B154] parts do not fit one another
        or `max_pieces`.
    """
    if model.attrs["path"] is None:
        raise BioelError(Errors.B159)
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"]
    )
    if _unused(tokenizer) is None:
        n_rows = backbone.config.vocab_size
        backbone.resize_token_embeddings(n_rows + len(_UNUSED), mean_resizing=False)
    _add(model, tokenizer, backbone, folder=folder)


def _unused(tokenizer: Tokenizer) -> tuple[int, int] | None:
    first, second = (tokenizer.token_to_id(piece) for piece in _UNUSED)
    return None if first is None or second is None else (first, second)


def _add(
    model: PairScorer, tokenizer: Tokenizer, backbone: Any, *, folder: Path | None = None
) -> None:
    """Set word pieces and network, replacing any previous ones."""
    from spacy_bioel.nn.encoders import CrossEncoder

    prefix, suffix = special_pieces(tokenizer)
    if not (prefix and suffix):
        raise misfit(folder, "no special pieces around a text", "some, such as [CLS] and [SEP]")
    n_rows = backbone.config.vocab_size
    markers = _unused(tokenizer) or (n_rows - 2, n_rows - 1)  # the rows added to the embeddings
    pieces = PairPieces(tokenizer, prefix, suffix, markers, model.attrs["max_pieces"])
    if pieces.room < 2:
        least = f"at least {pieces.max_pieces - pieces.room + 2}"
        raise misfit(folder, f"max_pieces = {pieces.max_pieces}", least)
    settings = with_usable_precision(model.attrs["network_settings"])
    set_backbone(model, CrossEncoder(backbone, **settings), pieces)


def cross_encoder_parts(model: PairScorer) -> Parts:
    """Files for `load_cross_encoder`: bytes by file name; empty without a network."""
    return checkpoint_parts(model)


def load_cross_encoder(model: PairScorer, parts: Mapping[str, bytes]) -> None:
    """Load the files of `cross_encoder_parts`, if the parts include a cross-encoder.

    RAISES BioelError: Those of `load_checkpoint_parts`.
    """
    load_checkpoint_parts(model, parts, _add)


def score_pairs(model: PairScorer, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """Score pairs in evaluation mode.

    pairs (Sequence[Pair]): Pairs of any number of mentions. Equal texts within a batch are
        tokenised once, so keep the pairs of a mention together.
    RETURNS (NDArray[float32]): Logits. Shape (n_pairs,).
    """
    import torch

    wrapper = model.get_ref("network")
    shim: Any = wrapper.shims[0]
    scores = [np.zeros(0, np.float32)]
    with torch.inference_mode():
        for start in range(0, len(pairs), _PAIRS):
            pieces = model.attrs["pieces"](pairs[start : start + _PAIRS])
            tensors, _ = arrays_to_torch(wrapper, pieces, False)
            scores.append(shim._model(*tensors.args).cpu().numpy())
    return np.concatenate(scores)


def pairs_loss(
    logits: Any, groups: NDArray[np.int64], right: NDArray[np.bool_]
) -> tuple[float, Any]:
    """Compute `nn.losses.ranking_loss` and its gradient with respect to the logits.

    logits (Floats1d): Logits of the pairs. Shape (n_pairs,).
    groups (NDArray[int64]): Index of the mention of each pair. Shape (n_pairs,).
    right (NDArray[bool]): Whether the candidate is right. Shape (n_pairs,).
    RETURNS (tuple[float, Floats1d]): The loss and the gradient, shape (n_pairs,).
    """
    import torch

    from spacy_bioel.nn.losses import ranking_loss

    tensor = xp2torch(logits, requires_grad=True)
    device = tensor.device
    value = ranking_loss(
        tensor, torch.from_numpy(groups).to(device), torch.from_numpy(right).to(device)
    )
    value.backward()
    gradient: Any = tensor.grad
    return float(value.detach()), torch2xp(gradient)


def _forward(
    model: PairScorer, pairs: Sequence[Pair], is_train: bool
) -> tuple[Floats1d, Callable[[Floats1d], list]]:
    logits, backprop = model.get_ref("network")(model.attrs["pieces"](pairs), is_train)

    def backprop_pairs(d_logits: Floats1d) -> list:
        backprop(d_logits)
        return []

    return logits, backprop_pairs


# The functions of `ReadingKind`: each delegates to the cross-encoder of the linker's model.


def _add_pairs(model: Model, source: EncoderSource) -> None:
    add_cross_encoder(model.get_ref("pairs"))
    model.set_ref("network", model.get_ref("pairs"))


def _pairs_parts(model: Model) -> Parts:
    return with_prefix(_PREFIX, cross_encoder_parts(model.get_ref("pairs")))


def _load_pairs(model: Model, parts: Mapping[str, bytes]) -> None:
    if own := of_prefix(_PREFIX, parts):
        load_cross_encoder(model.get_ref("pairs"), own)
        model.set_ref("network", model.get_ref("pairs"))


def _forward_pairs(
    model: Model, pairs: Sequence[Pair], is_train: bool
) -> tuple[Floats1d, Callable]:
    return model.get_ref("pairs")(pairs, is_train)
