"""Pairs of a mention in its context and a candidate, as word pieces of a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer


class Pair(NamedTuple):
    """A mention and one of its candidates.

    left, mention, right (str): Text before the mention, the mention, and text after it.
    candidate (str): Name of the candidate.
    """

    left: str
    mention: str
    right: str
    candidate: str


@dataclass(frozen=True)
class PairPieces:
    """From pairs to [CLS] left [Ms] mention [Me] right [SEP] candidate [SEP].

    Mention and candidate are kept whole. If they alone are too long, the longer one loses its end
    until both are equally long, and then both do. What they leave is shared by left and right
    equally, but for what one of them does not need; the pieces next to the mention are kept.

    tokenizer (Tokenizer): Without padding or truncation.
    prefix, suffix (list[int]): Ids of the special pieces before and after a text.
    markers (tuple[int, int]): Ids of the pieces around the mention.
    max_pieces (int): Pieces of a pair, special ones and markers included.
    """

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    markers: tuple[int, int]
    max_pieces: int

    @property
    def room(self) -> int:
        """Pieces that are left to the texts of a pair."""
        return self.max_pieces - len(self.prefix) - 2 * len(self.suffix) - len(self.markers)

    def __call__(
        self, pairs: Sequence[Pair]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pieces of all pairs, one pair after another.

        RETURNS (tuple): Piece ids, shape (n_pieces,); the segment of each, 1 from the candidate
            on, shape (n_pieces,); how many pieces each pair has, shape (n_pairs,).
        """
        # A mention's context comes with each of its candidates, and a candidate with many mentions.
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
    """How much of two lengths fits into `room`: half each, and what one does not need is for the
    other."""
    kept = min(first, max(room // 2, room - second))
    return kept, min(second, room - kept)
