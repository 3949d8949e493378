"""Unit vectors as they are kept: numbers of 16 bits, of which a search reads eight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.files import RawFile, give_back
from spacy_bioel.kb.vectors.products import Products

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
Steps = Sequence[Sequence[float]]  # of a search, see `kb.vectors.ann`

BITS = 16  # of a number; vectors of another version of this file have others
_FINE = 256  # a code stands for 256 of the smallest steps, and eight bits say which
_MAX = 127 * _FINE


class QuantizedVectors:
    """Rows of int8 codes, eight more bits a number, and a float32 scale for each row:
    vector = (256 * code + fine - 128) * scale.

    With the codes alone, names that differ in a plural change places; with four more bits, one
    nearest name in a thousand is another one; with eight, none. A search goes through all codes,
    and reads the fine part of its candidates only.
    Nothing outside this class knows how vectors are kept.

    codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
    fine (NDArray[uint8]): From -128 to 127, plus 128. Possibly mapped. Shape (n, dim).
    scales (NDArray[float32]): Possibly mapped. Shape (n,).
    ann (NDArray[uint8] | None): The file of an approximate index over them, see `kb.vectors.ann`.
        Possibly mapped. Shape (n_bytes,).
    ann_steps (Steps): How it is searched.
    ann_checksum (str): Of the file.
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
        """(n, dim)."""
        return self.codes.shape[0], self.codes.shape[1]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: IntArray | slice) -> FloatArray:
        """The vectors of some rows. rows: shape (...,); returns shape (..., dim)."""
        numbers = self.codes[rows].astype(np.float32) * np.float32(_FINE)
        numbers += self.fine[rows]
        numbers -= np.float32(_FINE // 2)
        numbers *= self.scales[rows][..., None]
        return numbers

    def give_back(self) -> None:
        """See `columns.give_back`."""
        give_back(self.codes, self.fine)

    def products(self, queries: FloatArray, *, block_rows: int) -> Callable[[int, int], FloatArray]:
        """Inner products with rows, without their fine part; see `kb.vectors.products`.

        queries (FloatArray): Shape (n_queries, dim).
        block_rows (int): Consecutive rows that are asked for at a time, at most.
        RETURNS (Callable): From start and stop of some rows to the products of each query, in a
            unit of its own, valid until the next call. Shape (stop - start, n_queries).
        """
        multiply = Products(queries, block_rows)
        return lambda start, stop: multiply(self.codes[start:stop], self.scales[start:stop])


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Round vectors to 16 bits; the largest number of a row becomes 32512 or -32512.

    vectors (NDArray): Finite numbers. Shape (n, dim).
    """
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_MAX)
    scales[scales < np.finfo(np.float32).tiny] = 0  # next to nothing cannot be divided by
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes, fine = np.divmod(numbers + np.int16(_FINE // 2), np.int16(_FINE))
    return QuantizedVectors(codes.astype(np.int8), fine.astype(np.uint8), scales)
