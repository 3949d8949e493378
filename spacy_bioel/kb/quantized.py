"""Unit vectors as they are kept: numbers of 12 bits, of which a search reads eight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.products import Products

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_FINE = 16  # a code stands for 16 of the smallest steps, and four bits say which
_MAX = 127 * _FINE


class QuantizedVectors:
    """Rows of int8 codes, four more bits a number, and a float32 scale for each row:
    vector = (16 * code + fine) * scale.

    With the codes alone, names that differ in a plural change places; with the four bits they
    do not. A search goes through all codes, and reads the fine part of its candidates only.
    Nothing outside this class knows how vectors are kept.

    codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
    fine (NDArray[uint8]): From -8 to 7, plus 8, two in a byte, the first in the low bits.
        Possibly mapped. Shape (n, ceil(dim / 2)).
    scales (NDArray[float32]): Possibly mapped. Shape (n,).
    ann_file (Path | None): Of an approximate index over them, see `kb.ann`.
    """

    def __init__(
        self,
        codes: NDArray[np.int8],
        fine: NDArray[np.uint8],
        scales: FloatArray,
        *,
        ann_file: Path | None = None,
    ) -> None:
        self.codes = codes
        self.fine = fine
        self.scales = scales
        self.ann_file = ann_file

    @property
    def shape(self) -> tuple[int, int]:
        """(n, dim)."""
        return self.codes.shape[0], self.codes.shape[1]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: IntArray | slice) -> FloatArray:
        """The vectors of some rows. rows: shape (...,); returns shape (..., dim)."""
        numbers = self.codes[rows].astype(np.int16) * np.int16(_FINE) - np.int16(_FINE // 2)
        fine = self.fine[rows]
        numbers[..., ::2] += fine & np.uint8(15)
        numbers[..., 1::2] += (fine >> np.uint8(4))[..., : self.shape[1] // 2]
        return numbers.astype(np.float32) * self.scales[rows][..., None]

    def products(self, queries: FloatArray, *, block_rows: int) -> Callable[[int, int], FloatArray]:
        """Inner products with rows, without their fine part; see `kb.products`.

        queries (FloatArray): Shape (n_queries, dim).
        block_rows (int): Consecutive rows that are asked for at a time, at most.
        RETURNS (Callable): From start and stop of some rows to the products of each query, in a
            unit of its own, valid until the next call. Shape (stop - start, n_queries).
        """
        multiply = Products(queries, block_rows)
        return lambda start, stop: multiply(self.codes[start:stop], self.scales[start:stop])


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Round vectors to 12 bits; the largest number of a row becomes 2032 or -2032.

    vectors (NDArray): Finite numbers. Shape (n, dim).
    """
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_MAX)
    scales[scales < np.finfo(np.float32).tiny] = 0  # next to nothing cannot be divided by
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes = (numbers + _FINE // 2) >> 4
    fine = np.zeros((len(vectors), 2 * ((vectors.shape[1] + 1) // 2)), np.uint8)
    fine[:, : vectors.shape[1]] = numbers - codes * _FINE + _FINE // 2
    packed = fine[:, ::2] | fine[:, 1::2] << np.uint8(4)
    return QuantizedVectors(codes.astype(np.int8), packed, scales)
