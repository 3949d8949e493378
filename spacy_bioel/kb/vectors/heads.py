"""Search by the first half of the principal components, then among the nearest in full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spacy_bioel.kb.vectors.index import (
    ExactIndex,
    FloatArray,
    Heads,
    IntArray,
    QuantizedVectors,
)
from spacy_bioel.processor import one_thread_each

# Fewer vectors are compared in full, which takes no longer.
HEAD_NAMES = 1 << 15
_SAMPLE = 1 << 14  # vectors that the components are computed of
_BLOCK = 1 << 14  # vectors per block of their projection
_REST = 0.4  # what a rest is likely to add to a product, for its length
_WHOLE = 1 << 24  # whole numbers below it are exact in float32, and so are their sums
# Candidates for each wanted one, and the stride of the sample that bounds them.
_POOL, _EVERY = 4, 8
_ROWS = 1 << 12  # heads per block, which fit into the cache of the processor


def heads_of(vectors: QuantizedVectors) -> Heads | None:
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
            heads = _stretched(vectors.take(rows) @ components) / step
            codes[rows] = np.clip(np.rint(heads), -127, 127)
    return Heads(codes, np.ascontiguousarray(components * step, np.float32))


def _stretched(heads: FloatArray) -> FloatArray:
    """Lengthen heads: the shorter they are, the more of their vectors is likely in the rest."""
    length = np.linalg.norm(heads, axis=1, keepdims=True)
    return heads * (1 + _REST * np.sqrt(np.maximum(0, 1 - length**2)) / np.maximum(length, 1e-6))


@dataclass(eq=False)
class HeadIndex(ExactIndex):
    """Like exact search, among the vectors whose heads are nearest; see `heads_of`.

    Heads are compared in whole numbers, whose sums are exact: which names are found depends neither
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
        assert self.vectors.heads is not None  # whoever made this index has looked
        heads, projection = self.vectors.heads
        # In float64, so that no other query makes it another whole number.
        wanted = queries.astype(np.float64) @ projection
        largest = np.abs(wanted).max(axis=1, keepdims=True)
        # Not so large that a sum of products could be no whole number.
        wanted *= (_WHOLE // (128 * heads.shape[1]) - 1) / np.maximum(largest, 1e-12)
        wanted = np.rint(wanted).T.astype(np.float32, order="C")
        sample = (heads[::_EVERY].astype(np.float32) @ wanted).T.copy()
        at = max(0, sample.shape[1] - n // _EVERY)
        bound = np.partition(sample, at, axis=1)[:, at]
        size = min(_ROWS, len(heads))
        rows = np.empty((size, heads.shape[1]), np.float32)
        found = np.empty((size, len(queries)), np.float32)
        places = []
        for start in range(0, len(heads), size):
            m = min(size, len(heads) - start)
            np.copyto(rows[:m], heads[start : start + m])
            np.matmul(rows[:m], wanted, out=found[:m])
            places.append(np.flatnonzero(found[:m] >= bound) + start * len(queries))
        row, query = np.divmod(np.concatenate(places), len(queries))
        by_query = np.argsort(query, kind="stable")
        return query[by_query], row[by_query]
