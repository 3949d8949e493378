"""Exact search for the names whose vectors are nearest to a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
Mask = NDArray[np.bool_]

_QUERIES = 256  # queries that are scored together: bounds the block of scores
_SPARE = 8  # candidates beyond k that are scored again, so that ties at the cut are seen


class ExactIndex:
    """Search by inner product over all vectors, block by block; nothing is approximated.

    The scores of a query do not depend on the queries that it is searched with, and ties go to
    the lower row.

    vectors (NDArray): Unit rows, float16 or float32, possibly mapped. Shape (n_rows, dim).
    block_rows (int): Rows that are converted to float32 at a time.
    """

    def __init__(self, vectors: NDArray[np.floating], *, block_rows: int = 16384) -> None:
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
        queries = np.asarray(queries, dtype=np.float32)
        self._check(queries, allowed)
        shape = len(queries), k + _SPARE
        rows, scores = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        for block_rows, block in self._blocks(allowed):
            for start in range(0, len(queries), _QUERIES):
                part = slice(start, start + _QUERIES)
                found = queries[part] @ block.T
                rows[part], scores[part] = _merge(rows[part], scores[part], found, block_rows)
        return self._rescore(queries, rows, k=k)

    def _check(self, queries: FloatArray, allowed: Mask | None) -> None:
        n, dim = self.vectors.shape
        if queries.ndim != 2 or queries.shape[1] != dim:
            found, expected = f"queries of shape {queries.shape}", f"(n_queries, {dim})"
            raise BioelError(Errors.B036.format(found=found, expected=expected))
        if allowed is not None and allowed.shape != (n,):
            found, expected = f"a mask of shape {allowed.shape}", f"({n},)"
            raise BioelError(Errors.B036.format(found=found, expected=expected))

    def _blocks(self, allowed: Mask | None) -> Iterator[tuple[IntArray, FloatArray]]:
        """Row numbers, ascending, and their vectors in float32, valid until the next block."""
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        # One buffer for all blocks: fresh memory would cost more than the conversion.
        buffer = np.empty((min(len(rows), self.block_rows), self.vectors.shape[1]), np.float32)
        for start in range(0, len(rows), self.block_rows):
            block = rows[start : start + self.block_rows]
            whole = len(block) == block[-1] - block[0] + 1  # a slice is faster than a gather
            vectors = self.vectors[block[0] : block[-1] + 1] if whole else self.vectors[block]
            buffer[: len(block)] = vectors
            yield block, buffer[: len(block)]

    def _rescore(
        self, queries: FloatArray, rows: IntArray, *, k: int
    ) -> tuple[IntArray, FloatArray]:
        """Score the candidates again in float64, whose rounding does not depend on the batch."""
        best_rows = np.full((len(queries), k), -1, np.int64)
        best_scores = np.full((len(queries), k), -np.inf, np.float32)
        if not len(self):
            return best_rows, best_scores
        for start in range(0, len(queries), _QUERIES):
            part = slice(start, start + _QUERIES)
            vectors = self.vectors[np.maximum(rows[part], 0)].astype(np.float64)
            exact = np.einsum("qkd,qd->qk", vectors, queries[part].astype(np.float64))
            scores = np.where(rows[part] >= 0, exact, -np.inf).astype(np.float32)
            order = np.lexsort((rows[part], -scores))[:, :k]
            best_rows[part] = np.take_along_axis(rows[part], order, axis=1)
            best_scores[part] = np.take_along_axis(scores, order, axis=1)
        return best_rows, best_scores


def create_exact_index_v1(
    block_rows: int = 16384,
) -> Callable[[NDArray[np.floating]], ExactIndex]:
    """spacy-bioel.ExactIndex.v1: from the vectors of a knowledge base to an `ExactIndex`."""

    # Not a closure: a pipeline that holds it has to be picklable.
    return partial(ExactIndex, block_rows=block_rows)


def _merge(
    rows: IntArray, scores: FloatArray, found: FloatArray, block_rows: IntArray
) -> tuple[IntArray, FloatArray]:
    """Put the scores of one block into the running best, which stays sorted.

    rows, scores (NDArray): The best so far, all of earlier blocks. Shape (n_queries, width).
    found (FloatArray): Scores of the block. Shape (n_queries, n_block).
    block_rows (IntArray): Row numbers of the block, ascending. Shape (n_block,).
    RETURNS (tuple): The new best, same shapes as rows and scores.
    """
    n, width = rows.shape
    # Later rows lose ties, so only those above the worst that is kept can come in: after the
    # first blocks these are few, and no block needs sorting.
    better = found > scores[:, -1:]
    if found.shape[1] > width and np.count_nonzero(better) > 4 * n * width:
        at = found.shape[1] - width
        better &= found >= np.partition(found, at, axis=1)[:, at, None]
    flat = np.flatnonzero(better)  # several times faster than np.nonzero of a matrix
    query, column = np.divmod(flat, found.shape[1])
    if not len(query):
        return rows, scores
    all_queries = np.concatenate([np.repeat(np.arange(n), width), query])
    all_scores = np.concatenate([scores.ravel(), found[query, column]])
    all_rows = np.concatenate([rows.ravel(), block_rows[column]])
    order = np.lexsort((all_rows, -all_scores, all_queries))
    counts = np.bincount(query, minlength=n) + width
    starts = np.cumsum(counts) - counts
    kept = order[starts[:, None] + np.arange(width)]
    return all_rows[kept], all_scores[kept]
