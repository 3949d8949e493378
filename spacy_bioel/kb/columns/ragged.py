"""Columns of several values a row, and 64-bit keys of normalised names.

The key of a name is a polynomial in the hashes of its words. The keys of all spans of a document
therefore follow from its words by one vectorised recurrence, without building any string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.columns.checks import Origin
from spacy_bioel.kb.columns.files import IntArray, entries_of

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits
_MASK = (1 << 64) - 1

KeyArray = NDArray[np.uint64]


@lru_cache(maxsize=1 << 18)
def word_key(word: str) -> int:
    """Hash one normalised word to 64 bits, the same on every machine and in every run."""
    return int.from_bytes(
        blake2b(word.encode("utf8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def name_key(normalized: str) -> int:
    """Key of a name that `normalize_name` returned; 0 for the empty name."""
    key = 0
    for word in normalized.split():
        key = (key * _BASE + word_key(word)) & _MASK
    return key


def name_keys(normalized: Iterable[str]) -> KeyArray:
    """Keys of many normalised names. Shape (n_names,)."""
    return np.fromiter((name_key(name) for name in normalized), dtype=np.uint64)


def span_keys(tokens: Sequence[str], max_width: int) -> KeyArray:
    """Keys of every span of up to `max_width` tokens.

    tokens (Sequence[str]): Normalised tokens; a token may hold no word ("") or several.
    max_width (int): Longest span, in tokens.
    RETURNS (KeyArray): keys[i, w] is the key of tokens[i : i + w + 1]; 0 if the span leaves the
        text or has no word. Shape (n_tokens, max_width).
    """
    n = len(tokens)
    keys = np.zeros((n, max_width), dtype=np.uint64)
    if n == 0:
        return keys
    # Tokens repeat, so each is hashed once. A token maps the key of the tokens before it:
    # key -> key * factor + own.
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=n)
    own = name_keys(numbers)[number]
    n_words = np.array([token.count(" ") + 1 if token else 0 for token in numbers])
    powers = np.array([pow(_BASE, k, 1 << 64) for k in range(n_words.max() + 1)], dtype=np.uint64)
    factor = powers[n_words][number]
    keys[:, 0] = own
    for width in range(1, min(max_width, n)):
        keys[: n - width, width] = keys[: n - width, width - 1] * factor[width:] + own[width:]
    return keys


_NEAR = np.arange(-1, 3)  # the two offsets of a row, and one more on each side


class Ragged:
    """Rows of values that are themselves rows of another column.

    offsets (IntArray): Start of the values of each row, and end of the last. Shape (n_rows + 1,).
    values (NDArray[int32]): Shape (n_values,).
    below (int): Upper bound of the values, exclusive.
    least (int): Minimum number of values of a row.
    origins (tuple[Origin, Origin]): Files of offsets and of values, for messages.
    RAISES BioelError: [B211] when the first or the last offset is wrong. Methods raise it too,
        when they read damaged values.
    """

    def __init__(
        self,
        offsets: IntArray,
        values: NDArray[np.int32],
        *,
        below: int,
        least: int,
        origins: tuple[Origin, Origin],
    ) -> None:
        self._offsets, self._values = offsets, values
        self._below, self._least = below, least
        self._of_offsets, self._of_values = origins
        self._of_offsets.check_ends(offsets, end=len(values))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> IntArray:
        """The values of one row. Shape (n_values_of_row,). RAISES IndexError: No such row."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        near = self._offsets[max(row - 1, 0) : row + 3].tolist()
        start, end = near[int(row > 0) :][:2]
        if near == sorted(near) and 0 <= start <= end - self._least and end <= len(self._values):
            return self._checked(self._values[start:end])
        raise self._wrong(near)

    def gather(self, rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """Find the positions of the values of many rows at once; see `files.gather`."""
        rows = np.asarray(rows, dtype=np.int64)
        known = rows >= 0
        bounds = self._bounds(np.where(known, rows, 0))
        return entries_of(bounds[:, 0], np.where(known, bounds[:, 1] - bounds[:, 0], 0))

    def at(self, positions: IntArray) -> IntArray:
        """Values by their positions. Any shape; returns the same."""
        return self._checked(self._values[positions])

    def first(self, rows: IntArray) -> IntArray:
        """First value of each row, none of which may be empty. Any shape; returns the same."""
        rows = np.asarray(rows, dtype=np.int64)
        return self.at(self._bounds(rows.ravel())[:, 0].reshape(rows.shape))

    @cached_property
    def offsets(self) -> IntArray:
        """All offsets, for work on all rows; checked on first access."""
        self._of_offsets.check_offsets(self._offsets, least=self._least, end=len(self._values))
        return self._offsets

    @cached_property
    def values(self) -> NDArray[np.int32]:
        """All values, for work on all rows; checked on first access."""
        return self._of_values.rows(self._values, below=self._below)

    def _checked(self, values: NDArray[np.int32]) -> IntArray:
        return self._of_values.rows(values, below=self._below).astype(np.int64)

    def _bounds(self, rows: IntArray) -> IntArray:
        """Start and end of non-negative rows. Shape (n, 2). RAISES IndexError: No such row."""
        if rows.size and int(rows.view(np.uint64).max()) >= len(self):
            raise IndexError(f"a row of {len(self)} is not there")
        # Compared with the offsets on both sides too, which shows nearly all damage.
        near = self._offsets.take(rows[:, None] + _NEAR, mode="clip")
        steps = np.diff(near)
        is_bad = (steps < 0).any(axis=1) | (steps[:, 1] < self._least)
        if is_bad.any():
            raise self._wrong(near[np.argmax(is_bad)].tolist())
        self._of_offsets.rows(near, below=len(self._values) + 1)
        return near[:, 1:3]

    def _wrong(self, found: list[int]) -> BioelError:
        expected = f"offsets that grow, by {self._least} or more, to {len(self._values)}"
        return self._of_offsets.damaged(expected=expected, found=found)
