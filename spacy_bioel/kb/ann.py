"""Approximate search by faiss, whose candidates are scored exactly; for large knowledge bases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns import StringColumn
from spacy_bioel.kb.index import ExactIndex, checked_queries, rescored
from spacy_bioel.kb.quantized import FloatArray, IntArray, QuantizedVectors
from spacy_bioel.text.normalize import normalize_name

Encode = Callable[[Sequence[str]], FloatArray]

# Up to this many names are searched exactly.
ANN_NAMES = 200_000
_PER_WANTED, _LEAST = 4, 256  # candidates that are scored exactly: for each wanted, and at least
_ROWS = 1 << 16  # vectors that are added at a time
_TRAIN_PER_LIST = 64
_QUERIES = 2000  # what recall is measured with
_N_PROBE = (64, 128, 256, 512, 1024)  # lists that are looked at: the first that reaches the recall
_RECALL = 0.999


class FaissIndex:
    """Search by inner product in the lists of an inverted file that are nearest to a query.

    Names in these lists are compared by product quantisation (André et al., 2017: "4-bit fast
    scan"), a quarter of a byte a number, which is in memory; the best are then scored by their
    vectors, so that what is found has the score and the order that `ExactIndex` would give it.

    vectors (QuantizedVectors): Unit rows, possibly mapped.
    index (faiss.IndexIVF): Over them.
    """

    def __init__(self, vectors: QuantizedVectors, index: Any) -> None:
        self.vectors = vectors
        self.index = index

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """See `ExactIndex.search`."""
        queries = np.ascontiguousarray(checked_queries(queries, self.vectors))
        _, rows = self.index.search(queries, max(_PER_WANTED * k, _LEAST))
        return rescored(self.vectors, queries, rows, k=k)


def open_index(vectors: QuantizedVectors, *, n_probe: int | None = None) -> ExactIndex | FaissIndex:
    """Read the approximate index of vectors; up to `ANN_NAMES` of them are searched exactly.

    n_probe (int | None): Lists to look at; None: what reached the recall when it was built.
    RAISES BioelError: [B183] without an index, [B184] with one that faiss cannot read.
    """
    if len(vectors) <= ANN_NAMES:
        return ExactIndex(vectors)
    if vectors.ann_file is None:
        raise BioelError(Errors.B183.format(n=len(vectors), least=ANN_NAMES))
    try:
        import faiss

        index: Any = faiss.read_index(str(vectors.ann_file))
    except (ImportError, RuntimeError) as error:
        raise BioelError(Errors.B184.format(path=vectors.ann_file, error=error)) from error
    if n_probe is not None:
        index.nprobe = n_probe
    return FaissIndex(vectors, index)


def choose_index(vectors: QuantizedVectors) -> ExactIndex | FaissIndex:
    """The approximate index of vectors, if there is one and faiss is installed; else exact search.

    A warning [W180] says when more than `ANN_NAMES` names are searched exactly.
    """
    if len(vectors) > ANN_NAMES:
        if vectors.ann_file and _has_faiss():
            return open_index(vectors)
        warnings.warn(Warnings.W180.format(n=len(vectors)), stacklevel=2)
    return ExactIndex(vectors)


def create_faiss_index_v1(
    n_probe: int | None = None,
) -> Callable[[QuantizedVectors], ExactIndex | FaissIndex]:
    """spacy-bioel.FaissIndex.v1: see `open_index`."""
    return partial(open_index, n_probe=n_probe)


def create_auto_index_v1() -> Callable[[QuantizedVectors], ExactIndex | FaissIndex]:
    """spacy-bioel.AutoIndex.v1: see `choose_index`."""
    return choose_index


def write_index(
    names: StringColumn, vectors: QuantizedVectors, encode: Encode, path: Path
) -> dict[str, Any] | None:
    """Build the approximate index of more than `ANN_NAMES` names, if faiss is installed.

    It is measured with names of which one character was changed: how many of the nearest, and of
    the 10 nearest, it finds. It looks at more lists until it finds 99.9 % of the 10 nearest, and at
    1,024 at most.

    names (StringColumn): Those of `vectors`.
    encode (Encode): The encoder of both.
    path (Path): Written to.
    RETURNS (dict | None): kind, bytes, n_probe, queries, recall@1, recall@10; None: none was built.
    RAISES OSError: When it cannot be written.
    """
    if len(vectors) <= ANN_NAMES or not _has_faiss():
        return None
    import faiss

    n, dim = vectors.shape
    n_lists = int(4 * n**0.5)
    kind = f"IVF{n_lists},PQ{dim // 2 if dim % 2 == 0 else dim}x4fs"
    empty = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    index = _filled(empty, vectors, n_lists=n_lists)
    measured = _tune(index, vectors, encode(_misspelled(names)))
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return {"kind": kind, "bytes": path.stat().st_size, **measured}


def _filled(index: Any, vectors: QuantizedVectors, *, n_lists: int) -> Any:
    """Train an index on a part of the vectors, and add all."""
    n = len(vectors)
    sample = np.random.default_rng(0).choice(n, min(n, n_lists * _TRAIN_PER_LIST), replace=False)
    index.train(vectors.take(np.sort(sample)))
    for start in range(0, n, _ROWS):
        index.add(vectors.take(slice(start, start + _ROWS)))
    return index


def _misspelled(names: StringColumn) -> list[str]:
    """Some names with one character changed; always the same ones."""
    random = np.random.default_rng(0)
    rows = random.choice(len(names), min(len(names), _QUERIES), replace=False)
    changed = []
    for name in names.take(rows):
        letters = list(normalize_name(name))
        letters[random.integers(len(letters))] = chr(ord("a") + random.integers(26))
        changed.append(normalize_name("".join(letters)))
    return changed


def _tune(index: Any, vectors: QuantizedVectors, queries: FloatArray) -> dict[str, Any]:
    """Raise the number of lists until the recall is reached; returns it and the recall."""
    exact, _ = ExactIndex(vectors).search(queries, 10)
    for n_probe in _N_PROBE:
        index.nprobe = n_probe
        found, _ = FaissIndex(vectors, index).search(queries, 10)
        at_1 = (found[:, 0] == exact[:, 0]).mean()
        at_10 = (found[:, :, None] == exact[:, None, :]).any(axis=1).mean()
        if at_10 >= _RECALL:
            break
    recall = {"recall@1": round(float(at_1), 5), "recall@10": round(float(at_10), 5)}
    return {"n_probe": n_probe, "queries": len(queries), **recall}


def _has_faiss() -> bool:
    return find_spec("faiss") is not None
