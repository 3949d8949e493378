"""Generative linker: an encoder-decoder writes a name of the knowledge base about a mention.

Training starts from a Hugging Face checkpoint, or from a small network made here. Configuration,
word pieces and weights are saved with the pipe, so that loading a pipeline needs no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import AddedToken, Tokenizer

from spacy_bioel.models.checkpoint import (
    checkpoint_kind,
    misfit,
    read_checkpoint,
    require_transformers,
    set_backbone,
    special_pieces,
)
from spacy_bioel.models.marked import MARKERS, Marked, MarkedPieces, add_markers
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, pieces_model
from spacy_bioel.models.reading import reading_by
from spacy_bioel.models.vocabulary import n_pieces, train_vocabulary

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

Generator = Model[tuple[Sequence[Marked], Sequence[str]], Floats1d]

_PAD, _END = "[PAD]", "[SEP]"
# Longest input of a network made here, and longest name of one that has no such limit.
_POSITIONS, _LONGEST = 256, 256


def build_seq2seq_v1(
    *,
    path: str | None = None,
    layers: int = 3,
    width: int = 256,
    vocabulary: int = 8000,
    max_pieces: int = 64,
    beams: int = 5,
    prompt: bool = True,
    learn_rate_scale: float = 1.0,
    mixed_precision: bool = False,
) -> Generator:
    """Registered as `spacy-bioel.Seq2Seq.v1`; see `nn.seq2seq` for the paper.

    `models.marked` defines the input, and its truncation.

    path (str | None): Folder of a Hugging Face encoder-decoder with safetensors weights, such as
        training/scripts/pretrain_seq2seq.py writes, or its id on the hub. None: a small BART, of
        which the next three settings are.
    layers, width (int): Layers of the encoder, and as many of the decoder; size of the vectors.
    vocabulary (int): Word pieces, from names and texts.
    max_pieces (int): Maximum number of word pieces of a mention with its context.
    beams (int): Names that are kept at a time while one is written, and are proposed.
    prompt (bool): Begin what is written with the mention and "is".
    learn_rate_scale (float): Factor on the learning rate.
    mixed_precision (bool): Train under bfloat16 autocast, on a GPU, and on a CPU that has bfloat16.
    RETURNS (Model): A model from mentions and a name of each to the losses of the names. Its torch
        part is added by `add_encoder`.
    """
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return pieces_model(
        "seq2seq",
        _KIND,
        settings,
        forward=_forward,
        path=path,
        new={"layers": layers, "width": width},
        vocabulary=vocabulary,
        max_pieces=max_pieces,
        beams=beams,
        prompt=prompt,
    )


def build_generative_linker_v1(names: NameEncoder, generator: Generator) -> Model:
    """Registered as `spacy-bioel.GenerativeLinker.v1`.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence. It
        is not trained further.
    generator (Generator): The encoder-decoder, `spacy-bioel.Seq2Seq.v1`, which brings candidates of
        its own.
    """
    about = {"prefix": "seq2seq.", "evidence": "generated"}
    return reading_by(names, generator, name="generative_linker", ref="generator", **about)


def _make(model: Generator, source: EncoderSource) -> None:
    """Load the checkpoint, or make a small network.

    RAISES BioelError: Those of `read_checkpoint`; [B154] parts do not fit one another.
    """
    if model.attrs["path"] is None:
        size = model.attrs["vocabulary"]
        tokenizer = new_vocabulary(source.names, source.read_texts(), size=size)
        _add(model, tokenizer, new_backbone(tokenizer, **model.attrs["new"]), None)
        return
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"], writes=True
    )
    add_markers(tokenizer)
    if (n := n_pieces(tokenizer)) > backbone.config.vocab_size:
        backbone.resize_token_embeddings(n, mean_resizing=False)
    _add(model, tokenizer, backbone, folder)


def new_vocabulary(names: Sequence[str], texts: Iterable[str], *, size: int) -> Tokenizer:
    """Word pieces of a network made here, from normalised names and texts."""
    special = (_PAD, _END, *MARKERS)
    tokenizer = train_vocabulary(["is", "is", *names, *texts], size=size - len(special))
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    return tokenizer


def new_backbone(tokenizer: Tokenizer, *, layers: int, width: int) -> PreTrainedModel:
    """A small encoder-decoder for these word pieces, a BART with random weights."""
    require_transformers()
    from transformers import BartConfig, BartForConditionalGeneration

    of_each = {"layers": layers, "attention_heads": max(1, width // 64), "ffn_dim": 3 * width}
    both: Any = {
        f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in of_each.items()
    }
    pad, end = (tokenizer.token_to_id(piece) for piece in (_PAD, _END))
    config = BartConfig(
        vocab_size=n_pieces(tokenizer),
        d_model=width,
        max_position_embeddings=_POSITIONS,
        init_std=width**-0.5,
        attention_dropout=0.0,  # see `checkpoint._load_backbone`
        pad_token_id=pad,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=end,
        forced_eos_token_id=None,
        **both,
    )
    return BartForConditionalGeneration(config)


def marked_pieces(
    tokenizer: Tokenizer,
    config: PretrainedConfig,
    *,
    max_pieces: int,
    prompt: bool,
    folder: Path | None = None,
) -> MarkedPieces:
    """Word pieces of mentions and names for a backbone.

    config (PretrainedConfig): Of the backbone.
    folder (Path | None): Of the checkpoint, for messages.
    RAISES BioelError: [B154] no end piece, or no room.
    """
    prefix, suffix = special_pieces(tokenizer)
    start, end = config.decoder_start_token_id, config.eos_token_id
    if start is None or end is None:
        raise misfit(folder, "no first or no end piece", "both, as its config names them")
    n_positions = getattr(config, "max_position_embeddings", 0) or _LONGEST + max_pieces
    # Before the name come a first piece, the mention and a word.
    longest = min(_LONGEST, n_positions - max_pieces - 8)
    pieces = MarkedPieces(tokenizer, prefix, suffix, start, end, max_pieces, longest, prompt)
    if pieces.room < 2 or longest < 2:
        raise misfit(folder, f"max_pieces = {max_pieces}", f"room for {n_positions} positions")
    return pieces


def _add(
    model: Generator, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set word pieces and network, replacing any previous ones."""
    from spacy_bioel.nn.seq2seq import Seq2Seq

    size, prompt = model.attrs["max_pieces"], model.attrs["prompt"]
    pieces = marked_pieces(
        tokenizer, backbone.config, max_pieces=size, prompt=prompt, folder=folder
    )
    set_backbone(model, tokenizer, Seq2Seq(backbone, **model.attrs["settings"]))
    model.attrs["pieces"] = pieces


_KIND = checkpoint_kind(_make, _add, writes=True)


def _forward(
    model: Generator, inputs: tuple[Sequence[Marked], Sequence[str]], is_train: bool
) -> tuple[Floats1d, Callable[[Floats1d], list]]:
    mentions, names = inputs
    pieces: MarkedPieces = model.attrs["pieces"]
    sources, (targets, given) = pieces.sources(mentions), pieces.targets(mentions, names)
    return model.get_ref("network")((*sources, *targets, given), is_train)
