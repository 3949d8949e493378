"""Approximate dense search with faiss, with exact scores, for large knowledge bases."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns import RawFile, checksum, give_back
from spacy_bioel.kb.knowledge_base import StringColumn
from spacy_bioel.kb.vectors import (
    Encode,
    ExactIndex,
    QuantizedVectors,
    Steps,
    TwoStageIndex,
    checked_queries,
    rescored,
)
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import FloatArray, IntArray

_NONE = -1.0  # threshold that every cosine reaches

# Up to this number of names, search is exact.
ANN_NAMES = 200_000
_PER_WANTED, _LEAST = 4, 128  # candidates with exact scores: for each result, and at least
_ROWS = 1 << 16  # vectors per call of `index.add`
_TRAIN_PER_LIST = 64
_QUERIES = 2000  # queries that measure recall
# Lists to probe: the first number for all queries, the next ones if the nearest name is far.
_N_PROBE = (128, 1024, 4096)
# Measured queries above the threshold for which more lists may still have a nearer name.
_MISSED = 1


@dataclass(eq=False)
class FaissIndex:
    """Search by inner product in the lists of an inverted file that are nearest to a query.

    Names in these lists are compared by product quantisation (André et al., 2017: "4-bit fast
    scan"), a quarter of a byte per number, kept in memory. The best are then scored with their
    vectors, so that results have the scores and the order of `ExactIndex`.

    If a found name is near, a more distant list hardly ever has a nearer one. Only queries without
    a name near enough probe more lists; this does not depend on the other queries.
    """

    vectors: QuantizedVectors  # unit rows, possibly mapped
    index: Any  # faiss.IndexIVF
    steps: Steps  # numbers of lists to probe, each with the cosine from which a query stops

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """See `ExactIndex.search`."""
        from faiss import SearchParametersIVF

        queries = np.ascontiguousarray(checked_queries(queries, self.vectors))
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        unsure = np.arange(len(queries))
        for n_probe, near in self.steps:
            # Passed per call, since threads share the index.
            params = SearchParametersIVF()
            params.nprobe = int(n_probe)
            n_found = max(_PER_WANTED * k, _LEAST)
            _, found = self.index.search(queries[unsure], n_found, params=params)
            rows[unsure], scores[unsure] = rescored(
                self.vectors, queries[unsure], found, k=k, lean=True
            )
            unsure = unsure[scores[unsure, 0] < near]
        return rows, scores


def choose_index(vectors: QuantizedVectors) -> ExactIndex | FaissIndex:
    """Open the approximate index if there is one and faiss is installed, otherwise search by heads,
    or exactly where the vectors have none.

    Search over more than `ANN_NAMES` names without the index warns [W180].

    RAISES BioelError: [B184] damaged index.
    """
    if len(vectors) > ANN_NAMES:
        if vectors.ann is not None and has_faiss():
            return _open_index(vectors, vectors.ann)
        warnings.warn(Warnings.W180.format(n=len(vectors)), stacklevel=2)
    return ExactIndex(vectors) if vectors.coarse is None else TwoStageIndex(vectors)


def _open_index(vectors: QuantizedVectors, file: RawFile) -> FaissIndex:
    # On a damaged index faiss crashes or runs out of memory.
    if (found := checksum(file)) != (expected := vectors.ann_checksum):
        error = f"its checksum is {found}, expected {expected}"
        raise BioelError(Errors.B184.format(error=error))
    at = 0

    def read(n: int) -> bytes:
        nonlocal at
        at += n
        return file[at - n : at].tobytes()

    try:
        faiss: Any = import_module("faiss")
        # A mapped file can be read even if it was removed meanwhile.
        index = faiss.read_index(faiss.PyCallbackIOReader(read))
    except (ImportError, RuntimeError) as error:
        raise BioelError(Errors.B184.format(error=error)) from error
    give_back(file)  # faiss has a copy of its own
    return FaissIndex(vectors, index, vectors.ann_steps)


def write_index(
    names: StringColumn, vectors: QuantizedVectors, encode: Encode, path: Path
) -> dict[str, Any] | None:
    """Build the approximate index of more than `ANN_NAMES` names, if faiss is installed.

    Names with one changed character measure the recall of the nearest name and of the 10 nearest,
    and the cosine from which a query needs no more lists.

    RETURNS (dict | None): kind, bytes, steps, queries, recall@1, recall@10; None: no index.
    RAISES OSError: When the file is not writable.
    """
    if len(vectors) <= ANN_NAMES or not has_faiss():
        return None
    import faiss

    n, dim = vectors.shape
    n_lists = int(4 * n**0.5)
    # r: the quantiser encodes residuals from the centre of the list.
    kind = f"IVF{n_lists},PQ{dim // 2 if dim % 2 == 0 else dim}x4fsr"
    index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    sample = np.random.default_rng(0).choice(n, min(n, n_lists * _TRAIN_PER_LIST), replace=False)
    index.train(vectors.take(np.sort(sample)))
    for start in range(0, n, _ROWS):
        index.add(vectors.take(slice(start, start + _ROWS)))
    queries = encode(_misspelled(names))
    approximate = FaissIndex(vectors, index, [])
    approximate.steps = steps = _steps(approximate, queries)
    found, _ = approximate.search(queries, 10)
    exact, _ = ExactIndex(vectors).search(queries, 10)
    at_1 = (found[:, 0] == exact[:, 0]).mean()
    at_10 = (found[:, :, None] == exact[:, None, :]).any(axis=1).mean()
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(str(error)) from error
    recall = {"recall@1": round(float(at_1), 5), "recall@10": round(float(at_10), 5)}
    about = {"kind": kind, "bytes": path.stat().st_size, "steps": steps}
    return about | {"queries": len(queries)} | recall


def _misspelled(names: StringColumn) -> list[str]:
    """Sample of names with one changed character, the same in every run."""
    random = np.random.default_rng(0)
    rows = random.choice(len(names), min(len(names), _QUERIES), replace=False)
    changed = []
    for name in names.take(rows):
        letters = list(normalize_name(name))
        letters[random.integers(len(letters))] = chr(ord("a") + random.integers(26))
        changed.append(normalize_name("".join(letters)))
    return changed


def _steps(approximate: FaissIndex, queries: FloatArray) -> Steps:
    """Numbers of lists to probe, each with the cosine from which a query stops."""
    # Probing more lists than the index has makes faiss return arbitrary rows.
    *numbers, most = sorted({min(n_probe, approximate.index.nlist) for n_probe in _N_PROBE})
    _, nearest = replace(approximate, steps=[[most, _NONE]]).search(queries, 1)
    steps = []
    for n_probe in numbers:
        _, found = replace(approximate, steps=[[n_probe, _NONE]]).search(queries, 1)
        steps.append([n_probe, near_enough(found[:, 0], nearest[:, 0])])
        unsure = found[:, 0] < steps[-1][1]
        queries, nearest = queries[unsure], nearest[unsure]
    return [*steps, [most, _NONE]]


def near_enough(found: FloatArray, nearest: FloatArray) -> float:
    """Cosine from which the best result of a search is the nearest name, with rare exceptions.

    found, nearest (FloatArray): Cosines of the best results with few and with all lists.
    RETURNS (float): Threshold; -1 if the search missed at most `_MISSED` nearest names.
    """
    missed = np.sort(found[found < nearest])[::-1]
    return math.ceil(1e4 * missed[_MISSED]) / 1e4 if len(missed) > _MISSED else _NONE


def has_faiss() -> bool:
    return find_spec("faiss") is not None
