"""Quantised unit vectors of names, and nearest-neighbour search over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.integers import EXACT_LIMIT, LARGEST, integer_products, packed, round_to_integers
from spacy_bioel.kb.columns import RawFile, give_back
from spacy_bioel.parallel import even_slices, one_thread_each
from spacy_bioel.types import FloatArray, IntArray

EncodeNames = Callable[[Sequence[str]], FloatArray]  # maps n normalised names to shape (n, dim)
Steps = Sequence[Sequence[float]]  # steps of an approximate search (see `kb.faiss_index`)

_FINE = 256  # number of values that the fine part can take
_LARGEST = 127 * _FINE
_EXACT_LIMIT = 1 << 52  # float64 represents all integers up to this one exactly

_RESCORED_PER_BLOCK = 4096  # number of candidates to score exactly at a time
_QUERIES_PER_BLOCK = 256
_MIN_QUERIES_PER_THREAD = 16
_ROWS_PER_BLOCK = 1 << 14
_PRODUCTS_PER_BLOCK = 1 << 18  # number of products that fit in the processor's cache
_MIN_COLUMNS = 8  # queries
_STRIDE = 8  # step at which rows are sampled for a lower bound on the best scores
_SPARE_ROWS = 16  # number of rows to collect, per row wanted, before selecting the best
_SPARE = 32  # extra candidates to score exactly, because the first scores use only 8 bits


@dataclass(eq=False)
class QuantizedVectors:
    """Quantised vectors: int8 codes, eight extra bits per value, and a float32 scale per row.

    vector = (256 * code + fine - 128) * scale. With the codes alone, singular and plural names
    change places in the results; with four extra bits, the nearest name differs for one query in a
    thousand; with eight, for none. A search reads all codes, but only its candidates' fine parts.

    codes (NDArray[int8]), fine (NDArray[uint8]): Possibly mapped. Shape (n, dim) each.
    scales (FloatArray): Possibly mapped. Shape (n,).
    ann (RawFile | None): File of the approximate index (see `kb.faiss_index`). Possibly mapped.
    ann_steps (Steps): Steps of a search in the approximate index.
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
        vectors = self.unscaled(rows)
        vectors *= self.scales[rows][..., None]
        return vectors

    def unscaled(self, rows: IntArray | slice) -> FloatArray:
        """Return some rows as unscaled integers. Shape (..., dim)."""
        numbers = self.codes[rows].astype(np.float32) * np.float32(_FINE)
        numbers += self.fine[rows]
        numbers -= np.float32(_FINE // 2)
        return numbers


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Quantise finite vectors of shape (n, dim) to 16-bit integers, scaling each row to ±32512."""
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_LARGEST)
    scales[scales < np.finfo(np.float32).tiny] = 0  # dividing by subnormal scales would overflow
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes, fine = np.divmod(numbers + np.int16(_FINE // 2), np.int16(_FINE))
    return QuantizedVectors(codes.astype(np.int8), fine.astype(np.uint8), scales)


@dataclass(eq=False)
class ExactIndex:
    """Exhaustive inner-product search over all vectors, block by block.

    All vectors are compared using their first eight bits, then the best vectors using all bits. A
    query's scores do not depend on the other queries, and the lower row wins ties.
    """

    vectors: QuantizedVectors  # unit rows, possibly mapped

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Find the k best rows for each query.

        queries (FloatArray): Shape (n_queries, dim).
        RETURNS (tuple): Rows and scores, best first; the lower row wins ties. If there are fewer
            than k rows, -1 and -inf fill the rest. Shape (n_queries, k) each.
        RAISES BioelError: [B036] if the shape does not fit the vectors.
        """
        queries = checked_queries(queries, self.vectors)
        find = partial(self._candidates, width=k + _SPARE)
        slices = even_slices(
            len(queries), max_rows=_QUERIES_PER_BLOCK, min_rows=_MIN_QUERIES_PER_THREAD
        )
        blocks = [queries[part] for part in slices]
        with one_thread_each() as parallel_map:
            no_rows = np.zeros((0, k + _SPARE), np.int64)
            rows = np.concatenate([no_rows, *parallel_map(find, blocks)])
        return rescored(self.vectors, queries, rows, k=k)

    def _candidates(self, queries: FloatArray, *, width: int) -> IntArray:
        """Return the best rows by the first 8 bits, padded with -1. Shape (n_queries, width)."""
        query, row = _nearest(self.vectors, round_to_integers(queries, largest=LARGEST)[0], width)
        best = np.full((len(queries), width), -1, np.int64)
        best[query, np.arange(len(query)) - np.searchsorted(query, query)] = row
        return best


def _nearest(vectors: QuantizedVectors, queries: FloatArray, k: int) -> tuple[IntArray, IntArray]:
    """Find each query's rows with the highest inner products, sorted by query, then best first.

    queries (FloatArray): Integers. Shape (n_queries, dim).
    k (int): Maximum number of rows for a query; the lower row wins ties.
    RETURNS (tuple): Query and row of each. Shape (n_found,) each.
    """
    codes, scales = vectors.codes, vectors.scales
    # NumPy is slow on matrices with short rows, so transpose if there are few queries.
    layout: Literal["C", "F"] = "C" if len(queries) < _MIN_COLUMNS else "F"
    # The best rows score at least as high as the k-th best row in a sample.
    sample = np.empty((len(queries), len(codes[::_STRIDE])), np.float32)
    for start, products in _products(codes[::_STRIDE], scales[::_STRIDE], queries, layout):
        sample[:, start : start + products.shape[1]] = products
    bound = np.full((len(queries), 1), -EXACT_LIMIT - 1, np.float32)
    if sample.shape[1] >= k:
        sample.partition(-k, axis=1)
        bound = sample[:, [-k]]
    query, row, score = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    for start, products in _products(codes, scales, queries, layout):
        found = np.flatnonzero((products >= bound).ravel(layout))
        new_query, new_row = np.unravel_index(found, products.shape, layout)
        query, row = np.append(query, new_query), np.append(row, new_row + start)
        score = np.append(score, products.ravel(layout)[found])
        if start + products.shape[1] == len(codes) or query.size > _SPARE_ROWS * k * len(bound):
            order = np.lexsort((-score, query))  # stable, so the lower row wins ties
            place = np.arange(len(order)) - np.searchsorted(query[order], query[order])
            full = order[place == k - 1]  # last row kept; later rows lose ties
            bound[query[full], 0] = np.nextafter(score[full], np.float32(np.inf))
            order = order[place < k]
            query, row, score = query[order], row[order], score[order]
    return query, row


def _products(
    codes: NDArray[np.int8], scales: FloatArray, queries: FloatArray, layout: Literal["C", "F"]
) -> Iterator[tuple[int, FloatArray]]:
    """Multiply integer-valued queries of shape (n_queries, dim) by the vectors, block by block.

    YIELDS (tuple): First row of a block, and its products, shape (n_queries, n_rows).
    """
    matrix = packed(queries)
    block_rows = max(1, min(_ROWS_PER_BLOCK, _PRODUCTS_PER_BLOCK // len(queries)))
    for start in range(0, len(codes), block_rows):
        by_row = integer_products(codes[start : start + block_rows], matrix)
        products = by_row.T.astype(np.float32, layout)
        products *= scales[start : start + len(by_row)]
        yield start, products


def checked_queries(queries: FloatArray, vectors: QuantizedVectors) -> FloatArray:
    """Convert queries to float32. RAISES BioelError: [B036] if their shape does not match."""
    queries, dim = np.asarray(queries, dtype=np.float32), vectors.shape[1]
    if queries.ndim != 2 or queries.shape[1] != dim:
        found, expected = f"queries of shape {queries.shape}", f"(n_queries, {dim})"
        raise BioelError(Errors.B036.format(found=found, expected=expected))
    return queries


def rescored(
    vectors: QuantizedVectors, queries: FloatArray, rows: IntArray, *, k: int, lean: bool = False
) -> tuple[IntArray, FloatArray]:
    """Select the k best candidates by exact float64 scores, which do not depend on the batch.

    rows (IntArray): Candidates of each query, -1 for none. Shape (n_queries, n_candidates).
    lean (bool): Release the pages of the vectors, for large knowledge bases; costs half a
        millisecond per call.
    RETURNS (tuple): Rows and scores as in `ExactIndex.search`. Shape (n_queries, k) each.
    """
    scores: FloatArray = np.full(rows.size, -np.inf, np.float32)
    # Sums of products are integers that float64 represents exactly.
    largest = _EXACT_LIMIT // (_LARGEST * queries.shape[1])
    whole, step = round_to_integers(queries.astype(np.float64), largest=largest)
    flat = rows.ravel()
    by_row = np.argsort(flat, kind="stable")  # to read each page only once for all queries
    by_row = by_row[flat[by_row] >= 0]
    for start in range(0, len(by_row), _RESCORED_PER_BLOCK):
        positions = by_row[start : start + _RESCORED_PER_BLOCK]
        row, query = flat[positions], positions // rows.shape[1]
        sums = np.einsum("nd,nd->n", vectors.unscaled(row).astype(np.float64), whole[query])
        scores[positions] = sums * step[query, 0] * vectors.scales[row]
        if lean:
            give_back(vectors.codes, vectors.fine)
    scores = scores.reshape(rows.shape)
    order = np.lexsort((rows, -scores))[:, :k]
    best_rows = np.full((len(queries), k), -1, np.int64)
    best_scores = np.full((len(queries), k), -np.inf, np.float32)
    best_rows[:, : order.shape[1]] = np.take_along_axis(rows, order, axis=1)
    best_scores[:, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
    return best_rows, best_scores
