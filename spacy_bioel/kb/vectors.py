"""Quantised unit vectors of names, and the search for the vectors nearest to queries.

`ExactIndex` compares all vectors. `TwoStageIndex` compares the coarse codes of all vectors (the
first half of their principal components in eight bits), then the vectors with the nearest codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.integers import EXACT_LIMIT, LARGEST, whole_numbers, whole_products
from spacy_bioel.kb.columns import RawFile, entries_of, give_back
from spacy_bioel.parallel import even_slices, one_thread_each
from spacy_bioel.types import FloatArray, IntArray

EncodeNames = Callable[[Sequence[str]], FloatArray]  # from n normalised names to shape (n, dim)
Steps = Sequence[Sequence[float]]  # steps of an approximate search (see `kb.faiss_index`)

_FINE = 256  # number of values that the fine part can take
_LARGEST = 127 * _FINE
_EXACT_LIMIT = 1 << 52  # float64 represents all whole numbers up to this

_RESCORED_PER_BLOCK = 4096  # candidates whose exact scores are computed together
_QUERIES_PER_BLOCK = 256
_MIN_QUERIES_PER_THREAD = 16
_PRODUCTS_PER_BLOCK = 1 << 19  # products that fit into the processor's cache
_GROUP_SIZE = 16  # only the best row of a group is compared with the current bound
_SPARE = 32  # additional candidates for the exact scores, since the first scores use only 8 bits
_NO_KEY = np.uint64((1 << 64) - 1)  # marks a missing row
_ROW_BITS = np.uint64((1 << 32) - 1)  # bits of a key that hold the row


class CoarseCodes(NamedTuple):
    """Coarse codes of vectors: the first half of their principal components, in eight bits.

    codes (NDArray[int8]): Possibly mapped. Shape (n, width).
    projection (FloatArray): Maps queries to the vectors that codes are compared with. Shape
        (dim, width).
    """

    codes: NDArray[np.int8]
    projection: FloatArray


@dataclass(eq=False)
class QuantizedVectors:
    """Quantised vectors: int8 codes, eight extra bits per value, and a float32 scale per row.

    vector = (256 * code + fine - 128) * scale. With the codes alone, singular and plural names
    change places in the results; with four extra bits, the nearest name differs for one query in a
    thousand; with eight, for none. A search reads all codes, but the fine part only for its
    candidates.

    codes (NDArray[int8]), fine (NDArray[uint8]): Possibly mapped. Shape (n, dim) each.
    scales (FloatArray): Possibly mapped. Shape (n,).
    coarse (CoarseCodes | None): Codes for `TwoStageIndex`; None: search is exact.
    ann (RawFile | None): File of the approximate index (see `kb.faiss_index`). Possibly mapped.
    ann_steps (Steps): Steps of a search in the approximate index.
    ann_checksum (str): Checksum of the file.
    """

    codes: NDArray[np.int8]
    fine: NDArray[np.uint8]
    scales: FloatArray
    coarse: CoarseCodes | None = None
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
        vectors = self.whole(rows)
        vectors *= self.scales[rows][..., None]
        return vectors

    def whole(self, rows: IntArray | slice) -> FloatArray:
        """Return some rows as whole numbers, without their scales. Shape (..., dim)."""
        numbers = self.codes[rows].astype(np.float32) * np.float32(_FINE)
        numbers += self.fine[rows]
        numbers -= np.float32(_FINE // 2)
        return numbers


def quantize(vectors: NDArray[np.floating]) -> QuantizedVectors:
    """Quantise finite vectors of shape (n, dim) to 16 bits, from -32512 to 32512 in each row."""
    vectors = np.asarray(vectors, dtype=np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_LARGEST)
    scales[scales < np.finfo(np.float32).tiny] = 0  # subnormal scales would overflow the division
    numbers = np.rint(vectors / np.where(scales > 0, scales, np.inf)[:, None]).astype(np.int16)
    codes, fine = np.divmod(numbers + np.int16(_FINE // 2), np.int16(_FINE))
    return QuantizedVectors(codes.astype(np.int8), fine.astype(np.uint8), scales)


@dataclass(eq=False)
class ExactIndex:
    """Search by inner product over all vectors, block by block.

    All vectors are compared using their first eight bits, then the best vectors using all bits. A
    query's scores do not depend on the other queries, and the lower row wins ties.
    """

    vectors: QuantizedVectors  # unit rows, possibly mapped
    block_rows: int = 16384  # maximum number of rows in a block

    def __len__(self) -> int:
        return len(self.vectors)

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
        """Return the best rows, by the first eight bits; -1 for none. Shape (n_queries, width)."""
        n, n_queries = len(self), len(queries)
        size = max(1, min(self.block_rows, n, _PRODUCTS_PER_BLOCK // n_queries))
        best = np.full((n_queries, width), _NO_KEY)
        # Lower bound for each query, exclusive, since later rows lose ties.
        bound = np.full(n_queries, -np.inf, np.float32)
        # Rows above the bound are collected before they are merged into `best`: sorting is slow.
        query, keys = np.zeros(0, np.uint16), np.zeros(0, np.uint64)
        whole = whole_numbers(queries, largest=LARGEST)[0]
        for start, sums in _products(self.vectors.codes, whole, block_rows=size):
            products = sums.astype(np.float32, copy=False)
            products *= self.vectors.scales[start : start + len(products), None]
            highest = _highest_of_groups(products)
            if len(highest) >= width and not np.isfinite(bound).all():
                # For each query, at least `width` rows have this score or a higher score.
                reached = np.partition(highest, -width, axis=0)[-width]
                bound = np.maximum(bound, np.nextafter(reached, np.float32(-np.inf)))
            new_query, row, score = _above(products, highest, bound)
            query = np.append(query, new_query.astype(np.uint16))
            keys = np.append(keys, _sort_keys(score, start + row))
            if len(keys) > 2 * width * n_queries:
                best = _merge_keys(best, query, keys)
                # The score of `_NO_KEY` is NaN, which fmax ignores.
                bound = np.fmax(bound, _scores_of_keys(best[:, -1]))
                query, keys = query[:0], keys[:0]
        best = _merge_keys(best, query, keys)
        return np.where(best == _NO_KEY, -1, (best & _ROW_BITS).astype(np.int64))


def _products(
    codes: NDArray[np.int8], queries: FloatArray, *, block_rows: int
) -> Iterator[tuple[int, NDArray]]:
    """Multiply codes by queries of whole numbers, shape (n_queries, dim), block by block.

    YIELDS (tuple): First row of a block, and its products.
    """
    for start in range(0, len(codes), block_rows):
        yield start, whole_products(codes[start : start + block_rows], queries)


def checked_queries(queries: FloatArray, vectors: QuantizedVectors) -> FloatArray:
    """Convert queries to float32. RAISES BioelError: [B036] if they do not fit the vectors."""
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
    best_rows = np.full((len(queries), k), -1, np.int64)
    best_scores = np.full((len(queries), k), -np.inf, np.float32)
    scores = _exact_scores(vectors, queries.astype(np.float64), rows, lean=lean)
    order = np.lexsort((rows, -scores))[:, :k]
    n = order.shape[1]
    best_rows[:, :n] = np.take_along_axis(rows, order, axis=1)
    best_scores[:, :n] = np.take_along_axis(scores, order, axis=1)
    return best_rows, best_scores


def _exact_scores(
    vectors: QuantizedVectors, queries: NDArray[np.float64], rows: IntArray, *, lean: bool
) -> FloatArray:
    """Return the exact scores of candidates, -inf for row -1. Same shape as rows."""
    scores = np.full(rows.size, -np.inf, np.float32)
    # Sums of products are whole numbers that float64 represents exactly.
    queries, step = whole_numbers(queries, largest=_EXACT_LIMIT // (_LARGEST * queries.shape[1]))
    flat = rows.ravel()
    order = np.argsort(flat, kind="stable")  # so that each page is read once for all queries
    order = order[flat[order] >= 0]
    for start in range(0, len(order), _RESCORED_PER_BLOCK):
        positions = order[start : start + _RESCORED_PER_BLOCK]
        row, query = flat[positions], positions // rows.shape[1]
        sums = np.einsum("nd,nd->n", vectors.whole(row).astype(np.float64), queries[query])
        scores[positions] = sums * step[query, 0] * vectors.scales[row]
        if lean:
            give_back(vectors.codes, vectors.fine)
    return scores.reshape(rows.shape)


def _above(
    products: FloatArray, highest: FloatArray, bound: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the query, row and value of each score in a block above its query's bound.

    products (FloatArray): Contiguous. Shape (n_rows, n_queries).
    highest (FloatArray): Result of `_highest_of_groups`.
    """
    n_rows, n_queries = products.shape
    group, query = np.divmod(np.flatnonzero(highest > bound), n_queries)
    first = group * (_GROUP_SIZE * n_queries) + query
    positions = first[:, None] + np.arange(_GROUP_SIZE) * n_queries
    scores = products.reshape(-1).take(positions, mode="clip")
    kept = np.flatnonzero(scores > bound[query][:, None])
    entry, row_in_group = np.divmod(kept, _GROUP_SIZE)
    query, row = query[entry], group[entry] * _GROUP_SIZE + row_in_group
    is_row = row < n_rows
    return query[is_row], row[is_row], scores.reshape(-1)[kept][is_row]


def _merge_keys(
    best: NDArray[np.uint64], query: NDArray[np.uint16], keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Merge each query's old and new keys, and return the best keys, ascending.

    Sorting numbers is ten times as fast as sorting positions by two keys.
    """
    n_queries, width = best.shape
    order = np.argsort(query, kind="stable")
    counts = np.bincount(query, minlength=n_queries)
    column = entries_of(np.full(n_queries, width), counts)[1]
    table = np.full((n_queries, width + counts.max(initial=0)), _NO_KEY)
    table[:, :width] = best
    table[query[order], column] = keys[order]
    table.sort(axis=1)
    return table[:, :width]


def _highest_of_groups(products: FloatArray) -> FloatArray:
    """Return the highest score of each group of rows, and of the remaining rows (-inf if none).

    products (FloatArray): Shape (n, n_queries); returns shape (n // group + 1, n_queries).
    """
    n_groups, n_queries = len(products) // _GROUP_SIZE, products.shape[1]
    n_grouped = n_groups * _GROUP_SIZE
    groups = products[:n_grouped].reshape(n_groups, _GROUP_SIZE, n_queries)
    remaining = products[n_grouped:].max(axis=0, keepdims=True, initial=-np.inf)
    return np.concatenate([groups.max(axis=1), remaining])


def _sort_keys(scores: FloatArray, rows: IntArray) -> NDArray[np.uint64]:
    """Return sort keys of rows: lower for a higher score, then for a lower row."""
    score_bits = _reverse_order(scores.view(np.uint32)).astype(np.uint64) << np.uint64(32)
    return score_bits | rows.astype(np.uint64)


def _scores_of_keys(keys: NDArray[np.uint64]) -> FloatArray:
    """Return the scores in sort keys; NaN for `_NO_KEY`."""
    return _reverse_order((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)


def _reverse_order(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Map float32 bits to integers in reverse order, and back."""
    # Read as integers, positive floats are in ascending order, and negative floats in descending.
    return np.where(bits >> np.uint32(31), bits, ~bits & np.uint32((1 << 31) - 1))


# Below this number of vectors, exact search is just as fast.
MIN_COARSE_NAMES = 1 << 15
_SAMPLED_VECTORS = 1 << 14  # vectors used to compute the components
_VECTORS_PER_BLOCK = 1 << 14  # vectors projected together
_RESIDUAL_SHARE = 0.4  # expected contribution to a product, as a share of the residual's length
_NEAR_PER_CANDIDATE = 4  # vectors with near codes to find per candidate
_CODES_STRIDE = 8  # step of a sample of codes that determines which codes are near
_CODES_PER_BLOCK = 1 << 12  # codes that fit into the processor's cache


def coarse_codes_of(vectors: QuantizedVectors) -> CoarseCodes | None:
    """Compute the coarse codes of unit vectors; None if there are too few vectors to need them."""
    n, dim = vectors.shape
    if n < MIN_COARSE_NAMES:
        return None
    with one_thread_each():  # with more threads, products would be rounded differently
        sample = vectors.take(np.arange(0, n, max(1, n // _SAMPLED_VECTORS)))
        components = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : (dim + 1) // 2]
        # Each component has its own quantisation step; the projection of queries includes it.
        step = np.maximum(np.abs(_stretched(sample @ components)).max(axis=0), 1e-6) / 127
        codes = np.empty((n, len(step)), np.int8)
        for start in range(0, n, _VECTORS_PER_BLOCK):
            rows = slice(start, start + _VECTORS_PER_BLOCK)
            projected = _stretched(vectors.take(rows) @ components) / step
            codes[rows] = np.clip(np.rint(projected), -127, 127)
    return CoarseCodes(codes, np.ascontiguousarray(components * step, np.float32))


def _stretched(projected: FloatArray) -> FloatArray:
    """Lengthen projected unit vectors to make up for the components that projection drops."""
    length = np.linalg.norm(projected, axis=1, keepdims=True)
    residual = np.sqrt(np.maximum(0, 1 - length**2))
    return projected * (1 + _RESIDUAL_SHARE * residual / np.maximum(length, 1e-6))


@dataclass(eq=False)
class TwoStageIndex(ExactIndex):
    """Exact search among the vectors with the nearest coarse codes; see `coarse_codes_of`.

    Codes are compared as whole numbers, whose sums are exact, so a query's results do not depend on
    the other queries or on the processor.
    """

    def _candidates(self, queries: FloatArray, *, width: int) -> IntArray:
        """Return the best rows with near codes, using the first eight bits; -1 for none."""
        query, row = self._near_codes(queries, n=_NEAR_PER_CANDIDATE * width)
        bounds = np.searchsorted(query, np.arange(len(queries) + 1))
        best = np.full((len(queries), width), -1, np.int64)
        largest = EXACT_LIMIT // (LARGEST * queries.shape[1])
        for i, vector in enumerate(whole_numbers(queries, largest=largest)[0]):
            rows = row[bounds[i] : bounds[i + 1]]
            scores = self.vectors.codes[rows].astype(np.float32) @ vector
            scores *= self.vectors.scales[rows]
            if len(rows) > width:
                rows = rows[np.argpartition(scores, -width)[-width:]]
            best[i, : len(rows)] = rows
        return best

    def _near_codes(self, queries: FloatArray, *, n: int) -> tuple[IntArray, IntArray]:
        """Return the query and row of roughly the n nearest codes per query, sorted by query."""
        assert self.vectors.coarse is not None  # `choose_index` has checked this
        codes, projection = self.vectors.coarse
        # In float64, so that rounding does not depend on the other queries.
        projected = queries.astype(np.float64) @ projection
        wanted = whole_numbers(projected, largest=LARGEST)[0].astype(np.float32)
        sample = whole_products(wanted, codes[::_CODES_STRIDE].copy())
        nth = max(0, sample.shape[1] - n // _CODES_STRIDE)
        bound = np.partition(sample, nth, axis=1)[:, nth]
        positions = []
        for start, products in _products(codes, wanted, block_rows=_CODES_PER_BLOCK):
            positions.append(np.flatnonzero(products >= bound) + start * len(queries))
        row, query = np.divmod(np.concatenate(positions), len(queries))
        by_query = np.argsort(query, kind="stable")
        return query[by_query], row[by_query]
