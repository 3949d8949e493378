"""Generative linker: an encoder-decoder writes a name of the knowledge base about a mention.

Training starts from a Hugging Face checkpoint, or from a small network made here. Configuration,
word pieces and weights are saved with the pipe, so that loading a pipeline needs no checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import AddedToken, Tokenizer

from spacy_bioel.contextual.rescoring import (
    ContextualRescorer,
    PairScores,
    contextual_model,
    nearest_names,
    weigh,
)
from spacy_bioel.contextual.transformers import (
    checkpoint_kind,
    in_context,
    misfit,
    pieces_of,
    read_checkpoint,
    require_transformers,
    set_backbone,
    special_pieces,
)
from spacy_bioel.entities import Mentions
from spacy_bioel.errors import Warnings
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import Cache, CandidateGenerator
from spacy_bioel.linking.rescoring import Given
from spacy_bioel.linking.searches import needs_no_folder
from spacy_bioel.linking.training import NameTraining, gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Pieces, pieces_model
from spacy_bioel.models.vocabulary import n_pieces, train_vocabulary
from spacy_bioel.text.normalize import NORMALIZER_VERSION, normalize_name, normalize_names
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from spacy_bioel.contextual.constrained_decoding import NameTrie

_PAD, _END = "[PAD]", "[SEP]"
# Longest input of a network made here, and longest name of one that has no such limit.
_POSITIONS, _LONGEST = 256, 256
# Pieces before and after a mention.
MARKERS = ("[START]", "[END]")


class Marked(NamedTuple):
    """A mention between the texts before and after it, normalised."""

    left: str
    mention: str
    right: str


# Scores of names written about mentions.
Generator = Model[tuple[Sequence[Marked], Sequence[str]], Floats1d]


@dataclass(frozen=True)
class MarkedPieces:
    """Encodes mentions as left [START] mention [END] right, and the decoder's part of them.

    A mention that is longer than the room loses its end; `in_context` cuts the context.

    tokenizer (Tokenizer): With the pieces MARKERS, without padding or truncation.
    prefix, suffix (list[int]): Ids of the special pieces before and after a text.
    start, end (int): First piece of the decoder, and the piece after a name.
    max_pieces (int): Maximum length of a source, special pieces and markers included.
    longest (int): Maximum length of a name.
    prompt (bool): Begin what is written with the mention and "is".
    """

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    start: int
    end: int
    max_pieces: int
    longest: int
    prompt: bool = True

    @cached_property
    def markers(self) -> tuple[int, int]:
        """Ids of the pieces before and after a mention."""
        vocabulary = self.tokenizer.get_vocab()
        return vocabulary[MARKERS[0]], vocabulary[MARKERS[1]]

    @property
    def room(self) -> int:
        """Number of pieces of a source for its text."""
        return self.max_pieces - len(self.prefix) - len(self.suffix) - len(MARKERS)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies how names are written: word pieces, end piece and greatest length."""
        digest = blake2b(self.tokenizer.to_str().encode("utf8"), digest_size=8)
        digest.update(f"{self.end} {self.longest} {NORMALIZER_VERSION}".encode())
        return digest.hexdigest()

    def sources(self, mentions: Sequence[Marked]) -> Pieces:
        """Mentions in their contexts."""
        pieces = self._pieces(text for mention in mentions for text in mention)
        rows = []
        for left, mention, right in mentions:
            marked = [self.markers[0], *pieces[mention][: self.room], self.markers[1]]
            text = in_context(pieces[left], marked, pieces[right], self.room + len(MARKERS))
            rows.append([*self.prefix, *text, *self.suffix])
        return Pieces.of_rows(rows)

    def are_cut(self, mentions: Sequence[Marked]) -> NDArray[np.bool_]:
        """Whether mentions are longer than the room. Shape (n,)."""
        pieces = self._pieces(mention.mention for mention in mentions)
        return np.array([len(pieces[m.mention]) > self.room for m in mentions], dtype=bool)

    def prompts(self, mentions: Sequence[Marked]) -> list[list[int]]:
        """Beginnings of what the decoder writes, one for each mention."""
        if not self.prompt:
            return [[self.start] for _ in mentions]
        pieces = self._pieces(mention.mention for mention in mentions)
        verb = self.tokenizer.encode(" is", add_special_tokens=False).ids
        return [[self.start, *pieces[m.mention][: self.room], *verb] for m in mentions]

    def writable(self, names: Sequence[str]) -> list[list[int] | None]:
        """Pieces of normalised names, and the end piece; None where a piece is unknown, or the name
        is empty or too long. A `contextual.constrained_decoding.ToPieces`."""
        pieces = self._pieces(names)
        unknown = self.tokenizer.token_to_id("[UNK]")
        unknown = getattr(self.tokenizer.model, "unk_token", None) if unknown is None else unknown
        if isinstance(unknown, str):
            unknown = self.tokenizer.token_to_id(unknown)
        return [
            [*pieces[name], self.end]
            if 0 < len(pieces[name]) <= self.longest and unknown not in pieces[name]
            else None
            for name in names
        ]

    def targets(self, mentions: Sequence[Marked], names: Sequence[str]) -> tuple[Pieces, IntArray]:
        """Rows that the decoder is to write, and how many pieces of each are given."""
        prompts, pieces = self.prompts(mentions), self._pieces(names)
        rows = (
            [*prompt, *pieces[name][: self.longest], self.end]
            for prompt, name in zip(prompts, names, strict=True)
        )
        return Pieces.of_rows(rows), np.array([len(p) for p in prompts], dtype=np.int64)

    def _pieces(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Pieces of texts, as those of words within a sentence: after a space."""
        return pieces_of(self.tokenizer, texts, before=" ")


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
    """Registered as `spacy-bioel.Seq2Seq.v1`; see `contextual.networks` for the paper.

    `MarkedPieces` defines the input, and its truncation.

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
        extra="transformers",
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
    layers: dict[str, Model] = {"names": names, "generator": generator}
    return contextual_model("generative_linker", GenerativeRescorer, layers)


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
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in MARKERS])
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
        attention_dropout=0.0,  # see `transformers._load_backbone`
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
    from spacy_bioel.contextual.networks import Seq2Seq

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


# Of mean log-probabilities: the least that counts as written, and the divisor.
_FLOOR, _TEMPERATURE = -4.0, 0.25


def mark(spans: Sequence[Span], strings: Sequence[str], *, context: int) -> list[Marked]:
    """Mentions in their contexts, normalised.

    strings (Sequence[str]): Normalised strings of the mentions, abbreviations written out.
    context (int): Tokens before and after a mention. The model takes what fits of them.
    """
    return [
        Marked(
            normalize_name(span.doc[max(0, span.start - context) : span.start].text),
            string,
            normalize_name(span.doc[span.end : span.end + context].text),
        )
        for span, string in zip(spans, strings, strict=True)
    ]


class Training(NameTraining):
    """Trains an encoder-decoder to write, about a mention, the name of its concept that is most
    like it. The encoder of names stays as it is.

    A few mentions of each update, `training.mentions`, and as many other names as
    `training.synonyms` in the contexts of these: half of them are to be copied, half to be called
    by any name of their concept. Without them, names that training does not mention are forgotten.
    """

    def draw_names(self, contexts: Sequence[Marked]) -> tuple[list[Marked], list[str]]:
        """Names of the pool in the contexts of mentions, and what is to be written about each."""
        n = self.settings.synonyms
        rows = self._random.choice(self.pool.rows, n)
        indptr, concepts, _ = self.kb.concepts_of_names(rows)
        targets = [
            row if self._random.random() < 0.5 else self._random.choice(self.kb.names_of(concept))
            for row, concept in zip(rows, concepts[indptr[:-1]].tolist(), strict=True)
        ]
        strings, names = (normalize_names(self.kb.names.take(of)) for of in (rows, targets))
        places = self._random.integers(len(contexts), size=n).tolist()
        found = [
            contexts[place]._replace(mention=string)
            for place, string in zip(places, strings, strict=True)
        ]
        return found, names

    def update(self, examples: Sequence[Example]) -> float | None:
        gold, ids = gold_mentions(examples, self.state.settings)
        rows, strings = self.kb.find_all(ids), gold.strings
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings.mentions)
        chosen = self._random.choice(known, n, replace=False).tolist()
        if not chosen:
            return None
        own = [strings[i] for i in chosen]
        context = self.model.get_ref("generator").attrs["max_pieces"]
        marked = mark([gold.spans[i] for i in chosen], own, context=context)
        nearest = nearest_names(self.kb, own, rows[chosen])
        names = normalize_names(self.kb.names.take(nearest))
        others, their_names = self.draw_names(marked)
        losses, backprop = self.model.begin_update((marked + others, names + their_names))
        backprop(losses * 0 + 1 / len(losses))  # of their mean
        return float(losses.mean())


class GenerativeRescorer(ContextualRescorer):
    evidence = "generated"
    training = Training
    layer = "generator"
    prefix = "seq2seq."

    def __init__(self, model: Model[Any, Any]) -> None:
        super().__init__(model)
        self._cache = Cache()

    @property
    def pieces(self) -> MarkedPieces:
        pieces: MarkedPieces = self.reader.attrs["pieces"]
        return pieces

    def trie(self, generator: CandidateGenerator) -> NameTrie:
        """The trie of the names: of the pool, of the folder, or of a small KB, built here.

        RAISES BioelError: Those of `open_trie`, for a knowledge base that is not small.
        """
        from spacy_bioel.contextual.constrained_decoding import build_trie, open_trie

        kb, pool, pieces = generator.kb, generator.state.pool, self.pieces
        if pool is not None:
            make = partial(build_trie, kb, pieces.writable, rows=pool.rows)
        elif needs_no_folder(kb) or isinstance(kb, JoinedKnowledgeBase):
            make = partial(build_trie, kb, pieces.writable)
        else:
            make = partial(open_trie, kb, fingerprint=pieces.fingerprint)
        return self._cache.get("trie", (pieces.fingerprint, kb, pool), make)

    def encode_kb(self, kb: KnowledgeBase) -> None:
        """Write the trie of a knowledge base, unless it is small, and say what is left out."""
        if not self.is_ready:
            return
        from spacy_bioel.contextual.constrained_decoding import build_trie, write_trie

        if needs_no_folder(kb) or kb.path is None:
            trie = build_trie(kb, self.pieces.writable)
        else:
            trie = write_trie(kb, self.pieces.writable, fingerprint=self.pieces.fingerprint)
        if trie.left_out:
            about = {"n": trie.left_out, "of": kb.n_names, "nameless": trie.nameless}
            warnings.warn(Warnings.W281.format(path=kb.where, **about), stacklevel=2)

    def read(self, generator: CandidateGenerator, mentions: Mentions, given: Given) -> PairScores:
        """Pairs: the candidates of the strings, and the concepts whose names are written.

        A name of several concepts proposes all of them: what their strings say decides.
        """
        kb = generator.kb
        owner, concept, score = self.generate(generator, mentions)
        pairs = owner * len(kb) + concept

        def likeness(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
            wanted = mention * len(kb) + concept
            if not len(pairs):
                return np.full(len(wanted), _FLOOR)
            at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            return np.where(pairs[at] == wanted, score[at], _FLOOR)

        return weigh(
            *(kb, given, likeness, owner, concept),
            temperature=_TEMPERATURE,
            evidence=self.evidence,
            reads_given=False,
        )

    def generate(
        self, generator: CandidateGenerator, mentions: Mentions
    ) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
        """Concepts of the names that are written about mentions, of types that their labels may
        have.

        RETURNS (tuple): Number of the mention, concept row, and logarithm of the sum over its names
            of exp(mean log-probability), not below a floor; sorted by mention and concept. Shape
            (n,).
        """
        from spacy_bioel.contextual.constrained_decoding import write_about

        kb, trie, pieces = generator.kb, self.trie(generator), self.pieces
        marked = mark(mentions.spans, mentions.strings, context=pieces.max_pieces)
        written, n_cut = write_about(self.reader, trie, marked)
        if n_cut:
            about = {"n": n_cut, "of": len(marked), "room": pieces.room}
            warnings.warn(Warnings.W280.format(**about), stacklevel=2)
        indptr, rows = trie.names_of(written.leaf)
        name = np.repeat(np.arange(len(written.leaf)), np.diff(indptr))
        indptr, concept, _ = kb.concepts_of_names(rows)
        name = np.repeat(name, np.diff(indptr))
        # Names of one leaf that share a concept are one name.
        once = np.unique(name * len(kb) + concept)
        name, concept = once // len(kb), once % len(kb)
        owner = written.mention[name]
        may = generator.allowed(concept, mentions.labels, owner)
        keys, place = np.unique((owner * len(kb) + concept)[may], return_inverse=True)
        total = np.bincount(place, np.exp(written.score[name][may].astype(np.float64)), len(keys))
        score = np.maximum(np.log(np.maximum(total, np.exp(_FLOOR))), _FLOOR)
        return keys // len(kb), keys % len(kb), score
