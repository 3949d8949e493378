"""What speaks for each candidate: one table for a whole batch of queries, numpy columns only.

Each source (exact name, training memory, dense search) proposes concepts; the table has one row
for every pair of query and concept with all its features, and knows nothing of how they are
weighed, which is `pipeline.fusion`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.text.variants import spelling_variants

# Columns of the feature matrix.
#   exact: the query is a name of the concept (0.8 for a spelling variant of it)
#   preferred: ... and the preferred one
#   unique: ... and of no other concept
#   memory: share of this concept among the training mentions of this string
#   seen: log of 1 + how often this string was this concept in training
#   dense: cosine of the best name of the concept
#   nearest: the concept has the name nearest to the query
#   prior: log of 1 + how often the concept was mentioned in training
FEATURES = ("exact", "preferred", "unique", "memory", "seen", "dense", "nearest", "prior")
_COLUMN = {name: index for index, name in enumerate(FEATURES)}
_VARIANT = 0.8
EXACT, MEMORY, DENSE = 1, 2, 4
SOURCES = {EXACT: "exact", MEMORY: "memory", DENSE: "dense"}

IntArray = NDArray[np.int64]


class NameSearch(Protocol):
    """Nearest names of unit vectors; `kb.index.ExactIndex` is one."""

    def search(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[IntArray, NDArray[np.float32]]: ...


class Memory:
    """How often each string was linked to each concept in the training corpus.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, ids in (counts or {}).items():
            self.counts[name].update(ids)

    def add(self, name: str, concept_id: str) -> None:
        self.counts[name][concept_id] += 1

    def prior(self, kb: KnowledgeBase) -> NDArray[np.float32]:
        """log(1 + mentions) of each concept of `kb`. Shape (n_concepts,)."""
        totals: Counter[str] = Counter()
        for ids in self.counts.values():
            totals.update(ids)
        prior = np.zeros(len(kb), dtype=np.float32)
        rows = kb.find_all(list(totals))
        known = rows >= 0
        np.add.at(prior, rows[known], np.array(list(totals.values()), dtype=np.float32)[known])
        return np.log1p(prior)


@dataclass(frozen=True)
class Candidates:
    """Candidates of a batch of queries, grouped by query.

    query, concept, name (IntArray): Query number, concept row, name row that matched (-1: the
        string itself was seen in training). Shape (n,).
    features (NDArray[float32]): Shape (n, len(FEATURES)).
    sources (NDArray[uint8]): Bits EXACT, MEMORY, DENSE. Shape (n,).
    """

    query: IntArray
    concept: IntArray
    name: IntArray
    features: NDArray[np.float32]
    sources: NDArray[np.uint8]


@dataclass
class _Proposals:
    """What one source says: a value for one feature of (query, concept), by way of a name."""

    query: IntArray
    concept: IntArray
    name: IntArray
    values: dict[str, NDArray]
    source: int


def gather_candidates(
    queries: Sequence[str],
    kb: KnowledgeBase,
    *,
    memory: Memory,
    prior: NDArray[np.float32],
    dense: tuple[IntArray, NDArray[np.float32]] | None,
) -> Candidates:
    """Ask every source about every query.

    queries (Sequence[str]): Different normalised strings.
    prior (NDArray[float32]): `Memory.prior`. Shape (n_concepts,).
    dense (tuple | None): Name rows (-1: none) and cosines of the nearest names, shape
        (n_queries, k) each; None without an encoder.
    """
    proposals = [_exact(queries, kb), _remembered(queries, kb, memory)]
    if dense is not None:
        proposals.append(_nearest(kb, *dense))
    query = np.concatenate([p.query for p in proposals])
    concept = np.concatenate([p.concept for p in proposals])
    keys, pair = np.unique(query * len(kb) + concept, return_inverse=True)
    features = np.zeros((len(keys), len(FEATURES)), dtype=np.float32)
    sources = np.zeros(len(keys), dtype=np.uint8)
    name = np.full(len(keys), -1, dtype=np.int64)
    start = 0
    for p in proposals:
        rows = pair[start : start + len(p.query)]
        start += len(p.query)
        np.bitwise_or.at(sources, rows, np.uint8(p.source))
        for feature, values in p.values.items():
            np.maximum.at(features[:, _COLUMN[feature]], rows, values.astype(np.float32))
        # The best name of the first source that has one; within a source the best comes first.
        unnamed = name[rows] < 0
        first_rows, first = np.unique(rows[unnamed], return_index=True)
        name[first_rows] = p.name[unnamed][first]
    features[:, _COLUMN["prior"]] = prior[keys % len(kb)]
    return Candidates(keys // len(kb), keys % len(kb), name, features, sources)


def _exact(queries: Sequence[str], kb: KnowledgeBase) -> _Proposals:
    """Names equal to the query; its spelling variants only where there are none."""
    rows = kb.lookup_names(queries)
    strength = np.where(rows >= 0, 1.0, _VARIANT)
    absent = np.flatnonzero(rows < 0)
    variants = [(i, v) for i in absent for v in spelling_variants(queries[i])]
    found = kb.lookup_names([v for _, v in variants])
    for (i, _), row in zip(variants, found, strict=True):
        if rows[i] < 0:
            rows[i] = row
    indptr, concepts, preferred = kb.concepts_of_names(rows)
    query = np.repeat(np.arange(len(queries)), np.diff(indptr))
    value = strength[query]
    return _Proposals(
        query,
        concepts,
        rows[query],
        {
            "exact": value,
            "preferred": value * preferred,
            "unique": value / np.diff(indptr)[query],
            # A name is its own nearest neighbour, with or without an encoder.
            "dense": np.where(value == 1.0, 1.0, 0.0),
            "nearest": np.where(value == 1.0, 1.0, 0.0),
        },
        EXACT,
    )


def _remembered(queries: Sequence[str], kb: KnowledgeBase, memory: Memory) -> _Proposals:
    seen = [
        (i, concept_id, count, counts.total())
        for i, counts in ((i, memory.counts.get(query)) for i, query in enumerate(queries))
        if counts
        for concept_id, count in counts.items()
    ]
    concept = kb.find_all([concept_id for _, concept_id, *_ in seen])
    known = concept >= 0
    query = np.array([i for i, *_ in seen], dtype=np.int64)[known]
    count = np.array([count for *_, count, _ in seen], dtype=np.float32)[known]
    total = np.array([total for *_, total in seen], dtype=np.float32)[known]
    no_name = np.full(len(query), -1, dtype=np.int64)
    values = {"memory": count / total, "seen": np.log1p(count)}
    return _Proposals(query, concept[known], no_name, values, MEMORY)


def _nearest(kb: KnowledgeBase, rows: IntArray, cosines: NDArray[np.float32]) -> _Proposals:
    indptr, concepts, _ = kb.concepts_of_names(rows.ravel())
    entry = np.repeat(np.arange(rows.size), np.diff(indptr))
    query = entry // max(rows.shape[1], 1)
    cosine = cosines.ravel()[entry]
    # Equal to the best up to rounding: several names can be nearest.
    nearest = cosine >= cosines.max(axis=1, initial=-np.inf)[query] - 1e-5
    values = {"dense": np.maximum(cosine, 0.0), "nearest": nearest}
    return _Proposals(query, concepts, rows.ravel()[entry], values, DENSE)
