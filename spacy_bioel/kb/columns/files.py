"""Columns of a knowledge base: arrays and strings that are mapped into memory, never parsed.

A file is a flat array of its bytes, either mapped from a folder or part of a container in memory.
All other modules treat both alike.
"""

from __future__ import annotations

import io
import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import Origin, RawFile, is_file_name, npy_layout

IntArray = NDArray[np.int64]

_LINE_END = ord("\n")
_BLOCK = 1 << 12  # strings per block when all are read
_SHOWN = 40  # bytes of a damaged string in a message
_MAGIC = b"BIOELKB1"
_ALIGN = 64  # alignment of the numbers in .npy files, so that columns in a container keep it


class StringColumn:
    """Strings in one block of newline-terminated UTF-8, with the offset of each.

    blob (RawFile): Bytes of the strings. Shape (n_bytes,).
    offsets (NDArray): Start of each string, and end of the last. Shape (n_strings + 1,).
    origin (Origin): File of the offsets, for messages.
    RAISES BioelError: [B211] when the first or the last offset is wrong. Reading raises it too,
        when a string is not exactly one line of UTF-8.
    """

    def __init__(
        self, blob: RawFile, offsets: NDArray[np.uint64], *, origin: Origin | None = None
    ) -> None:
        self._blob = blob
        self._bytes = memoryview(blob)  # type: ignore[arg-type]
        self._offsets = offsets
        self._origin = origin or Origin()
        self._origin.check_ends(offsets, end=len(blob))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def raw(self) -> tuple[RawFile, NDArray[np.uint64]]:
        """All bytes and all offsets, for work on all strings; the offsets are checked."""
        self._origin.check_offsets(self._offsets, least=1, end=len(self._blob))
        return self._blob, self._offsets

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(row)  # row -1 means "unknown", not the last string
        return self._string(int(self._offsets[row]), int(self._offsets[row + 1]))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self.take(np.arange(start, min(start + _BLOCK, len(self))))

    def take(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        """Strings of many rows, in the order of `rows`. rows: shape (n,)."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and rows.min() < 0:
            raise IndexError(int(rows.min()))
        starts, ends = self._offsets[rows], self._offsets[rows + 1]
        if self._are_lines(starts, ends):
            pairs = zip(starts.tolist(), (ends - 1).tolist(), strict=True)
            with suppress(UnicodeDecodeError):
                strings = [str(self._bytes[start:end], "utf8") for start, end in pairs]
                if "\n" not in "".join(strings):
                    return strings
        return [self[row] for row in rows.tolist()]  # one of which raises

    def _are_lines(self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> bool:
        """Whether each string begins after a line end, and ends with one."""
        if not ((starts < ends).all() and (ends <= len(self._blob)).all()):
            return False
        are_after = (self._blob[np.maximum(starts, 1) - 1] == _LINE_END) | (starts == 0)
        return bool(are_after.all() and (self._blob[ends - 1] == _LINE_END).all())

    def _string(self, start: int, end: int) -> str:
        """Decode one line. RAISES BioelError: [B211] when the bytes are not one line of UTF-8."""
        lines = self._bytes[max(start - 1, 0) : end].tobytes()
        line = lines if start == 0 else lines[1:]
        if line.find(b"\n") == end - start - 1 and (start == 0 or lines[:1] == b"\n"):
            try:
                return str(line[:-1], "utf8")
            except UnicodeDecodeError:
                pass  # `suppress` would double the time of this method
        found = f"{line[:_SHOWN]!r} at {start} to {end}"
        raise self._origin.damaged(expected="one line of UTF-8", found=found)


class SortedKeys:
    """Binary search from 64-bit keys to rows.

    keys (NDArray): Ascending. Shape (n,).
    rows (NDArray): Row of each key; ascending among equal keys. Shape (n,).
    below (int): Upper bound of the rows, exclusive.
    origin (Origin): File of the rows, for messages.
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
        self._rows = rows
        self._below = below
        self._origin = origin or Origin()

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """Row of each key; checked on first access."""
        return self._origin.rows(self._rows, below=self._below)

    def search(self, keys: NDArray[np.uint64]) -> IntArray:
        """Find the first row of each key, -1 if there is none. Any shape; returns the same.

        RAISES BioelError: [B211] when a found row is damaged.
        """
        keys = np.asarray(keys, dtype=np.uint64)
        rows = np.full(keys.shape, -1, dtype=np.int64)
        if len(self.keys) == 0:
            return rows
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
        """Find the row of each key, comparing strings, so that hash collisions do no harm.

        keys (NDArray), strings (Sequence[str]): Strings and their keys. Shape (n,) each.
        read (Callable): Reads the strings of rows, in the form that is compared.
        RETURNS (IntArray): Rows, -1 if there is none. Shape (n,).
        """
        rows = self.search(keys)
        found = np.flatnonzero(rows >= 0)
        for i, there in zip(found.tolist(), read(rows[found]), strict=True):
            if there != strings[i]:
                start = np.searchsorted(self.keys, keys[i])
                end = np.searchsorted(self.keys, keys[i], side="right")
                near = self._origin.rows(self._rows[start + 1 : end], below=self._below)
                others = near.astype(np.int64)
                at = read(others)
                rows[i] = others[at.index(strings[i])] if strings[i] in at else -1
        return rows


def write_strings(folder: Path, name: str, values: Iterable[str]) -> None:
    """Write NAME.txt and NAME.offsets.npy. Strings must not contain newlines.

    RAISES BioelError: [B480] on a lone surrogate.
    """
    sizes = []
    with (folder / f"{name}.txt").open("wb") as stream:
        for value in values:
            try:
                line = value.encode("utf8") + b"\n"
            except UnicodeEncodeError:
                raise BioelError(Errors.B480.format(found=value)) from None
            sizes.append(stream.write(line))
    write_array(folder, f"{name}.offsets", offsets_of(sizes).astype(np.uint64))


def write_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write NAME.npy."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)


def read_array(raw: RawFile) -> NDArray[Any]:
    """View the bytes of a .npy file as its array, without a copy.

    raw (RawFile): The whole file. Shape (n_bytes,).
    RAISES ValueError: When this is not a plain .npy file of the native byte order, or it is
        truncated. Callers add the name of the file.
    """
    dtype, shape, start = npy_layout(raw)
    return raw[start:].view(dtype).reshape(shape)


def npy_bytes(array: NDArray[Any]) -> RawFile:
    """Bytes of an array as a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return np.frombuffer(stream.getbuffer(), dtype=np.uint8)


def offsets_of(counts: Sequence[int] | NDArray[Any]) -> IntArray:
    """Offsets of consecutive runs of values. counts: shape (n,); returns shape (n + 1,)."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def gather(offsets: IntArray, rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Find the entries of many rows of a ragged (CSR) column at once.

    offsets (IntArray): Offsets of the column. Shape (n_column + 1,).
    rows (NDArray): Rows to read; a negative row has no entries. Shape (n,).
    RETURNS (tuple): indptr, shape (n + 1,), and positions in the values of the column, shape
        (n_entries,): rows[i] has the positions[indptr[i] : indptr[i + 1]].
    """
    rows = np.asarray(rows, dtype=np.int64)
    known = rows >= 0
    starts = np.where(known, offsets[np.where(known, rows, 0)], 0)
    return entries_of(starts, np.where(known, offsets[np.where(known, rows + 1, 0)], 0) - starts)


def entries_of(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of runs of entries.

    starts, counts (IntArray): First position and length of each run. Shape (n,) each.
    RETURNS (tuple): indptr and positions, as in `gather`.
    """
    indptr = offsets_of(counts)
    return indptr, np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])


def give_back(*arrays: NDArray[Any]) -> None:
    """Release the pages of mapped arrays from the process; they stay in the page cache.

    Without it the memory of a process grows to the size of the files. Other arrays are ignored.
    """
    for base in arrays:
        while isinstance(base, np.ndarray):
            base = base.base  # type: ignore[assignment]
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def map_folder(folder: Path, names: Iterable[str]) -> dict[str, RawFile]:
    """Map files into memory, read-only. Missing files are left out."""
    files = {}
    for name in names:
        path = folder / name
        try:
            empty = path.stat().st_size == 0  # mmap refuses empty files
            raw = np.zeros(0, np.uint8) if empty else np.memmap(path, dtype=np.uint8, mode="r")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        files[name] = np.asarray(raw)
    return files


def pack(files: Mapping[str, RawFile]) -> bytes:
    """Serialise files to one block of bytes: magic, header length, JSON table, aligned contents."""
    table = json.dumps([[name, int(raw.size)] for name, raw in files.items()]).encode("utf8")
    head = _MAGIC + len(table).to_bytes(8, "little") + table
    pieces = [head, bytes(-len(head) % _ALIGN)]
    for raw in files.values():
        pieces += [memoryview(raw), bytes(-raw.size % _ALIGN)]  # type: ignore[arg-type,list-item]
    return b"".join(pieces)


def unpack(block: bytes) -> dict[str, RawFile]:
    """Deserialise the result of `pack`, without a copy.

    RAISES BioelError: [B025] when the block is not a result of `pack`, or is truncated.
    """
    start = len(_MAGIC) + 8
    if block[: len(_MAGIC)] != _MAGIC:
        raise BioelError(Errors.B025.format(found=repr(bytes(block[:8]))))
    end = start + int.from_bytes(block[len(_MAGIC) : start], "little")
    table = _table_of(block[start:end])
    whole, files, at = np.frombuffer(block, dtype=np.uint8), {}, end + -end % _ALIGN
    for name, size in table:
        if not 0 <= size <= whole.size - at:
            raise BioelError(Errors.B025.format(found=f"{whole.size} bytes, which cuts {name}"))
        files[name] = whole[at : at + size]
        at += size + -size % _ALIGN
    if at != whole.size:
        raise BioelError(Errors.B025.format(found=f"{whole.size} bytes, expected {at}"))
    return files


def _table_of(header: bytes) -> list[tuple[str, int]]:
    """Names and sizes of packed files.

    RAISES BioelError: [B025] when the table is unreadable, or a name leads out of the folder.
    """
    try:
        table = [(name, size) for name, size in json.loads(header)]
    except (ValueError, TypeError, RecursionError):
        raise BioelError(Errors.B025.format(found="a header that is not readable")) from None
    for name, size in table:
        if not is_file_name(name) or type(size) is not int:
            raise BioelError(Errors.B025.format(found=f"a file called {name!r} of size {size!r}"))
    if len(dict(table)) < len(table):
        raise BioelError(Errors.B025.format(found="two files of one name"))
    return table


def write_files(folder: Path, files: Mapping[str, RawFile]) -> None:
    """Write files to a folder, byte by byte."""
    for name, raw in files.items():
        (folder / name).write_bytes(memoryview(raw))  # type: ignore[arg-type]
