"""Products of integer matrices, with identical results on every processor.

Floats are rounded at every addition, so a product in float32 depends on the order in which a
library adds. Here each row of a matrix is a row of integers times a float32 scale. The integers are
small enough for every sum of products to stay below 2 ** 24, where float32 is exact: numkong, which
multiplies large matrices, and NumPy compute the same numbers, with any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numkong
import numpy as np
from numpy.typing import NDArray

from spacy_bioel.types import FloatArray

LARGEST = 127  # largest number in a matrix: the range of int8, excluding -128
EXACT_LIMIT = (1 << 24) - 1  # float32 represents all integers up to this one exactly
_MIN_OUTPUTS = 64  # with fewer outputs than this, NumPy is as fast.
# Smaller numbers are rounded to 0, because dividing by the smallest floats would overflow.
_SMALLEST = np.float32(1e-30)
_SPARE_BITS = np.uint32(0xFF)  # the unused bits of a scale


def round_to_integers(x: Any, *, largest: int) -> tuple[Any, Any]:
    """Round each row of a float32 or float64 matrix to integers times a step.

    largest (int): The integer that the largest value in each row becomes.
    RETURNS (tuple): The integers as floats, and the step of each row, shape (n, 1).
    """
    highest = np.maximum(x.max(axis=1, initial=0), -x.min(axis=1, initial=0))
    step = np.maximum(highest, _SMALLEST)[:, None] / np.float32(largest)
    numbers = x * (np.float32(1) / step)
    return np.rint(numbers, out=numbers), step


def quantize_weights(weights: FloatArray, *, axis: int = -1) -> tuple[FloatArray, FloatArray]:
    """Round weights to integers from -127 to 127 times a scale.

    The products of the integers and the scales are exact, because scales have 16 significant
    bits; rounding the products again gives the same numbers.

    axis (int): Axis of the weights that share a scale.
    RETURNS (tuple): The integers as floats, and the scales, with a length of 1 on the axis.
    """
    weights = weights.astype(np.float32, copy=False)
    highest = np.abs(weights).max(axis=axis, keepdims=True, initial=0)
    scales = np.where(highest > _SMALLEST, highest / np.float32(LARGEST), np.float32(1))
    scales = ((scales.view(np.uint32) + _SPARE_BITS) & ~_SPARE_BITS).view(np.float32)
    return np.rint(weights / scales), scales


def packed(matrix: NDArray) -> Any:
    """Pack a matrix of integers from -127 to 127 for `integer_products`."""
    return numkong.dots_pack(matrix.astype(np.int8, copy=False))


def integer_products(rows: NDArray, packed_matrix: Any) -> NDArray:
    """Multiply rows of integers from -127 to 127 by the rows of a packed matrix.

    RETURNS (NDArray): Whole numbers as int32. Shape (n_rows, n).
    """
    return np.asarray(numkong.dots_packed(rows.astype(np.int8, copy=False), packed_matrix))


@dataclass(frozen=True, eq=False)
class IntegerMatrix:
    """A matrix stored as integers from -127 to 127, with a scale for each row.

    numbers (Any): Whole numbers as `integer_products` needs them or, for a small matrix, as floats.
        Shape (n, width).
    scales (FloatArray): Shape (n, 1).
    """

    numbers: Any
    scales: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray) -> IntegerMatrix:
        """Round a matrix of finite floats. The matrix is cached, so do not change it later."""
        return _round_matrix(_ByValue(matrix))

    def times(self, x: FloatArray) -> FloatArray:
        """Multiply the rounded rows of x by the rows of this matrix.

        x (FloatArray): Finite. Shape (n_rows, width); returns shape (n_rows, n).
        """
        largest = EXACT_LIMIT // (LARGEST * x.shape[1])
        is_large = len(self.scales) >= _MIN_OUTPUTS
        rows, step = round_to_integers(x, largest=min(largest, LARGEST) if is_large else largest)
        sums = integer_products(rows, self.numbers) if is_large else rows @ self.numbers.T
        products = sums.astype(np.float32, copy=False)
        products *= step
        products *= self.scales.T
        return products


@dataclass(frozen=True, eq=False)
class _ByValue:
    """A matrix as a cache key; comparing matrices is ten times as fast as rounding them."""

    matrix: FloatArray

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix[:1, :4].tobytes()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and np.array_equal(self.matrix, other.matrix)


@lru_cache(maxsize=64)  # enough for the matrices of two detectors and two encoders
def _round_matrix(key: _ByValue) -> IntegerMatrix:
    numbers, scales = quantize_weights(key.matrix)
    return IntegerMatrix(packed(numbers) if len(numbers) >= _MIN_OUTPUTS else numbers, scales)
