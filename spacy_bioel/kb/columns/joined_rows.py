"""Rows of several knowledge bases as rows of one: strings stay where they are, numbers are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.checks import RawFile
from spacy_bioel.kb.columns.files import IntArray, StringColumn, offsets_of
from spacy_bioel.kb.columns.lookups import Strings
from spacy_bioel.kb.columns.ragged import KeyArray

Found = tuple[IntArray, NDArray[np.float32]]


class JoinedStrings:
    """Strings of several columns, each different one with a row of its own.

    columns (Sequence): One of each knowledge base.
    keys (Sequence[KeyArray]): Of each column, the key of each of its rows.
    same_form (Callable): The form in which strings of equal keys are compared.

    rows (list): Of each column, the joined row of each of its rows.
    keys, key_rows (NDArray): Sorted keys of all joined rows, and the row of each.
    """

    def __init__(
        self,
        columns: Sequence[Strings],
        keys: Sequence[KeyArray],
        *,
        same_form: Callable[[list[str]], list[str]],
    ) -> None:
        self._columns = columns
        self.rows: list[NDArray[np.int32]] = []
        self._part = np.zeros(0, np.int16)  # of each joined row: its column, and its row there
        self._local = np.zeros(0, np.int32)
        self.keys = np.zeros(0, np.uint64)
        self.key_rows = np.zeros(0, np.int32)
        for column, of_rows in zip(columns, keys, strict=True):
            self._add(column, of_rows, same_form)

    def _add(
        self, column: Strings, keys: KeyArray, same_form: Callable[[list[str]], list[str]]
    ) -> None:
        rows = np.full(len(keys), -1, np.int32)
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = np.flatnonzero(self.keys[at] == keys)
            known_rows = self.key_rows[at[known]]
            # Keys are hashes: strings are compared too.
            is_same = _are_same(self.take(known_rows), column.take(known), same_form)
            rows[known[is_same]] = known_rows[is_same]
        new = np.flatnonzero(rows < 0)
        rows[new] = len(self) + np.arange(len(new))
        part = np.full(len(new), len(self.rows), np.int16)
        self._part = np.append(self._part, part)
        self._local = np.append(self._local, new.astype(np.int32))
        self.rows.append(rows)
        all_keys = np.append(self.keys, keys[new])
        all_rows = np.append(self.key_rows, rows[new])
        order = np.argsort(all_keys, kind="stable")
        self.keys, self.key_rows = all_keys[order], all_rows[order]

    def beside(self, columns: Sequence[Strings]) -> JoinedStrings:
        """Other strings of the same rows."""
        other = copy(self)
        other._columns = columns
        return other

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(row)
        number, local = self.origin(row)
        return self._columns[number][local]

    def origin(self, row: int) -> tuple[int, int]:
        """Number of the first column that has a joined row, and the row there."""
        return int(self._part[row]), int(self._local[row])

    def __iter__(self) -> Iterator[str]:
        for number, column in enumerate(self._columns):
            yield from column.take(self._local[self._part == number])

    def take(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and rows.min() < 0:
            raise IndexError(int(rows.min()))
        taken = np.empty(len(rows), dtype=object)
        for number, at, local in self.local(rows):
            if len(at):
                taken[at] = self._columns[number].take(local)
        strings: list[str] = taken.tolist()
        return strings

    def local(self, rows: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """For each column, its number, the places in `rows` of its rows, and these rows in it."""
        parts = self._part[rows]
        for number in range(len(self._columns)):
            at = np.flatnonzero(parts == number)
            yield number, at, self._local[rows[at]].astype(np.int64)

    def raw(self) -> tuple[RawFile, NDArray[np.uint64]]:
        return string_column(self).raw()


def string_column(strings: Iterable[str]) -> StringColumn:
    """A column of strings in memory."""
    lines = [f"{string}\n".encode() for string in strings]
    blob = np.frombuffer(b"".join(lines), dtype=np.uint8)
    return StringColumn(blob, offsets_of([len(line) for line in lines]).astype(np.uint64))


def _are_same(
    there: list[str], here: list[str], same_form: Callable[[list[str]], list[str]]
) -> NDArray[np.bool_]:
    """Whether strings are the same in the form that counts; most are as they are."""
    is_same = np.array([a == b for a, b in zip(there, here, strict=True)], dtype=bool)
    others = np.flatnonzero(~is_same).tolist()
    forms = (same_form([strings[i] for i in others]) for strings in (there, here))
    is_same[others] = [a == b for a, b in zip(*forms, strict=True)]
    return is_same


class JoinedSearch:
    """A search in each of several knowledge bases, whose results are one list.

    searches (Sequence): With `search(queries, k) -> (rows, scores)`; -1 stands for no row.
    rows (Sequence[NDArray]): Of each, the joined row of each of its rows.
    nothing (float): Score of no row.
    """

    def __init__(
        self, searches: Sequence[Any], rows: Sequence[NDArray[Any]], *, nothing: float
    ) -> None:
        self._searches = searches
        self._rows = rows
        self._nothing = nothing

    def search(self, queries: Any, k: int) -> Found:
        """The k best rows for each query, best first, lower row first among equals."""
        found = [search.search(queries, k) for search in self._searches]
        pairs = zip(found, self._rows, strict=True)
        rows = np.concatenate([np.where(r >= 0, new[r], -1) for (r, _), new in pairs], axis=1)
        scores = np.concatenate([scores for _, scores in found], axis=1)
        rows, scores = _in_order(rows, scores)
        # A name of two knowledge bases is found by both searches, and stays where it is better.
        for at in range(1, rows.shape[1]):
            again = (rows[:, :at] == rows[:, at : at + 1]).any(axis=1)
            rows[again, at] = -1
        rows, scores = _in_order(rows, scores)
        return rows[:, :k], np.where(rows >= 0, scores, np.float32(self._nothing))[:, :k]

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Inverse document frequency of 3-grams: the mean over the knowledge bases."""
        mean: NDArray[np.float64] = np.mean([s.rarity(codes) for s in self._searches], axis=0)
        return mean


def _in_order(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> Found:
    """Rows of each query by score; -1 last."""
    order = np.lexsort((rows, -np.where(rows >= 0, scores, -np.inf)))
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
