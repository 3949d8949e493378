"""Mentions marked in their contexts, and their pairs with candidates, as word pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import Tokenizer

from spacy_bioel.models.name_encoder import Pieces
from spacy_bioel.text.normalize import NORMALIZER_VERSION

IntArray = NDArray[np.int64]
# Pieces before and after a mention.
MARKERS = ("[START]", "[END]")
_IS = " is"


class Marked(NamedTuple):
    """A mention between the texts before and after it, normalised."""

    left: str
    mention: str
    right: str


class Pair(NamedTuple):
    """A mention in its context, and the name of one of its candidates."""

    left: str
    mention: str
    right: str
    candidate: str


# Scores of names written about mentions.
Generator = Model[tuple[Sequence[Marked], Sequence[str]], Floats1d]


@dataclass(frozen=True)
class MarkedPieces:
    """Encodes mentions as left [START] mention [END] right, and the decoder's part of them.

    A mention that is longer than the room loses its end; `_in_context` cuts the context.

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
            text = _in_context(pieces[left], marked, pieces[right], self.room + len(MARKERS))
            rows.append([*self.prefix, *text, *self.suffix])
        return Pieces.of(rows)

    def are_cut(self, mentions: Sequence[Marked]) -> NDArray[np.bool_]:
        """Whether mentions are longer than the room. Shape (n,)."""
        pieces = self._pieces(mention.mention for mention in mentions)
        return np.array([len(pieces[m.mention]) > self.room for m in mentions], dtype=bool)

    def prompts(self, mentions: Sequence[Marked]) -> list[list[int]]:
        """Beginnings of what the decoder writes, one for each mention."""
        if not self.prompt:
            return [[self.start] for _ in mentions]
        pieces = self._pieces(mention.mention for mention in mentions)
        verb = self.tokenizer.encode(_IS, add_special_tokens=False).ids
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
        return Pieces.of(rows), np.array([len(p) for p in prompts], dtype=np.int64)

    def _pieces(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Pieces of texts, as those of words within a sentence: after a space."""
        return _pieces_of(self.tokenizer, texts, before=" ")


@dataclass(frozen=True)
class PairPieces:
    """Encodes pairs as [CLS] left [Ms] mention [Me] right [SEP] candidate [SEP].

    The context is cut first. If mention and candidate alone exceed the room, `share` splits it
    between them, and they lose their ends.

    tokenizer (Tokenizer): Without padding or truncation.
    prefix, suffix (list[int]): Ids of the special pieces before and after a text.
    markers (tuple[int, int]): Ids of the marker pieces before and after the mention.
    max_pieces (int): Maximum length of a pair, special pieces and markers included.
    """

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    markers: tuple[int, int]
    max_pieces: int

    @property
    def room(self) -> int:
        """Number of pieces available to the texts of a pair."""
        return self.max_pieces - len(self.prefix) - 2 * len(self.suffix) - len(self.markers)

    def __call__(self, pairs: Sequence[Pair]) -> tuple[IntArray, IntArray, IntArray]:
        """Piece ids of all pairs, concatenated, and the segment of each, 0 for the context and
        1 for the candidate, shape (n_pieces,); the length of each pair, shape (n_pairs,)."""
        # Contexts and candidates repeat from pair to pair: each text is tokenised once.
        pieces = _pieces_of(self.tokenizer, (text for pair in pairs for text in pair))
        parts = []
        for left, mention, right, candidate in (map(pieces.__getitem__, pair) for pair in pairs):
            n, n_candidate = share(self.room, len(mention), len(candidate))
            marked = [self.markers[0], *mention[:n], self.markers[1]]
            room = self.room - n_candidate + len(self.markers)
            text = _in_context(left, marked, right, room)
            parts.append([*self.prefix, *text, *self.suffix])
            parts.append([*candidate[:n_candidate], *self.suffix])
        ids, lengths = Pieces.of(parts)
        segments = np.repeat(np.arange(len(parts)) % 2, lengths)
        return ids, segments, lengths.reshape(-1, 2).sum(axis=1)


def _pieces_of(
    tokenizer: Tokenizer, texts: Iterable[str], before: str = ""
) -> dict[str, list[int]]:
    different = list(dict.fromkeys(texts))
    found = tokenizer.encode_batch_fast(
        [before + text if text else "" for text in different], add_special_tokens=False
    )
    return {text: e.ids for text, e in zip(different, found, strict=True)}


def _in_context(left: list[int], marked: list[int], right: list[int], room: int) -> list[int]:
    """A marked mention with as much context as there is room for: the pieces nearest to it."""
    n_left, n_right = share(room - len(marked), len(left), len(right))
    return [*left[len(left) - n_left :], *marked, *right[:n_right]]


def share(room: int, first: int, second: int) -> tuple[int, int]:
    """Split `room` between two lengths: half each, and the unused part of a half to the other."""
    kept = min(first, max(room // 2, room - second))
    return kept, min(second, room - kept)
