"""Cross-encoder: a transformer that scores a mention in its context together with a candidate.

Training starts from a Hugging Face checkpoint. Configuration, word pieces and weights are saved
with the pipe, so that loading a pipeline does not need the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.checkpoint import (
    checkpoint_kind,
    misfit,
    read_checkpoint,
    set_backbone,
    special_pieces,
)
from spacy_bioel.models.marked import Pair, PairPieces
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, pieces_model
from spacy_bioel.models.reading import reading_by

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PairScorer = Model[Sequence[Pair], Floats1d]

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
        the hub. It is read by `add_encoder`.
    max_pieces (int): Maximum number of word pieces of a pair, special ones included.
    learn_rate_scale (float): Factor on the learning rate of the checkpoint's weights; the new
        layer uses the full learning rate.
    mixed_precision (bool): Train under bfloat16 autocast, on a GPU, and on a CPU that has bfloat16.
    RETURNS (Model[Sequence[Pair], Floats1d]): A model from pairs to logits, which are comparable
        among the candidates of one mention. `add_encoder` adds its torch part.
    """
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return pieces_model(
        "cross_encoder", _KIND, settings, forward=_forward, path=path, max_pieces=max_pieces
    )


def build_reranker_v1(names: NameEncoder, pairs: PairScorer) -> Model:
    """Registered as `spacy-bioel.Reranker.v1`: candidate generation and reranking, as in BLINK.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence. It
        generates candidates, and is not trained further.
    pairs (PairScorer): The cross-encoder, `spacy-bioel.CrossEncoder.v1`.
    """
    return reading_by(names, pairs, name="reranker", ref="pairs", prefix="pairs.")


def _make(model: PairScorer, source: EncoderSource) -> None:
    """Load the checkpoint and add a new linear layer on top.

    RAISES BioelError: [B159] no checkpoint is named; those of `read_checkpoint` and `_add`.
    """
    if model.attrs["path"] is None:
        raise BioelError(Errors.B159)
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"]
    )
    if _unused(tokenizer) is None:
        n_rows = backbone.config.vocab_size
        backbone.resize_token_embeddings(n_rows + len(_UNUSED), mean_resizing=False)
    _add(model, tokenizer, backbone, folder)


def _unused(tokenizer: Tokenizer) -> tuple[int, int] | None:
    first, second = (tokenizer.token_to_id(piece) for piece in _UNUSED)
    return None if first is None or second is None else (first, second)


def _add(
    model: PairScorer, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set word pieces and network. RAISES BioelError: [B154] no special pieces, or no room."""
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
    set_backbone(model, tokenizer, CrossEncoder(backbone, **model.attrs["settings"]))
    model.attrs["pieces"] = pieces


_KIND = checkpoint_kind(_make, _add)


def score_pairs(model: PairScorer, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """Logits of pairs of any number of mentions, those of a mention together: equal texts within a
    batch are tokenised once. Shape (n_pairs,)."""
    batches = [pairs[start : start + _PAIRS] for start in range(0, len(pairs), _PAIRS)]
    scores = [model.ops.to_numpy(model.predict(batch)) for batch in batches]
    return np.concatenate([np.zeros(0, np.float32), *scores])


def _forward(
    model: PairScorer, pairs: Sequence[Pair], is_train: bool
) -> tuple[Floats1d, Callable[[Floats1d], list]]:
    return model.get_ref("network")(model.attrs["pieces"](pairs), is_train)
