"""The names of a knowledge base, or a part of them, as vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.vectors.quantized import QuantizedVectors
from spacy_bioel.pipeline.linker.evidence import NameSearch

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class EncodedNames:
    """Names of a knowledge base with their vectors, and the search among them.

    vectors (QuantizedVectors): Unit rows, possibly mapped. Shape (n, dim).
    index (NameSearch): Over them.
    rows (IntArray | None): Their name rows, ascending; None: they are all names. Shape (n,).
    """

    vectors: QuantizedVectors
    index: NameSearch
    rows: IntArray | None = None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[IntArray, NDArray[np.float32]]:
        """Like `ExactIndex.search`, with name rows of the knowledge base."""
        found, scores = self.index.search(queries, k)
        if self.rows is not None:
            found = np.where(found >= 0, self.rows[found], -1)
        return found, scores

    def take(self, rows: IntArray) -> NDArray[np.float32]:
        """Vectors of name rows; zeros of those that are not here. Shape (len(rows), dim)."""
        if self.rows is None:
            return self.vectors.take(rows)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where((self.rows[at] == rows)[:, None], self.vectors.take(at), np.float32(0))
