"""Pairs of a mention in its context and a candidate, as word pieces for a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer


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
