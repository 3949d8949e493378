"""Quantised unit vectors of names, and the search for those nearest to query vectors.

`ExactIndex` compares all vectors. `TwoStageIndex` compares all by the first half of their principal
components, and the nearest of these in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import RawFile, entries_of, give_back
from spacy_bioel.parallel import even_slices, one_thread_each
from spacy_bioel.types import FloatArray, IntArray

Encode = Callable[[Sequence[str]], FloatArray]  # from n normalised names to shape (n, dim)
Steps = Sequence[Sequence[float]]  # steps of an approximate search, see `kb.faiss_index`

_FINE = 256  # values of the fine part of a number
_LARGEST = 127 * _FINE

_RESCORED = 4096  # candidates per block of the exact scores
_QUERIES = 256  # queries per block
_FEWEST = 16  # queries that are worth a thread
_PRODUCTS = 1 << 19  # products per block, which fit into the cache of the processor
_GROUP = 16  # rows per group, of which only the best is compared with the current bound
_SPARE = 32  # additional candidates for the exact scores, since the first scores have 8 bits
_NONE = np.uint64((1 << 64) - 1)  # key of no row
_ROW = np.uint64((1 << 32) - 1)  # bits of a key that hold the row


class CoarseCodes(NamedTuple):
    """First principal components of vectors in eight bits, see `kb.vectors`.

    codes (NDArray[int8]): Possibly mapped. Shape (n, width).
    projection (FloatArray): From queries to what they are compared with. Shape (dim, width).
    """

    codes: NDArray[np.int8]
    projection: FloatArray


@dataclass(eq=False)
class QuantizedVectors:
    """Quantised vectors: int8 codes, eight more bits per number, and a float32 scale per row.

    vector = (256 * code + fine - 128) * scale. With the codes alone, names that differ in a plural
    change their order; with four more bits, one nearest name in a thousand differs; with eight,
    none. A search reads all codes, and the fine part of its candidates only. No other class depends
    on this representation.

    codes (NDArray[int8]), fine (NDArray[uint8]): Possibly mapped. Shape (n, dim).
    scales (FloatArray): Possibly mapped. Shape (n,).
    coarse (CoarseCodes | None): None: the search is exact.
    ann (RawFile | None): File of the approximate index, see `kb.faiss_index`. Possibly mapped.
    ann_steps (Steps): Steps of a search in the index.
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
        numbers = self.codes[rows].astype(np.float32) * np.float32(_FINE)
        numbers += self.fine[rows]
        numbers -= np.float32(_FINE // 2)
        numbers *= self.scales[rows][..., None]
        return numbers

    def give_back(self) -> None:
        """Release the mapped pages; see `kb.columns.give_back`."""
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


@dataclass(eq=False)
class ExactIndex:
    """Search by inner product over all vectors, block by block.

    All vectors are compared by their first eight bits, then the best ones by all bits. The scores
    of a query do not depend on the other queries, and ties go to the lower row.
    """

    vectors: QuantizedVectors  # unit rows, possibly mapped
    block_rows: int = 16384  # maximum number of rows of a block

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Find the k best rows for each query.

        queries (FloatArray): Shape (n_queries, dim).
        RETURNS (tuple): Rows and scores, best first, lower row first among equals; -1 and -inf pad
            fewer than k rows. Shape (n_queries, k) each.
        RAISES BioelError: [B036] when the shape does not fit the vectors.
        """
        queries = checked_queries(queries, self.vectors)
        find = partial(self._candidates, width=k + _SPARE)
        parts = [
            queries[part] for part in even_slices(len(queries), max_rows=_QUERIES, min_rows=_FEWEST)
        ]
        with one_thread_each() as parallel_map:
            rows = np.concatenate([np.zeros((0, k + _SPARE), np.int64), *parallel_map(find, parts)])
        return rescored(self.vectors, queries, rows, k=k)

    def _candidates(self, queries: FloatArray, *, width: int) -> IntArray:
        """Best rows by their first eight bits, -1 for none. Shape (n_queries, width)."""
        n, n_queries = len(self), len(queries)
        size = max(1, min(self.block_rows, n, _PRODUCTS // n_queries))
        products = self.vectors.products(queries, block_rows=size)
        best = np.full((n_queries, width), _NONE)
        # Lower bound of each query, exclusive, since later rows lose ties.
        bound = np.full(n_queries, -np.inf, np.float32)
        # Rows above it that are not in `best` yet: sorting is rare.
        query, keys = np.zeros(0, np.uint16), np.zeros(0, np.uint64)
        for start in range(0, n, size):
            found = products(start, min(start + size, n))
            highest = _highest_of_groups(found)
            if len(highest) >= width and not np.isfinite(bound).all():
                # At least `width` rows of each query have this score or a higher one.
                good = np.partition(highest, -width, axis=0)[-width]
                bound = np.maximum(bound, np.nextafter(good, np.float32(-np.inf)))
            new_query, row, score = _above(found, highest, bound)
            query = np.append(query, new_query.astype(np.uint16))
            keys = np.append(keys, _keys(score, start + row))
            if len(keys) > 2 * width * n_queries:
                best = _merged(best, query, keys)
                # The score of `_NONE` is NaN, which fmax ignores.
                bound = np.fmax(bound, _scores(best[:, -1]))
                query, keys = query[:0], keys[:0]
        best = _merged(best, query, keys)
        return np.where(best == _NONE, -1, (best & _ROW).astype(np.int64))


def checked_queries(queries: FloatArray, vectors: QuantizedVectors) -> FloatArray:
    """Convert queries to float32. RAISES BioelError: [B036] when they do not fit the vectors."""
    queries, dim = np.asarray(queries, dtype=np.float32), vectors.shape[1]
    if queries.ndim != 2 or queries.shape[1] != dim:
        found, expected = f"queries of shape {queries.shape}", f"(n_queries, {dim})"
        raise BioelError(Errors.B036.format(found=found, expected=expected))
    return queries


def rescored(
    vectors: QuantizedVectors, queries: FloatArray, rows: IntArray, *, k: int, lean: bool = False
) -> tuple[IntArray, FloatArray]:
    """Select the k best candidates by exact scores, in float64, independent of the batch.

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
    """Exact scores of candidates, -inf for none. Shape of rows."""
    scores = np.full(rows.size, -np.inf, np.float32)
    flat = rows.ravel()
    order = np.argsort(flat, kind="stable")  # so that each page is read once for all queries
    order = order[flat[order] >= 0]
    for start in range(0, len(order), _RESCORED):
        at = order[start : start + _RESCORED]
        taken = vectors.take(flat[at]).astype(np.float64)
        scores[at] = np.einsum("nd,nd->n", taken, queries[at // rows.shape[1]])
        if lean:
            vectors.give_back()
    return scores.reshape(rows.shape)


def _above(
    found: FloatArray, highest: FloatArray, bound: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Query, row and score of each score of a block that is above the bound of its query.

    found (FloatArray): Contiguous. Shape (n_rows, n_queries).
    highest (FloatArray): Result of `_highest_of_groups`.
    """
    n_rows, n_queries = found.shape
    group, query = np.divmod(np.flatnonzero(highest > bound), n_queries)
    places = (group * (_GROUP * n_queries) + query)[:, None] + np.arange(_GROUP) * n_queries
    scores = found.reshape(-1).take(places, mode="clip")
    kept = np.flatnonzero(scores > bound[query][:, None])
    query, row = query[kept // _GROUP], group[kept // _GROUP] * _GROUP + kept % _GROUP
    is_row = row < n_rows
    return query[is_row], row[is_row], scores.reshape(-1)[kept][is_row]


def _merged(
    best: NDArray[np.uint64], query: NDArray[np.uint16], keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """The best keys of each query, ascending, among its best ones so far and new ones.

    Sorting numbers is ten times as fast as sorting positions by two keys.
    """
    n_queries, width = best.shape
    order = np.argsort(query, kind="stable")
    counts = np.bincount(query, minlength=n_queries)
    place = entries_of(np.full(n_queries, width), counts)[1]
    table = np.full((n_queries, width + counts.max(initial=0)), _NONE)
    table[:, :width] = best
    table[query[order], place] = keys[order]
    table.sort(axis=1)
    return table[:, :width]


def _highest_of_groups(found: FloatArray) -> FloatArray:
    """Highest score of each group of `_GROUP` rows, and of the remaining rows (-inf if none).

    found (FloatArray): Shape (n, n_queries); returns shape (n // _GROUP + 1, n_queries).
    """
    n_groups = len(found) // _GROUP
    groups = found[: n_groups * _GROUP].reshape(n_groups, _GROUP, found.shape[1])
    left = found[n_groups * _GROUP :].max(axis=0, keepdims=True, initial=-np.inf)
    return np.concatenate([groups.max(axis=1), left])


def _keys(scores: FloatArray, rows: IntArray) -> NDArray[np.uint64]:
    """Sort keys of rows: lower for a higher score, then for a lower row."""
    first = _reversed(scores.view(np.uint32)).astype(np.uint64) << np.uint64(32)
    return first | rows.astype(np.uint64)


def _scores(keys: NDArray[np.uint64]) -> FloatArray:
    """Scores of keys; NaN for `_NONE`."""
    return _reversed((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)


def _reversed(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Map the bits of float32 to integers in the reverse order, and back."""
    # The bits of positive numbers are in their order, the bits of negative numbers in reverse.
    return np.where(bits >> np.uint32(31), bits, ~bits & np.uint32((1 << 31) - 1))


# Fewer vectors are compared in full, which takes no longer.
HEAD_NAMES = 1 << 15
_SAMPLE = 1 << 14  # vectors that the components are computed of
_BLOCK = 1 << 14  # vectors per block of their projection
_REST = 0.4  # what a rest is likely to add to a product, for its length
_WHOLE = 1 << 24  # whole numbers below it are exact in float32, and so are their sums
# Candidates for each wanted one, and the stride of the sample that bounds them.
_POOL, _EVERY = 4, 8
_ROWS = 1 << 12  # heads per block, which fit into the cache of the processor


def coarse_codes_of(vectors: QuantizedVectors) -> CoarseCodes | None:
    """Compute the heads of unit vectors; None: they are too few to need them."""
    n, dim = vectors.shape
    if n < HEAD_NAMES:
        return None
    with one_thread_each():  # the rounding of products depends on the number of threads
        sample = vectors.take(np.arange(0, n, max(1, n // _SAMPLE)))
        components = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : (dim + 1) // 2]
        # A step of its own for each component; queries are multiplied by it.
        step = np.maximum(np.abs(_stretched(sample @ components)).max(axis=0), 1e-6) / 127
        codes = np.empty((n, len(step)), np.int8)
        for start in range(0, n, _BLOCK):
            rows = slice(start, start + _BLOCK)
            coarse = _stretched(vectors.take(rows) @ components) / step
            codes[rows] = np.clip(np.rint(coarse), -127, 127)
    return CoarseCodes(codes, np.ascontiguousarray(components * step, np.float32))


def _stretched(coarse: FloatArray) -> FloatArray:
    """Lengthen heads: the shorter they are, the more of their vectors is likely in the rest."""
    length = np.linalg.norm(coarse, axis=1, keepdims=True)
    return coarse * (1 + _REST * np.sqrt(np.maximum(0, 1 - length**2)) / np.maximum(length, 1e-6))


@dataclass(eq=False)
class TwoStageIndex(ExactIndex):
    """Like exact search, among the vectors whose heads are nearest; see `coarse_codes_of`.

    CoarseCodes are compared in whole numbers, whose sums are exact: which names are found depends neither
    on the other queries nor on the processor.
    """

    def _candidates(self, queries: FloatArray, *, width: int) -> IntArray:
        """Best rows of the nearest heads, by their first eight bits; as `ExactIndex` has them."""
        query, row = self._near(queries, n=_POOL * width)
        bounds = np.searchsorted(query, np.arange(len(queries) + 1))
        best = np.full((len(queries), width), -1, np.int64)
        for i, vector in enumerate(queries):
            own = row[bounds[i] : bounds[i + 1]]
            scores = self.vectors.codes[own].astype(np.float32) @ vector
            scores *= self.vectors.scales[own]
            if len(own) > width:
                own = own[np.argpartition(scores, -width)[-width:]]
            best[i, : len(own)] = own
        return best

    def _near(self, queries: FloatArray, *, n: int) -> tuple[IntArray, IntArray]:
        """Query and row of the some n nearest heads of each query, by query."""
        assert self.vectors.coarse is not None  # whoever made this index has looked
        coarse, projection = self.vectors.coarse
        # In float64, so that no other query makes it another whole number.
        wanted = queries.astype(np.float64) @ projection
        largest = np.abs(wanted).max(axis=1, keepdims=True)
        # Not so large that a sum of products could be no whole number.
        wanted *= (_WHOLE // (128 * coarse.shape[1]) - 1) / np.maximum(largest, 1e-12)
        wanted = np.rint(wanted).T.astype(np.float32, order="C")
        sample = (coarse[::_EVERY].astype(np.float32) @ wanted).T.copy()
        at = max(0, sample.shape[1] - n // _EVERY)
        bound = np.partition(sample, at, axis=1)[:, at]
        size = min(_ROWS, len(coarse))
        rows = np.empty((size, coarse.shape[1]), np.float32)
        found = np.empty((size, len(queries)), np.float32)
        places = []
        for start in range(0, len(coarse), size):
            m = min(size, len(coarse) - start)
            np.copyto(rows[:m], coarse[start : start + m])
            np.matmul(rows[:m], wanted, out=found[:m])
            places.append(np.flatnonzero(found[:m] >= bound) + start * len(queries))
        row, query = np.divmod(np.concatenate(places), len(queries))
        by_query = np.argsort(query, kind="stable")
        return query[by_query], row[by_query]
