"""64-bit keys of normalised names, and strings of several columns that are joined by their keys.

The key of a name is a polynomial in the hashes of its words. The keys of all spans of a document
therefore follow from its words by one vectorised recurrence, without building any string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.arrays import IntArray, RawFile, SortedKeys, StringColumn, offsets_of

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits
_MASK = (1 << 64) - 1

KeyArray = NDArray[np.uint64]
SameForm = Callable[[list[str]], list[str]]


@lru_cache(maxsize=1 << 18)
def word_key(word: str) -> int:
    """Hash one normalised word to 64 bits, the same on every machine and in every run."""
    digest = blake2b(word.encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def word_keys(words: Iterable[str]) -> KeyArray:
    """Keys of many words, or of ids. Shape (n_words,)."""
    return np.fromiter(map(word_key, words), dtype=np.uint64)


def name_key(normalized: str) -> int:
    """Key of a name that `normalize_name` returned; 0 for the empty name."""
    key = 0
    for word in normalized.split():
        key = (key * _BASE + word_key(word)) & _MASK
    return key


# Tokens repeat. Bounded, so that a service does not grow.
_token_key = lru_cache(maxsize=1 << 17)(name_key)


def name_keys(normalized: Iterable[str]) -> KeyArray:
    """Keys of many normalised names. Shape (n_names,)."""
    return np.fromiter(map(name_key, normalized), dtype=np.uint64)


def span_keys(tokens: Sequence[str], max_width: int) -> KeyArray:
    """Keys of every span of up to `max_width` tokens.

    tokens (Sequence[str]): Normalised tokens; a token may hold no word ("") or several.
    RETURNS (KeyArray): keys[i, w] is the key of tokens[i : i + w + 1]; 0 if the span leaves the
        text or has no word. Shape (n_tokens, max_width).
    """
    n = len(tokens)
    keys = np.zeros((n, max_width), dtype=np.uint64)
    if n == 0:
        return keys
    # A token maps the key of the tokens before it: key -> key * factor + own.
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=n)
    own = np.fromiter(map(_token_key, numbers), dtype=np.uint64)[number]
    n_words = np.array([token.count(" ") + 1 if token else 0 for token in numbers])
    powers = np.array([pow(_BASE, k, 1 << 64) for k in range(n_words.max() + 1)], dtype=np.uint64)
    factor = powers[n_words][number]
    keys[:, 0] = own
    for width in range(1, min(max_width, n)):
        keys[: n - width, width] = keys[: n - width, width - 1] * factor[width:] + own[width:]
    return keys


class JoinedStrings(StringColumn):
    """Strings of several columns, each different one with a row of its own.

    columns (Sequence[StringColumn]): One of each knowledge base.
    part, row (NDArray): Number of the column of each joined row, and the row there. Shape (n,).
    """

    def __init__(
        self, columns: Sequence[StringColumn], part: NDArray[np.int16], row: NDArray[np.int32]
    ) -> None:
        self._columns, self._part, self._row = columns, part, row

    def __len__(self) -> int:
        return len(self._part)

    def _read(self, rows: IntArray) -> list[str]:
        taken = np.empty(len(rows), dtype=object)
        for number, at, own in self.local(rows):
            taken[at] = self._columns[number].take(own)
        strings: list[str] = taken.tolist()
        return strings

    def local(self, rows: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """For each column, its number, the places in `rows` of its rows, and these rows in it."""
        parts = self._part[rows]
        for number in range(len(self._columns)):
            if len(at := np.flatnonzero(parts == number)):
                yield number, at, self._row[rows[at]].astype(np.int64)

    def raw(self) -> tuple[RawFile, NDArray[np.uint64]]:
        return string_column(self).raw()


def join_strings(
    columns: Sequence[StringColumn], by_key: Sequence[SortedKeys], *, same_form: SameForm
) -> tuple[JoinedStrings, list[NDArray[np.int32]], SortedKeys]:
    """Number the different strings of several columns, whose rows `by_key` has.

    same_form (Callable): The form in which strings of equal keys are compared.
    RETURNS (tuple): The strings; of each column, the joined row of each of its rows; and the
        joined rows by their keys.
    """
    strings = JoinedStrings(columns, np.zeros(0, np.int16), np.zeros(0, np.int32))
    joined_keys = np.zeros(0, np.uint64)
    rows_of: list[NDArray[np.int32]] = []
    for number, (column, own) in enumerate(zip(columns, by_key, strict=True)):
        keys = np.empty(len(own.keys), dtype=np.uint64)
        keys[own.rows] = own.keys
        rows = SortedKeys.of(joined_keys).search(keys)
        known = np.flatnonzero(rows >= 0)
        # Keys are hashes: strings are compared too.
        is_same = _are_same(strings.take(rows[known]), column.take(known), same_form)
        rows[known[~is_same]] = -1
        new = np.flatnonzero(rows < 0)
        rows[new] = len(strings) + np.arange(len(new))
        rows_of.append(rows.astype(np.int32))
        part = np.append(strings._part, np.full(len(new), number, np.int16))
        strings = JoinedStrings(columns, part, np.append(strings._row, new.astype(np.int32)))
        joined_keys = np.append(joined_keys, keys[new])
    return strings, rows_of, SortedKeys.of(joined_keys)


def _are_same(there: list[str], here: list[str], same_form: SameForm) -> NDArray[np.bool_]:
    """Whether strings are the same in the form that counts; most are as they are."""
    is_same = np.array([a == b for a, b in zip(there, here, strict=True)], dtype=bool)
    others = np.flatnonzero(~is_same).tolist()
    forms = (same_form([strings[i] for i in others]) for strings in (there, here))
    is_same[others] = [a == b for a, b in zip(*forms, strict=True)]
    return is_same


def string_column(strings: Sequence[str] | StringColumn) -> StringColumn:
    """A column of strings in memory."""
    lines = [f"{string}\n".encode() for string in strings]
    blob = np.frombuffer(b"".join(lines), dtype=np.uint8)
    return StringColumn(blob, offsets_of([len(line) for line in lines]).astype(np.uint64))
