"""Exact search for the names whose vectors are nearest to a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.quantized import FloatArray, IntArray, QuantizedVectors

Mask = NDArray[np.bool_]

_RESCORED = 4096  # candidates that are scored again together
_QUERIES = 256  # queries that are scored together: bounds the block of scores
_SPARE = 32  # candidates beyond k that are scored again, for the first scores are of 8 bits
_FIRST_ROWS = 1024  # of the first block
_PLACE_BITS = 24  # of the place of a candidate in the list that is sorted; a query takes 8


class ExactIndex:
    """Search by inner product over all vectors, block by block.

    All vectors are compared by their first eight bits, then the best by all bits. The scores of a
    query do not depend on the queries that it is searched with, and ties go to the lower row.

    vectors (QuantizedVectors): Unit rows, possibly mapped.
    block_rows (int): Rows that are scored at a time, at most.
    """

    def __init__(self, vectors: QuantizedVectors, *, block_rows: int = 16384) -> None:
        self.vectors = vectors
        self.block_rows = block_rows

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self, queries: FloatArray, k: int, *, allowed: Mask | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Find the k best rows for each query.

        queries (FloatArray): Shape (n_queries, dim).
        k (int): Rows wanted for each query.
        allowed (Mask | None): True for the rows that may be found; None: all. Shape (n_rows,).
        RETURNS (tuple): Rows and scores, best first, lower row first among equals; where there
            are fewer than k rows, the rest is -1 and -inf. Shape (n_queries, k) each.
        RAISES BioelError: [B036] when a shape does not fit the vectors.
        """
        queries = checked_queries(queries, self.vectors)
        if allowed is not None and allowed.shape != (len(self),):
            wrong, expected = f"a mask of shape {allowed.shape}", f"({len(self)},)"
            raise BioelError(Errors.B036.format(found=wrong, expected=expected))
        shape = len(queries), k + _SPARE
        rows, scores = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        for first in range(0, len(queries), _QUERIES):
            part = slice(first, first + _QUERIES)
            for start, stop in self._blocks():
                found = self.vectors.products(queries[part], start, stop)
                if allowed is not None:
                    found[~allowed[start:stop]] = -np.inf
                rows[part], scores[part] = _merge(rows[part], scores[part], found, start)
        return rescored(self.vectors, queries, rows, k=k)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ever larger ones: of the next one, about as many as are kept are better than these."""
        start = 0
        while start < len(self):
            size = min(max(start, _FIRST_ROWS), self.block_rows, len(self) - start)
            yield start, start + size
            start += size


def checked_queries(queries: FloatArray, vectors: QuantizedVectors) -> FloatArray:
    """Queries as float32; raises [B036] when they do not fit the vectors."""
    queries, dim = np.asarray(queries, dtype=np.float32), vectors.shape[1]
    if queries.ndim != 2 or queries.shape[1] != dim:
        found, expected = f"queries of shape {queries.shape}", f"(n_queries, {dim})"
        raise BioelError(Errors.B036.format(found=found, expected=expected))
    return queries


def rescored(
    vectors: QuantizedVectors, queries: FloatArray, rows: IntArray, *, k: int, lean: bool = False
) -> tuple[IntArray, FloatArray]:
    """The k best of candidates, scored in float64, whose rounding does not depend on the batch.

    rows (IntArray): Candidates of each query, -1 for none. Shape (n_queries, n_candidates).
    lean (bool): Keep no pages of the vectors in memory, which costs a query that is alone half a
        millisecond. For large knowledge bases.
    RETURNS (tuple): Rows and scores as `ExactIndex.search` has them. Shape (n_queries, k) each.
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
    """Scores of candidates, -inf for none. Shape of rows."""
    scores = np.full(rows.size, -np.inf, np.float32)
    flat = rows.ravel()
    order = np.argsort(flat, kind="stable")  # each page is read once, whatever the queries
    order = order[flat[order] >= 0]
    for start in range(0, len(order), _RESCORED):
        at = order[start : start + _RESCORED]
        taken = vectors.take(flat[at]).astype(np.float64)
        scores[at] = np.einsum("nd,nd->n", taken, queries[at // rows.shape[1]])
        if lean:
            vectors.give_back()
    return scores.reshape(rows.shape)


def create_exact_index_v1(block_rows: int = 16384) -> Callable[[QuantizedVectors], ExactIndex]:
    """spacy-bioel.ExactIndex.v1: from the vectors of a knowledge base to an `ExactIndex`."""

    # Not a closure: a pipeline that holds it has to be picklable.
    return partial(ExactIndex, block_rows=block_rows)


def _merge(
    rows: IntArray, scores: FloatArray, found: FloatArray, first_row: int
) -> tuple[IntArray, FloatArray]:
    """Put the scores of one block into the running best, which stays sorted.

    rows, scores (NDArray): The best so far, all of earlier blocks. Shape (n_queries, width).
    found (FloatArray): Scores of the block. Shape (n_block, n_queries).
    first_row (int): Row number of the first of the block.
    RETURNS (tuple): The new best, same shapes as rows and scores.
    """
    n, width = rows.shape
    # Later rows lose ties, so only those above the worst that is kept can come in: after the
    # first block these are few, and no block needs sorting.
    better = found > scores[:, -1]
    if len(found) > width and np.count_nonzero(better) > 4 * n * width:
        at = len(found) - width
        better &= found >= np.partition(found.T, at, axis=1)[:, at]
    flat = np.flatnonzero(better)  # several times faster than np.nonzero of a matrix
    row, query = np.divmod(flat, n)
    if not len(query):
        return rows, scores
    all_queries = np.concatenate([np.repeat(np.arange(n), width), query])
    all_scores = np.concatenate([scores.ravel(), found[row, query]])
    all_rows = np.concatenate([rows.ravel(), first_row + row])
    # By query, then the best score, then the place, which is in the order of the rows: as one
    # number, for numbers are sorted ten times as fast as places by three keys.
    keys = all_queries.astype(np.uint64) << np.uint64(_PLACE_BITS + 32)
    keys |= _descending(all_scores) << np.uint64(_PLACE_BITS)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << _PLACE_BITS) - 1)).astype(np.int64)
    counts = np.bincount(query, minlength=n) + width
    starts = np.cumsum(counts) - counts
    kept = order[starts[:, None] + np.arange(width)]
    return all_rows[kept], all_scores[kept]


def _descending(scores: FloatArray) -> NDArray[np.uint64]:
    """Numbers of 32 bits that are lower for higher scores. Shape of scores."""
    bits = scores.view(np.uint32)
    # Bits of positive numbers ascend with them, those of negative numbers descend.
    return np.where(bits >> np.uint32(31), bits, ~bits & np.uint32((1 << 31) - 1)).astype(np.uint64)
