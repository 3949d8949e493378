"""Encoding of blocks of names to columns of vectors; known vectors are copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS
from spacy_bioel.kb.vectors.quantized import FloatArray, IntArray, QuantizedVectors, quantize

Encode = Callable[[Sequence[str]], FloatArray]
Columns = dict[str, NDArray[Any]]
Digests = NDArray[np.uint64]


def name_digests(names: Sequence[str]) -> Digests:
    """Digests of 128 bits, which identify names in stored vectors. Shape (n, 2)."""
    digests = (blake2b(name.encode("utf8"), digest_size=16).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(names), 2)


class KnownVectors:
    """Vectors of names that an encoder has encoded before, by the digest of the name.

    vectors (QuantizedVectors): Shape (n, dim).
    digests (Digests): Digests of the names. Shape (n, 2).
    """

    def __init__(self, vectors: QuantizedVectors, digests: Digests) -> None:
        self.vectors = vectors
        self._digests = digests
        self._order = np.argsort(digests[:, 0], kind="stable")
        self._sorted = digests[self._order, 0]

    def find(self, digests: Digests) -> IntArray:
        """Row of each name, -1 for new names. Shape (n,)."""
        if not len(self._sorted):
            return np.full(len(digests), -1)
        at = np.minimum(np.searchsorted(self._sorted, digests[:, 0]), len(self._sorted) - 1)
        rows = self._order[at]
        # Of names with the same first half only one is found; the others are encoded again.
        return np.where((self._digests[rows] == digests).all(axis=1), rows, -1)


def fill_block(
    columns: Columns,
    rows: range,
    names: Sequence[str],
    known: KnownVectors | None,
    *,
    encode: Encode,
    batch_size: int,
    report: Callable[[int], None],
) -> int:
    """Fill the rows of one block; vectors of known names are copied.

    Batches have names of similar length, which saves padding.

    columns (Columns): Columns to write to, see `VECTOR_COLUMNS`.
    rows (range): Rows of the block.
    names (Sequence[str]): Normalised names, one for each row.
    known (KnownVectors | None): Vectors to copy from.
    encode (Encode): From n names to vectors of shape (n, dim).
    batch_size (int): Names per call of `encode`.
    report (Callable): Called with the number of names after each batch.
    RETURNS (int): Number of encoded names.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape.
    """
    digests = name_digests(names)
    columns["digests"][rows.start : rows.stop] = digests
    old = np.full(len(names), -1) if known is None else known.find(digests)
    copied = np.flatnonzero(old >= 0)
    if known is not None and len(copied):
        _put(columns, rows.start + copied, known.vectors, old[copied])
        report(len(copied))
    new = sorted(np.flatnonzero(old < 0).tolist(), key=lambda i: len(names[i]))
    for at in range(0, len(new), batch_size):
        batch = new[at : at + batch_size]
        texts = [names[i] for i in batch]
        vectors = np.asarray(encode(texts), dtype=np.float32)
        _check_encoded(vectors, texts, dim=columns["codes"].shape[1])
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = quantize(vectors / np.maximum(norms, np.finfo(np.float32).tiny))
        _put(columns, rows.start + np.array(batch), unit, slice(None))
        report(len(batch))
    return len(new)


def _put(columns: Columns, rows: IntArray, vectors: QuantizedVectors, of: IntArray | slice) -> None:
    columns["codes"][rows] = vectors.codes[of]
    columns["fine"][rows] = vectors.fine[of]
    columns["scales"][rows] = vectors.scales[of]


def _check_encoded(vectors: FloatArray, names: Sequence[str], *, dim: int) -> None:
    expected = len(names), dim
    if vectors.shape != expected:
        found = f"numbers of shape {vectors.shape}"
    elif not np.isfinite(vectors).all():
        found = "NaN or infinity"
    else:
        return
    raise BioelError(
        Errors.B035.format(found=found, first=names[0], last=names[-1], expected=expected)
    )


def new_columns(n: int, dim: int) -> Columns:
    """Empty columns in memory."""
    shapes = column_shapes(n, dim)
    return {name: np.zeros(shapes[name], dtype) for name, dtype in VECTOR_COLUMNS.items()}


def column_shapes(n: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the columns of `VECTOR_COLUMNS`."""
    return {"codes": (n, dim), "fine": (n, dim), "scales": (n,), "digests": (n, 2)}


def vectors_of(columns: Columns, **ann: Any) -> QuantizedVectors:
    """Vectors of columns, without a copy; `ann` goes to `QuantizedVectors`."""
    parts = (columns[name] for name in ("codes", "fine", "scales"))
    return QuantizedVectors(*parts, **ann)
