"""Quantised unit vectors: 16 bits per number, of which a search reads eight; inner products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.arrays import RawFile
from spacy_bioel.kb.columns.files import give_back

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
Encode = Callable[[Sequence[str]], FloatArray]  # from n normalised names to shape (n, dim)
Steps = Sequence[Sequence[float]]  # steps of an approximate search, see `kb.vectors.ann`

BITS = 16  # bits per number; stored vectors with another number are of an earlier version
_FINE = 256  # values of the fine part of a number
_LARGEST = 127 * _FINE


@dataclass(eq=False)
class QuantizedVectors:
    """Quantised vectors: int8 codes, eight more bits per number, and a float32 scale per row.

    vector = (256 * code + fine - 128) * scale. With the codes alone, names that differ in a plural
    change their order; with four more bits, one nearest name in a thousand differs; with eight,
    none. A search reads all codes, and the fine part of its candidates only. No other class depends
    on this representation.

    codes (NDArray[int8]), fine (NDArray[uint8]): Possibly mapped. Shape (n, dim).
    scales (FloatArray): Possibly mapped. Shape (n,).
    ann (RawFile | None): File of the approximate index, see `kb.vectors.ann`. Possibly mapped.
    ann_steps (Steps): Steps of a search in the index.
    ann_checksum (str): Checksum of the file.
    """

    codes: NDArray[np.int8]
    fine: NDArray[np.uint8]
    scales: FloatArray
    ann: RawFile | None = None
    ann_steps: Steps = ()
    ann_checksum: str = ""

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
        """Inner products of queries with the codes of rows.

        queries (FloatArray): Shape (n_queries, dim).
        block_rows (int): Maximum number of rows per call.
        RETURNS (Callable): From start and stop of consecutive rows to products of shape
            (stop - start, n_queries), valid until the next call.
        """
        transposed = queries.T.astype(np.float32)
        # The buffers are reused: allocating new pages takes longer than filling them.
        rows = np.empty((block_rows, self.shape[1]), np.float32)
        found = np.empty((block_rows, len(queries)), np.float32)

        def multiply(start: int, stop: int) -> FloatArray:
            n = stop - start
            np.copyto(rows[:n], self.codes[start:stop])
            np.matmul(rows[:n], transposed, out=found[:n])
            np.multiply(found[:n], self.scales[start:stop, None], out=found[:n])
            return found[:n]

        return multiply


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Quantise finite vectors of shape (n, dim) to 16 bits; the largest number of a row becomes
    32512 or -32512."""
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_LARGEST)
    scales[scales < np.finfo(np.float32).tiny] = 0  # subnormal scales would overflow the division
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes, fine = np.divmod(numbers + np.int16(_FINE // 2), np.int16(_FINE))
    return QuantizedVectors(codes.astype(np.int8), fine.astype(np.uint8), scales)
