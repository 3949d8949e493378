"""Generative linker: an encoder-decoder that generates knowledge base names for a mention.

Training starts from a Hugging Face checkpoint, or from a small new network.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
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

from spacy_bioel.batch import Batch
from spacy_bioel.kb.columns import find_sorted
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import Cache, CandidateGenerator
from spacy_bioel.linking.searches import needs_no_folder
from spacy_bioel.linking.training import NameTraining, gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Pieces, pieces_model
from spacy_bioel.models.vocabulary import n_pieces, train_vocabulary
from spacy_bioel.plugins.contextual.errors import ContextualWarnings
from spacy_bioel.plugins.contextual.rescoring import (
    PairScores,
    WordPieceRescorer,
    contextual_model,
    nearest_names,
    rescore_pairs,
)
from spacy_bioel.plugins.contextual.transformers import (
    checkpoint_kind,
    fit_context,
    misfit,
    pieces_of,
    read_checkpoint,
    require_transformers,
    set_backbone,
    special_pieces,
)
from spacy_bioel.text.normalize import NORMALIZER_VERSION, normalize_name, normalize_names
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from spacy_bioel.plugins.contextual.constrained_decoding import NameTrie

_PAD, _END = "[PAD]", "[SEP]"
# Maximum input length of a new network; maximum name length for a network without a limit.
_MAX_POSITIONS, _MAX_NAME_PIECES = 256, 256
MARKERS = ("[START]", "[END]")  # special pieces before and after a mention


class MarkedMention(NamedTuple):
    """A mention and the text on each side of it, normalised."""

    left: str
    mention: str
    right: str


# Model that computes the loss of generating a given name for each mention.
Seq2SeqModel = Model[tuple[Sequence[MarkedMention], Sequence[str]], Floats1d]


@dataclass(frozen=True)
class MarkedPieces:
    """Converts mentions in context (left [START] mention [END] right), prompts and names to pieces.

    A mention that does not fit is truncated at the end; `fit_context` cuts the context.

    tokenizer (Tokenizer): Includes the MARKERS pieces, and does not pad or truncate.
    prefix, suffix (list[int]): Ids of the special pieces before and after a text.
    start, end (int): First piece of the decoder's sequence, and the piece after a name.
    max_pieces (int): Maximum length of the encoder's input, special pieces and markers included.
    longest_name (int): Maximum length of a name in pieces.
    prompt (bool): Begin the decoder's sequence with the mention and "is".
    """

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    start: int
    end: int
    max_pieces: int
    longest_name: int
    prompt: bool = True

    @cached_property
    def markers(self) -> tuple[int, int]:
        """Ids of the marker pieces before and after a mention."""
        vocabulary = self.tokenizer.get_vocab()
        return vocabulary[MARKERS[0]], vocabulary[MARKERS[1]]

    @property
    def room(self) -> int:
        """Number of pieces left for the text itself."""
        return self.max_pieces - len(self.prefix) - len(self.suffix) - len(MARKERS)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything that affects how names are split into pieces."""
        digest = blake2b(self.tokenizer.to_str().encode("utf8"), digest_size=8)
        digest.update(f"{self.end} {self.longest_name} {NORMALIZER_VERSION}".encode())
        return digest.hexdigest()

    def __call__(
        self, inputs: tuple[Sequence[MarkedMention], Sequence[str]]
    ) -> tuple[IntArray, ...]:
        """Build the arguments of `Seq2Seq.forward` from mentions and one name for each."""
        mentions, names = inputs
        targets, prompt_lengths = self.targets(mentions, names)
        return *self.sources(mentions), *targets, prompt_lengths

    def sources(self, mentions: Sequence[MarkedMention]) -> Pieces:
        """Return the encoder's input: the word pieces of mentions in context."""
        pieces = self._pieces(text for mention in mentions for text in mention)
        rows = []
        for left, mention, right in mentions:
            marked = [self.markers[0], *pieces[mention][: self.room], self.markers[1]]
            text = fit_context(pieces[left], marked, pieces[right], self.room + len(MARKERS))
            rows.append([*self.prefix, *text, *self.suffix])
        return Pieces.of_rows(rows)

    def are_cut(self, mentions: Sequence[MarkedMention]) -> NDArray[np.bool_]:
        """Return whether each mention is so long that it must be truncated. Shape (n,)."""
        pieces = self._pieces(mention.mention for mention in mentions)
        return np.array([len(pieces[m.mention]) > self.room for m in mentions], dtype=bool)

    def prompts(self, mentions: Sequence[MarkedMention]) -> list[list[int]]:
        """Return each mention's prompt: the pieces that the decoder's sequence starts with."""
        if not self.prompt:
            return [[self.start] for _ in mentions]
        pieces = self._pieces(mention.mention for mention in mentions)
        is_pieces = self.tokenizer.encode(" is", add_special_tokens=False).ids
        return [[self.start, *pieces[m.mention][: self.room], *is_pieces] for m in mentions]

    def for_names(self, names: Sequence[str]) -> list[list[int] | None]:
        """Return each name's pieces and the end piece for a trie, or None if the name cannot be
        generated because it is empty, is too long or contains an unknown piece."""
        pieces = self._pieces(names)
        unk_token = getattr(self.tokenizer.model, "unk_token", None) or "[UNK]"
        unknown = self.tokenizer.token_to_id(unk_token)
        rows: list[list[int] | None] = []
        for name in names:
            fits = 0 < len(pieces[name]) <= self.longest_name and unknown not in pieces[name]
            rows.append([*pieces[name], self.end] if fits else None)
        return rows

    def targets(
        self, mentions: Sequence[MarkedMention], names: Sequence[str]
    ) -> tuple[Pieces, IntArray]:
        """Return the decoder's sequences (prompt and name) and the prompt lengths."""
        prompts, pieces = self.prompts(mentions), self._pieces(names)
        rows = [
            [*prompt, *pieces[name][: self.longest_name], self.end]
            for prompt, name in zip(prompts, names, strict=True)
        ]
        return Pieces.of_rows(rows), np.array([len(prompt) for prompt in prompts], dtype=np.int64)

    def _pieces(self, texts: Iterable[str]) -> dict[str, list[int]]:
        # Split each text as if it followed a space, like a word inside a sentence.
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
) -> Seq2SeqModel:
    """Registered as `spacy-bioel.Seq2Seq.v1`; see `contextual.networks` for the paper.

    `MarkedPieces` defines the input, and how it is truncated.

    path (str | None): Folder of a Hugging Face encoder-decoder with safetensors weights, such as
        the output of training/scripts/pretrain_seq2seq.py, or its id on the hub. None creates a
        small BART from the next three settings.
    layers, width (int): Number of layers in the encoder and in the decoder; size of the vectors.
    vocabulary (int): Number of word pieces, trained on names and texts.
    max_pieces (int): Maximum number of word pieces in a mention with its context.
    beams (int): Number of beams in the search, and maximum number of names that it proposes.
    prompt (bool): Begin the decoder's sequence with the mention and "is".
    learn_rate_scale (float): Factor on the learning rate.
    mixed_precision (bool): Train with bfloat16 autocast on a GPU, or on a CPU that supports it.
    RETURNS (Model): A model that takes mentions and one name for each, and computes the loss of
        each name. `add_encoder` adds its network.
    """
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return pieces_model(
        "seq2seq",
        _SEQ2SEQ_KIND,
        settings,
        extra="transformers",
        path=path,
        new={"layers": layers, "width": width},
        vocabulary=vocabulary,
        max_pieces=max_pieces,
        beams=beams,
        prompt=prompt,
    )


def build_generative_linker_v1(names: NameEncoder, generator: Seq2SeqModel) -> Model:
    """Registered as `spacy-bioel.GenerativeLinker.v1`.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence. It
        is not trained further.
    generator (Seq2SeqModel): The encoder-decoder, `spacy-bioel.Seq2Seq.v1`, whose generated names
        are also candidates.
    """
    layers: dict[str, Model] = {"names": names, "generator": generator}
    return contextual_model("generative_linker", GenerativeRescorer, layers)


def _make_seq2seq(model: Seq2SeqModel, source: EncoderSource) -> None:
    """Load the checkpoint in `path`, or create a small network if `path` is None."""
    if model.attrs["path"] is None:
        size = model.attrs["vocabulary"]
        tokenizer = new_vocabulary(source.names, source.read_texts(), size=size)
        _set_seq2seq(model, tokenizer, new_backbone(tokenizer, **model.attrs["new"]), None)
        return
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"], is_seq2seq=True
    )
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in MARKERS])
    if (n := n_pieces(tokenizer)) > backbone.config.vocab_size:
        backbone.resize_token_embeddings(n, mean_resizing=False)
    _set_seq2seq(model, tokenizer, backbone, folder)


def new_vocabulary(names: Sequence[str], texts: Iterable[str], *, size: int) -> Tokenizer:
    """Train word pieces for a new network on normalised names and texts."""
    special = (_PAD, _END, *MARKERS)
    tokenizer = train_vocabulary(["is", "is", *names, *texts], size=size - len(special))
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    return tokenizer


def new_backbone(tokenizer: Tokenizer, *, layers: int, width: int) -> PreTrainedModel:
    """Create a small BART with random weights for a tokenizer's word pieces."""
    require_transformers()
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"layers": layers, "attention_heads": max(1, width // 64), "ffn_dim": 3 * width}
    both_sides: Any = {
        f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in sizes.items()
    }
    pad, end = (tokenizer.token_to_id(piece) for piece in (_PAD, _END))
    config = BartConfig(
        vocab_size=n_pieces(tokenizer),
        d_model=width,
        max_position_embeddings=_MAX_POSITIONS,
        init_std=width**-0.5,
        attention_dropout=0.0,  # see `transformers._load_backbone`
        pad_token_id=pad,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=end,
        forced_eos_token_id=None,
        **both_sides,
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
    """Create the converter from mentions and names to a backbone's word pieces.

    config (PretrainedConfig): Configuration of the backbone.
    folder (Path | None): Folder of the checkpoint, for messages.
    RAISES BioelError: [B154] if there is no end piece, or no room for a mention and a name.
    """
    prefix, suffix = special_pieces(tokenizer)
    start, end = config.decoder_start_token_id, config.eos_token_id
    if start is None or end is None:
        raise misfit(folder, "no decoder_start_token_id or eos_token_id in its config", "both")
    n_positions = getattr(config, "max_position_embeddings", 0) or _MAX_NAME_PIECES + max_pieces
    # The first piece, the mention and "is" precede the name, and take up positions too.
    longest_name = min(_MAX_NAME_PIECES, n_positions - max_pieces - 8)
    pieces = MarkedPieces(tokenizer, prefix, suffix, start, end, max_pieces, longest_name, prompt)
    if pieces.room < 2 or longest_name < 2:
        raise misfit(folder, f"max_pieces = {max_pieces}", f"room for {n_positions} positions")
    return pieces


def _set_seq2seq(
    model: Seq2SeqModel, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set the tokenizer and the network, replacing any previous ones."""
    from spacy_bioel.plugins.contextual.networks import Seq2Seq

    sizes = {"max_pieces": model.attrs["max_pieces"], "prompt": model.attrs["prompt"]}
    pieces = marked_pieces(tokenizer, backbone.config, folder=folder, **sizes)
    set_backbone(model, tokenizer, Seq2Seq(backbone, **model.attrs["settings"]))
    model.attrs["pieces"] = pieces


_SEQ2SEQ_KIND = checkpoint_kind(_make_seq2seq, _set_seq2seq, is_seq2seq=True)


# Lowest score (a name's mean log-probability), also given to concepts without a generated name;
# and the temperature that all scores are divided by.
_MIN_SCORE, _SCORE_TEMPERATURE = -4.0, 0.25


def mark_mentions(
    spans: Sequence[Span], strings: Sequence[str], *, context: int
) -> list[MarkedMention]:
    """Build a `MarkedMention` from each mention's string and its context.

    strings (Sequence[str]): Normalised strings of the mentions, with abbreviations expanded.
    context (int): Number of tokens before and after a mention; the model trims them to fit.
    """
    return [
        MarkedMention(
            normalize_name(span.doc[max(0, span.start - context) : span.start].text),
            string,
            normalize_name(span.doc[span.end : span.end + context].text),
        )
        for span, string in zip(spans, strings, strict=True)
    ]


class GenerativeTraining(NameTraining):
    """Trains an encoder-decoder to generate the most similar name of a mention's concept.

    The name encoder is not trained. Each update uses `training.mentions` mentions, and
    `training.synonyms` knowledge base names that replace a mention in its context. For half of
    these names, the target is the name itself; for the other half, it is any name of the same
    concept. Without these names, the model would forget concepts that the training documents do not
    mention.
    """

    def draw_names(self, marked: Sequence[MarkedMention]) -> tuple[list[MarkedMention], list[str]]:
        """Draw names from the pool to replace mentions in context, and a target for each name."""
        n = self.settings.synonyms
        rows = self._random.choice(self.pool.rows, n)
        indptr, concepts, _ = self.kb.concepts_of_names(rows)
        target_rows = []
        for row, concept in zip(rows, concepts[indptr[:-1]].tolist(), strict=True):
            is_copied = self._random.random() < 0.5
            target_rows.append(row if is_copied else self._random.choice(self.kb.names_of(concept)))
        strings = normalize_names(self.kb.names.take(rows))
        targets = normalize_names(self.kb.names.take(target_rows))
        numbers = self._random.integers(len(marked), size=n).tolist()
        pairs = zip(numbers, strings, strict=True)
        return [marked[i]._replace(mention=string) for i, string in pairs], targets

    def update(self, examples: Sequence[Example]) -> float | None:
        gold, ids = gold_mentions(examples, self.state.settings)
        rows = self.kb.find_all(ids)
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings.mentions)
        chosen = self._random.choice(known, n, replace=False).tolist()
        if not chosen:
            return None
        strings = [gold.strings[i] for i in chosen]
        context = self.model.get_ref("generator").attrs["max_pieces"]
        marked = mark_mentions([gold.spans[i] for i in chosen], strings, context=context)
        nearest = nearest_names(self.kb, strings, rows[chosen])
        targets = normalize_names(self.kb.names.take(nearest))
        drawn, drawn_targets = self.draw_names(marked)
        losses, backprop = self.model.begin_update((marked + drawn, targets + drawn_targets))
        backprop(losses * 0 + 1 / len(losses))  # gradient of the mean loss
        return float(losses.mean())


class GenerativeRescorer(WordPieceRescorer):
    """Rescores candidates by the log-probabilities of generated names."""

    evidence = "generated"
    training = GenerativeTraining
    layer_name = "generator"
    prefix = "seq2seq."

    def __init__(self, model: Model[Any, Any]) -> None:
        super().__init__(model)
        self._cache = Cache()

    @property
    def pieces(self) -> MarkedPieces:
        return self.contextual_layer.attrs["pieces"]

    def trie(self, generator: CandidateGenerator) -> NameTrie:
        """Return the trie of the names in the pool (in training) or in the knowledge base.

        RAISES BioelError: The same errors as `open_trie`.
        """
        from spacy_bioel.plugins.contextual.constrained_decoding import build_trie, open_trie

        kb, pool, pieces = generator.kb, generator.state.pool, self.pieces
        if pool is not None:
            make = partial(build_trie, kb, pieces.for_names, rows=pool.rows)
        elif needs_no_folder(kb) or isinstance(kb, JoinedKnowledgeBase):
            make = partial(build_trie, kb, pieces.for_names)
        else:
            make = partial(open_trie, kb, fingerprint=pieces.fingerprint)
        return self._cache.get("trie", (pieces.fingerprint, kb, pool), make)

    def encode_kb(self, kb: KnowledgeBase) -> None:
        """Write the trie for a large knowledge base. Warns [W281] if the trie omits names."""
        if not self.is_ready:
            return
        from spacy_bioel.plugins.contextual.constrained_decoding import build_trie, write_trie

        if needs_no_folder(kb) or kb.path is None:
            trie = build_trie(kb, self.pieces.for_names)
        else:
            trie = write_trie(kb, self.pieces.for_names, fingerprint=self.pieces.fingerprint)
        if trie.left_out:
            counts = {"n": trie.left_out, "of": kb.n_names, "nameless": trie.nameless}
            warnings.warn(ContextualWarnings.W281.format(path=kb.where, **counts), stacklevel=2)

    def score(self, generator: CandidateGenerator, batch: Batch) -> PairScores:
        """Score the string candidates and the concepts of the generated names.

        If several concepts share a generated name, all are proposed, and string scores decide.
        """
        kb = generator.kb
        owner, generated, score = self.generate(generator, batch)
        generated_pairs = owner * len(kb) + generated

        def pair_scores(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
            index, is_generated = find_sorted(generated_pairs, mention * len(kb) + concept)
            scores = np.full(len(index), _MIN_SCORE)
            scores[is_generated] = score[index[is_generated]]
            return scores

        return rescore_pairs(
            *(kb, batch.candidates, pair_scores, owner, generated),
            temperature=_SCORE_TEMPERATURE,
            evidence=self.evidence,
            evidence_for_all=False,
        )

    def generate(
        self, generator: CandidateGenerator, batch: Batch
    ) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
        """Generate names for mentions, and return the resulting concepts that the labels allow.

        Warns [W280] about truncated mentions.
        RETURNS (tuple): Number of the mention, concept row, and score: the logarithm of the sum of
            exp(mean log-probability) over the names of the concept, at least _MIN_SCORE. Sorted by
            mention and concept. Shape (n,).
        """
        from spacy_bioel.plugins.contextual.constrained_decoding import generate_names

        kb, trie, pieces = generator.kb, self.trie(generator), self.pieces
        marked = mark_mentions(batch.spans, batch.strings, context=pieces.max_pieces)
        names, n_cut = generate_names(self.contextual_layer, trie, marked)
        if n_cut:
            counts = {"n": n_cut, "of": len(marked), "room": pieces.room}
            warnings.warn(ContextualWarnings.W280.format(**counts), stacklevel=2)
        indptr, rows = trie.names_of(names.leaf)
        name_index = np.repeat(np.arange(len(names.leaf)), np.diff(indptr))
        indptr, concept, _ = kb.concepts_of_names(rows)
        name_index = np.repeat(name_index, np.diff(indptr))
        # Count a concept only once if several of its name rows are at the same leaf.
        keys = np.unique(name_index * len(kb) + concept)
        name_index, concept = keys // len(kb), keys % len(kb)
        owner = names.mention[name_index]
        is_allowed = generator.allowed(concept, batch.labels, owner)
        pairs = (owner * len(kb) + concept)[is_allowed]
        probability = np.exp(names.score[name_index][is_allowed].astype(np.float64))
        pairs, pair_index = np.unique(pairs, return_inverse=True)
        total = np.bincount(pair_index, probability, len(pairs))
        score = np.maximum(np.log(np.maximum(total, np.exp(_MIN_SCORE))), _MIN_SCORE)
        return pairs // len(kb), pairs % len(kb), score
