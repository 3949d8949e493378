"""Approximate dense search with faiss for large knowledge bases; the scores are exact."""

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
    EncodeNames,
    ExactIndex,
    QuantizedVectors,
    Steps,
    checked_queries,
    rescored,
)
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import FloatArray, IntArray

_ANY_COSINE = -1.0  # a threshold that every cosine reaches.

# With up to this many names, search is always exact.
ANN_NAMES = 200_000
# Candidates to score exactly: the number per requested result, and the minimum per query.
_CANDIDATES_PER_RESULT, _MIN_CANDIDATES = 4, 128
_VECTORS_PER_ADD = 1 << 16  # number of vectors per call to `index.add`
_TRAIN_PER_LIST = 64  # number of training vectors per list of the index
_N_TEST_QUERIES = 2000  # number of queries used to measure recall.
# Numbers of lists to probe: a query that finds no near name in 128 lists is retried with more.
_N_PROBE = (128, 1024, 4096)
# Maximum number of test queries that may stop early and miss a nearer name.
_MAX_MISSED = 1


@dataclass(eq=False)
class FaissIndex:
    """Inverted-file index that searches only the lists of vectors nearest to a query.

    Names in the nearest lists are compared by product quantisation (André et al., 2017: "4-bit fast
    scan"), which keeps a quarter of a byte per value in memory. The best names are then scored
    with their full vectors, so that results have the same scores and order as in `ExactIndex`.

    If the best name is near, a more distant list hardly ever contains a nearer name. Only queries
    without a near name probe more lists. A query's results do not depend on the other queries.
    """

    vectors: QuantizedVectors  # one unit vector per name, possibly memory-mapped
    index: Any  # faiss.IndexIVF
    steps: Steps  # numbers of lists to probe, each with the cosine at which a query stops

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Find the k names nearest to each query, like `ExactIndex.search`."""
        from faiss import SearchParametersIVF

        queries = np.ascontiguousarray(checked_queries(queries, self.vectors))
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        unsure = np.arange(len(queries))
        n_candidates = max(_CANDIDATES_PER_RESULT * k, _MIN_CANDIDATES)
        for n_probe, near in self.steps:
            # Pass the parameters with each call, because threads share the index.
            params = SearchParametersIVF()
            params.nprobe = int(n_probe)
            _, candidates = self.index.search(queries[unsure], n_candidates, params=params)
            rows[unsure], scores[unsure] = rescored(
                self.vectors, queries[unsure], candidates, k=k, lean=True
            )
            unsure = unsure[scores[unsure, 0] < near]
        return rows, scores


def choose_index(vectors: QuantizedVectors) -> ExactIndex | FaissIndex:
    """Return the fastest available index for these vectors.

    The approximate index is used if there is one and faiss is installed, otherwise exact search.
    A warning [W180] is issued if more than `ANN_NAMES` names have no approximate index.

    RAISES BioelError: [B184] damaged index.
    """
    if len(vectors) > ANN_NAMES:
        if vectors.ann is not None and has_faiss():
            return _open_index(vectors, vectors.ann)
        warnings.warn(Warnings.W180.format(n=len(vectors)), stacklevel=2)
    return ExactIndex(vectors)


def _open_index(vectors: QuantizedVectors, file: RawFile) -> FaissIndex:
    # Check first: given a damaged index, faiss would crash or run out of memory.
    if (found := checksum(file.data)) != (expected := vectors.ann_checksum):
        raise BioelError(Errors.B184.format(error=f"its checksum is {found}, expected {expected}"))
    position = 0

    def read_next(n: int) -> bytes:
        nonlocal position
        position += n
        return file[position - n : position].tobytes()

    try:
        faiss: Any = import_module("faiss")
        # Read from the mapped bytes, because they stay readable even if the file is removed.
        index = faiss.read_index(faiss.PyCallbackIOReader(read_next))
    except (ImportError, RuntimeError) as error:
        raise BioelError(Errors.B184.format(error=error)) from error
    give_back(file)  # faiss has its own copy of the index
    return FaissIndex(vectors, index, vectors.ann_steps)


def write_index(
    names: StringColumn, vectors: QuantizedVectors, encode: EncodeNames, path: Path
) -> dict[str, Any] | None:
    """Build an approximate index if there are more than `ANN_NAMES` names and faiss is installed.

    Recall@1, recall@10 and the cosine at which a query needs no more lists are measured with test
    queries: names with one character changed.

    RETURNS (dict | None): kind, steps, queries, recall@1, recall@10; None if there is no index.
    RAISES OSError: If the file is not writable.
    """
    if len(vectors) <= ANN_NAMES or not has_faiss():
        return None
    import faiss

    n, dim = vectors.shape
    n_lists = int(4 * n**0.5)
    # The "r" stands for residual: the quantiser encodes each vector minus its list's centre.
    kind = f"IVF{n_lists},PQ{dim // 2 if dim % 2 == 0 else dim}x4fsr"
    index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    sample = np.random.default_rng(0).choice(n, min(n, n_lists * _TRAIN_PER_LIST), replace=False)
    index.train(vectors.take(np.sort(sample)))
    for start in range(0, n, _VECTORS_PER_ADD):
        index.add(vectors.take(slice(start, start + _VECTORS_PER_ADD)))
    queries = encode(_misspelled_names(names))
    approximate = FaissIndex(vectors, index, [])
    approximate.steps = _choose_steps(approximate, queries)
    rows, _ = approximate.search(queries, 10)
    exact_rows, _ = ExactIndex(vectors).search(queries, 10)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return {
        "kind": kind,
        "steps": approximate.steps,
        "queries": len(queries),
        "recall@1": round(float((rows[:, 0] == exact_rows[:, 0]).mean()), 5),
        "recall@10": round(float((rows[:, :, None] == exact_rows[:, None]).any(axis=1).mean()), 5),
    }


def _misspelled_names(names: StringColumn) -> list[str]:
    """Sample names and change one character in each. The result is the same in every run."""
    random = np.random.default_rng(0)
    rows = random.choice(len(names), min(len(names), _N_TEST_QUERIES), replace=False)
    misspelled = []
    for name in names.take(rows):
        letters = list(normalize_name(name))
        letters[random.integers(len(letters))] = chr(ord("a") + random.integers(26))
        misspelled.append(normalize_name("".join(letters)))
    return misspelled


def _choose_steps(approximate: FaissIndex, queries: FloatArray) -> Steps:
    """Choose how many lists to probe at each step, and the cosine at which a query stops."""
    # faiss returns arbitrary rows if asked to probe more lists than the index has.
    *numbers, largest = sorted({min(n_probe, approximate.index.nlist) for n_probe in _N_PROBE})
    _, nearest = replace(approximate, steps=[[largest, _ANY_COSINE]]).search(queries, 1)
    steps = []
    for n_probe in numbers:
        _, best = replace(approximate, steps=[[n_probe, _ANY_COSINE]]).search(queries, 1)
        threshold = near_enough(best[:, 0], nearest[:, 0])
        steps.append([n_probe, threshold])
        unsure = best[:, 0] < threshold
        queries, nearest = queries[unsure], nearest[unsure]
    return [*steps, [largest, _ANY_COSINE]]


def near_enough(best: FloatArray, nearest: FloatArray) -> float:
    """Return the cosine above which probing a few lists is enough to find the nearest name.

    best, nearest (FloatArray): Cosines of the best results in few lists and in all lists.
    RETURNS (float): Threshold, with at most `_MAX_MISSED` exceptions; -1 if the search missed at
        most `_MAX_MISSED` nearest names.
    """
    if len(missed := np.sort(best[best < nearest])[::-1]) <= _MAX_MISSED:
        return _ANY_COSINE
    return math.ceil(1e4 * missed[_MAX_MISSED]) / 1e4


def has_faiss() -> bool:
    return find_spec("faiss") is not None
