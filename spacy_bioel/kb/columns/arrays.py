"""Columns over arrays that may be mapped: strings, ragged rows and sorted keys.

Large files are not read when they are opened: each batch that is read is checked, for the order of
offsets, the range of rows and the ends of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors

IntArray = NDArray[np.int64]
RawFile = NDArray[np.uint8]
Rows = TypeVar("Rows", bound=NDArray[np.integer])

_UNSIGNED: dict[int, type[np.unsignedinteger]] = {4: np.uint32, 8: np.uint64}
_NEAR = np.arange(-1, 3)  # the two offsets of a row, and one more on each side
LINE_END = ord("\n")
_BLOCK = 1 << 12  # strings per block when all are read


@dataclass(frozen=True, slots=True)
class Origin:
    """Folder and file that an array is from, for messages."""

    where: str = "memory"
    file: str = "an array"

    def damaged(self, *, expected: str, found: object) -> BioelError:
        """Error [B211] for the caller to raise."""
        return BioelError(
            Errors.B211.format(path=self.where, file=self.file, expected=expected, found=found)
        )

    def rows(self, values: Rows, *, below: int) -> Rows:
        """Return values that are rows from 0 to `below` - 1. RAISES BioelError: [B211]."""
        # As unsigned integers, negative numbers are the largest: one pass checks both bounds.
        unsigned = values.view(_UNSIGNED[values.itemsize])
        if values.size and int(unsigned.max()) >= below:
            wrong = values[unsigned >= below].flat[0]
            raise self.damaged(expected=f"rows from 0 to {below - 1}", found=wrong)
        return values

    def ends(self, offsets: NDArray[Any], *, end: int) -> NDArray[Any]:
        """Return offsets that go from 0 to `end`. RAISES BioelError: [B211]."""
        found = (int(offsets[0]), int(offsets[-1])) if len(offsets) else "none"
        if found != (0, end):
            raise self.damaged(expected=f"offsets from 0 to {end}", found=found)
        return offsets

    def growing(self, offsets: NDArray[Any], *, least: int) -> NDArray[Any]:
        """Return offsets that grow by `least` or more. RAISES BioelError: [B211]."""
        if (np.diff(offsets.view(np.int64)) < least).any():
            raise self.damaged(expected=f"offsets that grow by {least} or more", found="others")
        return offsets


class StringColumn:
    """Strings in one block of newline-terminated UTF-8, with the start of each, and the last end.

    RAISES BioelError: [B211] when the first or the last offset is wrong. Reading raises it too,
        when a string is not exactly one line of UTF-8.
    """

    def __init__(
        self, blob: RawFile, offsets: NDArray[np.uint64], origin: Origin | None = None
    ) -> None:
        self._blob, self._bytes = blob, memoryview(blob)  # type: ignore[arg-type]
        self._origin = origin or Origin()
        self._offsets = self._origin.ends(offsets, end=len(blob))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def raw(self) -> tuple[RawFile, NDArray[np.uint64]]:
        """All bytes and all offsets, for work on all strings; the offsets are checked."""
        return self._blob, self._origin.growing(self._offsets, least=1)

    def __getitem__(self, row: int) -> str:
        return self.take([row])[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self.take(np.arange(start, min(start + _BLOCK, len(self))))

    def take(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        """Strings of many rows, in the order of `rows`. rows: shape (n,)."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and rows.min() < 0:
            raise IndexError(int(rows.min()))  # row -1 means "unknown", not the last string
        return self._read(rows)

    def _read(self, rows: IntArray) -> list[str]:
        starts, ends = self._offsets[rows], self._offsets[rows + 1]
        if self._are_lines(starts, ends):
            pairs = zip(starts.tolist(), (ends - 1).tolist(), strict=True)
            with suppress(UnicodeDecodeError):
                strings = [str(self._bytes[start:end], "utf8") for start, end in pairs]
                if "\n" not in "".join(strings):
                    return strings
        found = f"other bytes from {starts.min()} to {ends.max()}"
        raise self._origin.damaged(expected="lines of UTF-8", found=found)

    def _are_lines(self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> bool:
        """Whether each string begins after a line end, and ends with one."""
        if not ((starts < ends).all() and (ends <= len(self._blob)).all()):
            return False
        are_after = (self._blob[np.maximum(starts, 1) - 1] == LINE_END) | (starts == 0)
        return bool(are_after.all() and (self._blob[ends - 1] == LINE_END).all())


class SortedKeys:
    """Binary search from ascending 64-bit keys to rows, which ascend among equal keys.

    below (int): Upper bound of the rows, exclusive.
    """

    def __init__(
        self,
        keys: NDArray[np.uint64],
        rows: NDArray[np.int32],
        *,
        below: int,
        origin: Origin | None = None,
    ) -> None:
        self.keys = keys
        self._rows, self._below = rows, below
        self._origin = origin or Origin()

    @classmethod
    def of(cls, keys: NDArray[np.uint64]) -> SortedKeys:
        """Sort the keys of the rows 0, 1, ..."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order.astype(np.int32), below=len(keys))

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """Row of each key; checked on first access."""
        return self._origin.rows(self._rows, below=self._below)

    def search(self, keys: NDArray[np.uint64]) -> IntArray:
        """Find the first row of each key, -1 if there is none. Any shape; returns the same."""
        keys = np.asarray(keys, dtype=np.uint64)
        rows = np.full(keys.shape, -1, dtype=np.int64)
        if len(self.keys):
            positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            found = self.keys[positions] == keys
            rows[found] = self._origin.rows(self._rows[positions[found]], below=self._below)
        return rows

    def find(
        self,
        keys: NDArray[np.uint64],
        strings: Sequence[str],
        read: Callable[[IntArray], list[str]],
    ) -> IntArray:
        """Find the row of each key, -1 if there is none, comparing strings: hashes may collide.

        read (Callable): Reads the strings of rows, in the form that is compared.
        """
        rows = self.search(keys)
        found = np.flatnonzero(rows >= 0)
        for i, there in zip(found.tolist(), read(rows[found]), strict=True):
            if there != strings[i]:
                start = np.searchsorted(self.keys, keys[i])
                end = np.searchsorted(self.keys, keys[i], side="right")
                others = self._origin.rows(self._rows[start:end], below=self._below)
                at = read(others.astype(np.int64))
                rows[i] = others[at.index(strings[i])] if strings[i] in at else -1
        return rows


class Ragged:
    """Rows of values that are themselves rows of another column.

    offsets (IntArray): Start of the values of each row, and end of the last. Shape (n_rows + 1,).
    below (int): Upper bound of the values, exclusive.
    least (int): Minimum number of values of a row.
    origins (Sequence[Origin]): Of offsets and of values.
    RAISES BioelError: [B211] when the first or the last offset is wrong. Methods raise it too,
        when they read damaged values.
    """

    def __init__(
        self,
        offsets: IntArray,
        values: NDArray[np.int32],
        *,
        below: int,
        least: int = 0,
        origins: Sequence[Origin] = (Origin(), Origin()),
    ) -> None:
        self._of_offsets, self._of_values = origins
        self._offsets = self._of_offsets.ends(offsets, end=len(values))
        self._values, self._below, self._least = values, below, least

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> IntArray:
        """The values of one row. Shape (n_values_of_row,). RAISES IndexError: No such row."""
        [[start, end]] = self._bounds(np.array([row], dtype=np.int64))
        return self.at(slice(start, end))

    def gather(self, rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """Find the positions of the values of many rows at once; see `gather`."""
        rows = np.asarray(rows, dtype=np.int64)
        bounds = self._bounds(np.maximum(rows, 0))
        return entries_of(bounds[:, 0], np.where(rows >= 0, bounds[:, 1] - bounds[:, 0], 0))

    def at(self, positions: IntArray | slice) -> IntArray:
        """Values by their positions. Any shape; returns the same."""
        return self._of_values.rows(self._values[positions], below=self._below).astype(np.int64)

    def first(self, rows: IntArray) -> IntArray:
        """First value of each row, none of which may be empty. Any shape; returns the same."""
        rows = np.asarray(rows, dtype=np.int64)
        return self.at(self._bounds(rows.ravel())[:, 0].reshape(rows.shape))

    @cached_property
    def offsets(self) -> IntArray:
        """All offsets, for work on all rows; checked on first access."""
        return self._of_offsets.growing(self._offsets, least=self._least)

    @cached_property
    def values(self) -> NDArray[np.int32]:
        """All values, for work on all rows; checked on first access."""
        return self._of_values.rows(self._values, below=self._below)

    def _bounds(self, rows: IntArray) -> IntArray:
        """Start and end of rows. Shape (n, 2). RAISES IndexError: No such row."""
        if rows.size and int(rows.view(np.uint64).max()) >= len(self):
            raise IndexError(f"a row of {len(self)} is not there")
        # Compared with the offsets on both sides too, which shows nearly all damage.
        near = self._of_offsets.rows(
            self._offsets.take(rows[:, None] + _NEAR, mode="clip"), below=len(self._values) + 1
        )
        steps = np.diff(near)
        if (steps < 0).any() or (steps[:, 1] < self._least).any():
            expected = f"offsets that grow, by {self._least} or more"
            raise self._of_offsets.damaged(expected=expected, found="others")
        return near[:, 1:3]


def offsets_of(counts: Sequence[int] | NDArray[Any]) -> IntArray:
    """Offsets of consecutive runs of values. counts: shape (n,); returns shape (n + 1,)."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def gather(offsets: NDArray[Any], rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Find the entries of many rows of a ragged (CSR) column at once; negative rows have none.

    RETURNS (tuple): indptr, shape (n + 1,), and positions in the values of the column: rows[i] has
        the positions[indptr[i] : indptr[i + 1]].
    """
    known = np.maximum(np.asarray(rows, dtype=np.int64), 0)
    starts, ends = offsets[known].astype(np.int64), offsets[known + 1].astype(np.int64)
    return entries_of(starts, np.where(rows >= 0, ends - starts, 0))


def entries_of(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of runs of entries, by the first position and the length of each; see `gather`."""
    indptr = offsets_of(counts)
    return indptr, np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])
