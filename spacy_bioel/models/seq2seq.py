"""Generative linker: an encoder-decoder writes a name of the knowledge base about a mention.

Training starts from a Hugging Face checkpoint, or from a small network made here. Configuration,
word pieces and weights are saved with the pipe, so that loading a pipeline needs no checkpoint.

In a linker (`build_generative_linker_v1`) the name encoder generates candidates and is not trained
further; the encoder-decoder brings candidates of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import AddedToken, Tokenizer

from spacy_bioel.models.checkpoint import (
    checkpoint_parts,
    load_checkpoint_parts,
    misfit,
    new_seq2seq,
    of_prefix,
    read_checkpoint,
    set_backbone,
    special_pieces,
    with_prefix,
)
from spacy_bioel.models.marked import MARKERS, Marked, MarkedPieces, add_markers
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Parts
from spacy_bioel.models.reading import ReadingKind, reading_model
from spacy_bioel.models.torch_io import with_usable_precision
from spacy_bioel.models.vocabulary import n_pieces, train_vocabulary

if TYPE_CHECKING:
    from torch import nn

Generator = Model[tuple[Sequence[Marked], Sequence[str]], Floats1d]

_PREFIX = "seq2seq."  # of its files in a linker
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
        part is added by `add_seq2seq`.
    """
    attrs = {
        "path": path,
        "new": {"layers": layers, "width": width},
        "vocabulary": vocabulary,
        "max_pieces": max_pieces,
        "beams": beams,
        "prompt": prompt,
        "network_settings": {
            "learn_rate_scale": learn_rate_scale,
            "mixed_precision": mixed_precision,
        },
        # Set together with the network: a MarkedPieces, and the backbone's configuration.
        "pieces": None,
        "config": None,
    }
    return Model("seq2seq", _forward, attrs=attrs, refs={"network": None})


def build_generative_linker_v1(names: NameEncoder, generator: Generator) -> Model:
    """Registered as `spacy-bioel.GenerativeLinker.v1`.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence.
    generator (Generator): The encoder-decoder, `spacy-bioel.Seq2Seq.v1`.
    """
    kind = ReadingKind(add=_add_generator, parts=_generator_parts, load=_load_generator)
    layers: dict[str, Model] = {"names": names, "generator": generator}
    return reading_model(
        "generative_linker", kind, _forward_generator, layers, evidence="generated"
    )


def add_seq2seq(model: Generator, source: EncoderSource) -> None:
    """Load the checkpoint, or make a small network.

    RAISES BioelError: [B040, B150] torch or transformers is missing; [B152] no checkpoint is found,
        [B153] a file is missing, [B154] parts do not fit one another, [B280] no encoder-decoder.
    """
    if model.attrs["path"] is None:
        tokenizer = new_vocabulary(
            source.names, source.read_texts(), size=model.attrs["vocabulary"]
        )
        _add(model, tokenizer, new_backbone(tokenizer, **model.attrs["new"]))
        return
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"], writes=True
    )
    add_markers(tokenizer)
    if (n := n_pieces(tokenizer)) > backbone.config.vocab_size:
        backbone.resize_token_embeddings(n, mean_resizing=False)
    _add(model, tokenizer, backbone, folder=folder)


def new_vocabulary(names: Sequence[str], texts: Iterable[str], *, size: int) -> Tokenizer:
    """Word pieces of a network made here, from normalised names and texts."""
    special = (_PAD, _END, *MARKERS)
    tokenizer = train_vocabulary(["is", "is", *names, *texts], size=size - len(special))
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    return tokenizer


def new_backbone(tokenizer: Tokenizer, *, layers: int, width: int) -> Any:
    """A small encoder-decoder for these word pieces, with random weights."""
    ids = tokenizer.get_vocab()
    pad, end = ids[_PAD], ids[_END]
    return new_seq2seq(
        n_pieces(tokenizer), layers=layers, width=width, n_positions=_POSITIONS, pad=pad, end=end
    )


def marked_pieces(
    tokenizer: Tokenizer, config: Any, *, max_pieces: int, prompt: bool, folder: Path | None = None
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
    model: Generator, tokenizer: Tokenizer, backbone: nn.Module, *, folder: Path | None = None
) -> None:
    """Set word pieces and network, replacing any previous ones."""
    from spacy_bioel.nn.seq2seq import Seq2Seq

    pieces = marked_pieces(
        tokenizer,
        backbone.config,
        max_pieces=model.attrs["max_pieces"],
        prompt=model.attrs["prompt"],
        folder=folder,
    )
    settings = with_usable_precision(model.attrs["network_settings"])
    set_backbone(model, Seq2Seq(backbone, **settings), pieces)


def seq2seq_parts(model: Generator) -> Parts:
    """Files for `load_seq2seq`: bytes by file name; empty without a network."""
    return checkpoint_parts(model)


def load_seq2seq(model: Generator, parts: Mapping[str, bytes]) -> None:
    """Load the files of `seq2seq_parts`, if the parts include an encoder-decoder.

    RAISES BioelError: Those of `load_checkpoint_parts`.
    """
    load_checkpoint_parts(model, parts, _add, writes=True)


def seq2seq_network(model: Generator) -> Any:
    """The torch module `nn.seq2seq.Seq2Seq`. Call it after `add_seq2seq`."""
    shim: Any = model.get_ref("network").shims[0]
    return shim._model


def _forward(
    model: Generator, inputs: tuple[Sequence[Marked], Sequence[str]], is_train: bool
) -> tuple[Floats1d, Callable[[Floats1d], list]]:
    mentions, names = inputs
    pieces: MarkedPieces = model.attrs["pieces"]
    sources, (targets, given) = pieces.sources(mentions), pieces.targets(mentions, names)
    losses, backprop = model.get_ref("network")((*sources, *targets, given), is_train)

    def backprop_mentions(d_losses: Floats1d) -> list:
        backprop(d_losses)
        return []

    return losses, backprop_mentions


# The functions of `ReadingKind`: each delegates to the encoder-decoder of the linker's model.


def _add_generator(model: Model, source: EncoderSource) -> None:
    add_seq2seq(model.get_ref("generator"), source)
    model.set_ref("network", model.get_ref("generator"))


def _generator_parts(model: Model) -> Parts:
    return with_prefix(_PREFIX, seq2seq_parts(model.get_ref("generator")))


def _load_generator(model: Model, parts: Mapping[str, bytes]) -> None:
    if own := of_prefix(_PREFIX, parts):
        load_seq2seq(model.get_ref("generator"), own)
        model.set_ref("network", model.get_ref("generator"))


def _forward_generator(
    model: Model, inputs: tuple[Sequence[Marked], Sequence[str]], is_train: bool
) -> tuple[Floats1d, Callable]:
    return model.get_ref("generator")(inputs, is_train)
