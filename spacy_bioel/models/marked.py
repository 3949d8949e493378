"""Mentions marked in their contexts, and their pairs with candidates, as word pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from spacy_bioel.text.normalize import NORMALIZER_VERSION

IntArray = NDArray[np.int64]
# Pieces before and after a mention.
MARKERS = ("[START]", "[END]")
_IS = " is"


class Marked(NamedTuple):
    """A mention in its context, normalised.

    left, mention, right (str): Text before the mention, the mention, and text after it.
    """

    left: str
    mention: str
    right: str


class Pieces(NamedTuple):
    """Rows of word pieces.

    flat (IntArray): Pieces of all rows, concatenated. Shape (n_pieces,).
    lengths (IntArray): Of each row. Shape (n_rows,).
    """

    flat: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Pieces:
        rows = list(rows)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return cls(np.array([i for row in rows for i in row], dtype=np.int64), lengths)


@dataclass(frozen=True)
class MarkedPieces:
    """Encodes mentions as left [START] mention [END] right, and the decoder's part of them.

    The context keeps the pieces that are nearest to the mention, half of the room before it and
    half after it; what one side does not use goes to the other. A mention that is longer than the
    room loses its end.

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
        first, second = (self.tokenizer.token_to_id(marker) for marker in MARKERS)
        assert first is not None and second is not None
        return first, second

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
        before, after = self.markers
        rows = []
        for left, mention, right in mentions:
            middle = pieces[mention][: self.room]
            lefts, rights = pieces[left], pieces[right]
            n_left, n_right = share(self.room - len(middle), len(lefts), len(rights))
            context = [*lefts[len(lefts) - n_left :], before, *middle, after, *rights[:n_right]]
            rows.append([*self.prefix, *context, *self.suffix])
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

    def names(self, names: Sequence[str]) -> list[list[int]]:
        """Pieces of normalised names, and the end piece."""
        pieces = self._pieces(names)
        return [[*pieces[name][: self.longest], self.end] for name in names]

    def writable(self, names: Sequence[str]) -> list[list[int] | None]:
        """Pieces of normalised names, and the end piece; None where a piece is unknown, or the name
        is empty or too long. A `kb.words.trie.ToPieces`."""
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
        prompts = self.prompts(mentions)
        rows = (p + name for p, name in zip(prompts, self.names(names), strict=True))
        return Pieces.of(rows), np.array([len(p) for p in prompts], dtype=np.int64)

    def _pieces(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Pieces of different texts, as those of words within a sentence: after a space."""
        different = list(dict.fromkeys(texts))
        found = self.tokenizer.encode_batch_fast(
            [f" {text}" if text else "" for text in different], add_special_tokens=False
        )
        return {text: e.ids for text, e in zip(different, found, strict=True)}


def add_markers(tokenizer: Tokenizer) -> None:
    """Add the pieces MARKERS, unless they are there."""
    tokenizer.add_special_tokens([AddedToken(marker, special=True) for marker in MARKERS])


class Pair(NamedTuple):
    """Mention in its context, and one of its candidates.

    left, mention, right (str): Text before the mention, the mention, and text after it.
    candidate (str): Name of the candidate.
    """

    left: str
    mention: str
    right: str
    candidate: str


@dataclass(frozen=True)
class PairPieces:
    """Encodes pairs as [CLS] left [Ms] mention [Me] right [SEP] candidate [SEP].

    The context is cut first. If mention and candidate alone exceed the room, `share` splits it
    between them, and they lose their ends. `share` also splits the remaining room between left and
    right context, which keep the pieces nearest to the mention.

    tokenizer (Tokenizer): A tokenizer without padding or truncation.
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

    def __call__(
        self, pairs: Sequence[Pair]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Encode pairs.

        RETURNS (tuple): Piece ids of all pairs, concatenated, shape (n_pieces,); the segment of
            each piece, 0 for the context and 1 for the candidate, shape (n_pieces,); the length of
            each pair, shape (n_pairs,).
        """
        # Contexts and candidates repeat from pair to pair: each text is tokenised once.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        pieces = {text: found.ids for text, found in zip(texts, encodings, strict=True)}
        parts = [part for pair in pairs for part in self._arrange(*(pieces[t] for t in pair))]
        lengths = np.array([len(part) for part in parts], np.int64)
        ids = np.array([piece for part in parts for piece in part], np.int64)
        segments = np.repeat(np.arange(len(parts)) % 2, lengths)
        return ids, segments, lengths.reshape(-1, 2).sum(axis=1)

    def _arrange(
        self, left: list[int], mention: list[int], right: list[int], candidate: list[int]
    ) -> tuple[list[int], list[int]]:
        """Pieces of segment 0 and of segment 1."""
        n_mention, n_candidate = share(self.room, len(mention), len(candidate))
        n_left, n_right = share(self.room - n_mention - n_candidate, len(left), len(right))
        before = [*self.prefix, *left[len(left) - n_left :]]
        marked = [self.markers[0], *mention[:n_mention], self.markers[1]]
        context = [*before, *marked, *right[:n_right], *self.suffix]
        return context, [*candidate[:n_candidate], *self.suffix]


def share(room: int, first: int, second: int) -> tuple[int, int]:
    """Split `room` between two lengths: half each, and the unused part of a half to the other."""
    kept = min(first, max(room // 2, room - second))
    return kept, min(second, room - kept)
