"""Matrix products of whole numbers, which are the same on every processor.

Floats are rounded at every addition, so a product in float32 depends on the order in which a
library adds. Here each row of a matrix is whole numbers times a float32 scale. They are small
enough for every sum of products to stay below 2 ** 24, where float32 is exact: NumPy and an int8
kernel, with any number of threads, compute the same numbers.

The kernel is that of numkong (`pip install 'spacy-bioel[fast]'`), if it is faster than NumPy here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import LOGGER, Warnings
from spacy_bioel.types import FloatArray

LARGEST = 127  # of the whole numbers in a matrix: the range of int8, without -128
EXACT_LIMIT = (1 << 24) - 1  # float32 represents all whole numbers up to this
_MIN_KERNEL_WIDTH = 64  # with fewer outputs than this, NumPy is as fast
# Below this, numbers are rounded to 0: the quotient of the smallest floats would overflow.
_SMALLEST = np.float32(1e-30)
_SPARE_BITS = np.uint32(0xFF)  # of the 24 bits of a scale


def whole_numbers(x: Any, *, largest: int) -> tuple[Any, Any]:
    """Round the rows of a matrix, in float32 or float64, to whole numbers times a step.

    largest (int): Largest whole number, which the largest value in each row becomes.
    RETURNS (tuple): The whole numbers as floats, and the step of each row, shape (n, 1).
    """
    highest = np.maximum(x.max(axis=1, initial=0), -x.min(axis=1, initial=0))
    step = np.maximum(highest, _SMALLEST)[:, None] / np.float32(largest)
    numbers = x * (np.float32(1) / step)
    return np.rint(numbers, out=numbers), step


def quantize_weights(weights: FloatArray, *, axis: int = -1) -> tuple[FloatArray, FloatArray]:
    """Round weights to whole numbers from -127 to 127 times a scale.

    The products of the whole numbers and the scales are exact, because scales have 16 significant
    bits, and are rounded to the same numbers again.

    axis (int): Axis of the weights that share a scale.
    RETURNS (tuple): The whole numbers as floats, and the scales, with a length of 1 on the axis.
    """
    weights = weights.astype(np.float32, copy=False)
    highest = np.abs(weights).max(axis=axis, keepdims=True, initial=0)
    scales = np.where(highest > _SMALLEST, highest / np.float32(LARGEST), np.float32(1))
    scales = ((scales.view(np.uint32) + _SPARE_BITS) & ~_SPARE_BITS).view(np.float32)
    return np.rint(weights / scales), scales


def packed(matrix: NDArray) -> Any:
    """Return a matrix of whole numbers from -127 to 127 as `whole_products` needs it."""
    if (library := kernel()) is not None:
        return library.dots_pack(matrix.astype(np.int8, copy=False))
    return matrix.astype(np.float32, copy=False).T


def whole_products(rows: NDArray, packed_matrix: Any) -> NDArray:
    """Multiply rows of whole numbers from -127 to 127 by those of a packed matrix.

    RETURNS (NDArray): Whole numbers as int32 or, without the kernel, as float32, if the width is at
        most 1,040. Shape (n_rows, n).
    """
    if isinstance(packed_matrix, np.ndarray):
        return rows.astype(np.float32, copy=False) @ packed_matrix
    import numkong  # not by `kernel`: the first threads to ask may have measured another answer

    return np.asarray(numkong.dots_packed(rows.astype(np.int8, copy=False), packed_matrix))


@dataclass(frozen=True, eq=False)
class IntegerMatrix:
    """A matrix as whole numbers from -127 to 127 and a scale for each row.

    numbers (Any): Whole numbers as `whole_products` needs them or, for a small matrix, as floats.
        Shape (n, width).
    scales (FloatArray): Shape (n, 1).
    """

    numbers: Any
    scales: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray) -> IntegerMatrix:
        """Round a matrix of finite floats, which must not be changed later: it is cached."""
        return _round_matrix(_ByValue(matrix))

    def times(self, x: FloatArray) -> FloatArray:
        """Multiply the rounded rows of x by the rows of this matrix.

        x (FloatArray): Finite. Shape (n_rows, width); returns shape (n_rows, n).
        """
        largest = EXACT_LIMIT // (LARGEST * x.shape[1])
        is_large = len(self.scales) >= _MIN_KERNEL_WIDTH
        rows, step = whole_numbers(x, largest=min(largest, LARGEST) if is_large else largest)
        sums = whole_products(rows, self.numbers) if is_large else rows @ self.numbers.T
        products = sums.astype(np.float32, copy=False)
        products *= step
        products *= self.scales.T
        return products


@dataclass(frozen=True, eq=False)
class _ByValue:
    """A matrix as a key in a cache: comparing takes a tenth of the time that rounding takes."""

    matrix: FloatArray

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix[:1, :4].tobytes()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and np.array_equal(self.matrix, other.matrix)


@lru_cache(maxsize=64)  # more matrices than two detectors and encoders have
def _round_matrix(key: _ByValue) -> IntegerMatrix:
    numbers, scales = quantize_weights(key.matrix)
    is_large = len(numbers) >= _MIN_KERNEL_WIDTH
    return IntegerMatrix(packed(numbers) if is_large else numbers, scales)


@cache
def kernel() -> Any:
    """Return numkong if it is installed, and faster than NumPy on this processor; else None.

    Warns [W417] if it cannot be used.
    """
    try:
        import numkong

        return numkong if _is_faster(numkong) else None
    except ModuleNotFoundError:
        pass
    except Exception as error:  # for example, its binary does not fit this system
        LOGGER.warning(Warnings.W417.format(error=error))
    return None


def _is_faster(library: Any) -> bool:
    """Compare the time of a product. RAISES ArithmeticError: If the products differ."""
    numbers = (np.arange(1 << 17) % 255 - LARGEST).astype(np.int8).reshape(512, 256)
    rows, matrix = numbers.astype(np.float32), numbers[:256].astype(np.float32)
    packed = library.dots_pack(numbers[:256])
    seconds = []
    for _ in range(3):
        start = perf_counter()
        expected = rows @ matrix.T
        middle = perf_counter()
        found = np.asarray(library.dots_packed(numbers, packed))
        seconds.append((middle - start, perf_counter() - middle))
        if not np.array_equal(found, expected):
            raise ArithmeticError("its products are wrong")
    numpy_seconds, library_seconds = map(min, zip(*seconds, strict=True))
    return library_seconds < numpy_seconds
