"""Quantised unit vectors: 16 bits per number, of which a search reads eight; inner products."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.files import RawFile, give_back
from spacy_bioel.processor import processor_has

FloatArray = NDArray[np.float32]

_MAX = 127
_FIRST_USE = Lock()


class Products:
    """Inner products of queries with int8 rows times their scales, block by block.

    If the processor multiplies int8, queries are rounded to int8 too, which takes a tenth of the
    time. Their own scales are left out, since they do not change the order of rows. Integer
    products are exact, so those of a query do not depend on the other queries.

    Otherwise torch multiplies float32. numpy's BLAS has threads for the whole process, which would
    multiply with those of `processor.one_thread_each`.

    queries (FloatArray): Shape (n_queries, dim).
    block_rows (int): Maximum number of rows of a block.
    """

    def __init__(self, queries: FloatArray, block_rows: int) -> None:
        self._torch = _torch_for_mapped_arrays()
        # The buffers are reused: allocating new pages takes longer than filling them.
        self._found = self._torch.empty(block_rows, len(queries))
        self._whole: Any = None
        if multiplies_bytes():
            largest = np.abs(queries).max(axis=1, keepdims=True)
            queries = np.rint(queries * (_MAX / np.where(largest > 0, largest, np.inf)))
            self._whole = self._torch.empty(self._found.shape, dtype=self._torch.int32)
        rounded = queries.astype(np.float32 if self._whole is None else np.int8)
        self._queries = self._torch.from_numpy(rounded).T

    def __call__(self, codes: NDArray[np.int8], scales: FloatArray) -> FloatArray:
        """Inner products of one block, valid until the next call.

        codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
        scales (FloatArray): Shape (n,).
        RETURNS (FloatArray): Products, each query in its own unit. Shape (n, n_queries).
        """
        torch, found = self._torch, self._found[: len(codes)]
        rows = torch.from_numpy(codes)
        if self._whole is None:
            torch.mm(rows.float(), self._queries, out=found)
        else:
            whole = self._whole[: len(codes)]
            torch._int_mm(rows, self._queries, out=whole)
            found.copy_(whole)
        return found.mul_(torch.from_numpy(scales)[:, None]).numpy()


@cache
def multiplies_bytes() -> bool:
    """Whether the processor reports int8 products; it is not timed, so that runs are repeatable."""
    return processor_has("avx512_vnni", "avx_vnni", "amx_int8")


def _torch_for_mapped_arrays() -> Any:
    with _FIRST_USE:
        return _torch_that_has_warned()


@cache
def _torch_that_has_warned() -> Any:
    """Import PyTorch and trigger its one warning about read-only arrays, which are not written."""
    import torch

    with warnings.catch_warnings():  # changes the whole process, hence the lock
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", dtype=np.int8))
    return torch


IntArray = NDArray[np.int64]
Steps = Sequence[Sequence[float]]  # steps of an approximate search, see `kb.vectors.ann`

BITS = 16  # bits per number; stored vectors with another number are of an earlier version
_FINE = 256  # values of the fine part of a number
_LARGEST = 127 * _FINE


class QuantizedVectors:
    """Quantised vectors: int8 codes, eight more bits per number, and a float32 scale per row.

    vector = (256 * code + fine - 128) * scale. With the codes alone, names that differ in a plural
    change their order; with four more bits, one nearest name in a thousand differs; with eight,
    none. A search reads all codes, and the fine part of its candidates only. No other class depends
    on this representation.

    codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
    fine (NDArray[uint8]): Fine part plus 128. Possibly mapped. Shape (n, dim).
    scales (NDArray[float32]): Possibly mapped. Shape (n,).
    ann (NDArray[uint8] | None): File of the approximate index, see `kb.vectors.ann`. Possibly
        mapped. Shape (n_bytes,).
    ann_steps (Steps): Steps of a search in the index.
    ann_checksum (str): Checksum of the file.
    """

    def __init__(
        self,
        codes: NDArray[np.int8],
        fine: NDArray[np.uint8],
        scales: FloatArray,
        *,
        ann: RawFile | None = None,
        ann_steps: Steps = (),
        ann_checksum: str = "",
    ) -> None:
        self.codes = codes
        self.fine = fine
        self.scales = scales
        self.ann = ann
        self.ann_steps = ann_steps
        self.ann_checksum = ann_checksum

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix: (n, dim)."""
        return self.codes.shape[0], self.codes.shape[1]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: IntArray | slice) -> FloatArray:
        """Dequantise some rows. rows: shape (...,); returns shape (..., dim)."""
        numbers = self.codes[rows].astype(np.float32) * np.float32(_FINE)
        numbers += self.fine[rows]
        numbers -= np.float32(_FINE // 2)
        numbers *= self.scales[rows][..., None]
        return numbers

    def give_back(self) -> None:
        """Release the mapped pages; see `kb.columns.files.give_back`."""
        give_back(self.codes, self.fine)

    def products(self, queries: FloatArray, *, block_rows: int) -> Callable[[int, int], FloatArray]:
        """Inner products of queries with the codes of rows; see `kb.vectors.quantized`.

        queries (FloatArray): Shape (n_queries, dim).
        block_rows (int): Maximum number of rows per call.
        RETURNS (Callable): From start and stop of consecutive rows to products of shape
            (stop - start, n_queries), each query in its own unit, valid until the next call.
        """
        multiply = Products(queries, block_rows)
        return lambda start, stop: multiply(self.codes[start:stop], self.scales[start:stop])


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Quantise vectors to 16 bits; the largest number of a row becomes 32512 or -32512.

    vectors (NDArray): Finite numbers. Shape (n, dim).
    """
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_LARGEST)
    scales[scales < np.finfo(np.float32).tiny] = 0  # subnormal scales would overflow the division
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes, fine = np.divmod(numbers + np.int16(_FINE // 2), np.int16(_FINE))
    return QuantizedVectors(codes.astype(np.int8), fine.astype(np.uint8), scales)
