"""Evidence for each candidate: one table for a whole batch of queries, numpy columns only.

Each source (exact names, mention statistics, search by encoder and by spelling) proposes concepts.
The table has one row for every pair of query and concept with all its features, and knows nothing
of how they are weighed, which is `linker.fusion`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.arrays import gather
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import word_overlap
from spacy_bioel.pipeline.linker.searches import Found, SpellingSearch
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.text.stems import spelling_variants

# Columns of the feature matrix.
#   exact: the query is a name of the concept (0.8 for a spelling variant of it)
#   preferred: ... and the preferred one
#   unique: ... divided by the number of concepts of that name
#   memory: share of this concept among the training mentions of this string
#   seen: log of 1 + how often this string was this concept in training
#   dense, sparse: cosine of the best name of the concept, by encoder and by character 3-grams
#   nearest, alike: the concept has the best of all names, by encoder and by 3-grams
#   recalled, recalled_dense: cosine of the best training string of the concept, by 3-grams and by
#       encoder, times the share of the concept in that string
#   dense_vote, sparse_vote, recalled_vote, recalled_dense_vote: share of the concept among all that
#       the search found, the near ones counting more, times the cosine of the nearest
#   words, covered: words that the best name that was found shares with the query, and the part of
#       the query that they are
#   prior: log of 1 + how often the concept was mentioned in training
#   encoded, trained: whether there is an encoder, and mention statistics, at all
FEATURES = (
    "exact", "preferred", "unique", "memory", "seen", "dense", "nearest", "sparse", "alike",
    "recalled", "recalled_dense", "dense_vote", "sparse_vote", "recalled_vote",
    "recalled_dense_vote", "words", "covered", "prior", "encoded", "trained",
)  # fmt: skip
# Sources that can be switched off. "prior" proposes no candidates of its own.
EVIDENCE = ("exact", "memory", "sparse", "dense", "prior")
_COLUMN = {name: index for index, name in enumerate(FEATURES)}
_OF_A_NAME = ("dense", "nearest", "sparse", "alike", "words", "covered")
_OF_A_STRING = ("recalled", "recalled_dense", "recalled_vote", "recalled_dense_vote")
_VARIANT = 0.8
_TEMPERATURE = 0.05  # a name farther by this cosine has 1/e of the vote
EXACT, MEMORY, DENSE, SPARSE = 1, 2, 4, 8
SOURCES = {EXACT: "exact", MEMORY: "memory", DENSE: "dense", SPARSE: "sparse"}

IntArray = NDArray[np.int64]


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
    """Values of features of (query, concept) from one source, by way of a name."""

    query: IntArray
    concept: IntArray
    name: IntArray
    values: dict[str, NDArray[Any]]
    source: int

    def of(self, queries: NDArray[np.bool_]) -> _Proposals:
        """Those of some queries. Shape (n_queries,)."""
        kept = queries[self.query]
        values = {name: value[kept] for name, value in self.values.items()}
        rows = (self.query[kept], self.concept[kept], self.name[kept])
        return _Proposals(*rows, values, self.source)


def gather_candidates(
    queries: Sequence[str],
    kb: KnowledgeBase,
    *,
    statistics: MentionStatistics,
    dense: Found | None,
    recalled: Found | None,
    spelling: SpellingSearch,
    k: int,
    evidence: Collection[str] = EVIDENCE,
) -> Candidates:
    """Ask every source about every query.

    queries (Sequence[str]): Different normalised strings.
    dense (Found | None): Nearest names of the knowledge base by the encoder, if there is one.
    recalled (Found | None): Nearest of `statistics.names` by the encoder.
    spelling (SpellingSearch): Searches the names of the knowledge base by spelling.
    k (int): Names looked at in the search by spelling.
    evidence (Collection[str]): Which of EVIDENCE to use.
    """
    if "memory" not in evidence:
        statistics = MentionStatistics()
    exact, counted = _exact(queries, kb), _counted(queries, kb, statistics)
    # Searching by spelling is for strings that are no name and were never seen: it is the
    # slowest source, and finds the string itself otherwise.
    certain = np.union1d(exact.query[exact.values["exact"] == 1.0], counted.query)
    if "exact" not in evidence:
        certain = counted.query
    unsure = np.setdiff1d(np.arange(len(queries)), certain)
    strings = [queries[i] for i in unsure]
    near: list[_Proposals] = []
    if "sparse" in evidence:
        sparse = _nearest(kb, strings, *spelling.search(strings, k), best="alike", value="sparse")
        found_strings = statistics.ngrams.search(strings, k)
        by_spelling = _recalled(kb, statistics, *found_strings, value="recalled")
        for proposals in (sparse, by_spelling):
            proposals.query = unsure[proposals.query]
            near.append(proposals)
    if "dense" in evidence and dense is not None:
        near.append(_nearest(kb, queries, *dense, best="nearest", value="dense"))
        if recalled is not None and "memory" in evidence:
            near.append(_recalled(kb, statistics, *recalled, value="recalled_dense"))
    # One letter is like nothing: "c" in "c/o" is no misspelt "CS".
    is_word = np.array([len(query) > 1 for query in queries], dtype=bool)
    found = [exact] if "exact" in evidence else []
    candidates = _merge([*found, counted, *(one.of(is_word) for one in near)], kb)
    if "prior" in evidence and "memory" in evidence:
        candidates.features[:, _COLUMN["prior"]] = statistics.concepts(kb).prior[candidates.concept]
    candidates.features[:, _COLUMN["encoded"]] = "dense" in evidence and dense is not None
    candidates.features[:, _COLUMN["trained"]] = bool(statistics.counts)
    return candidates


def _merge(found: list[_Proposals], kb: KnowledgeBase) -> Candidates:
    """One row a pair of query and concept, with the greatest value of each feature."""
    query = np.concatenate([p.query for p in found])
    concept = np.concatenate([p.concept for p in found])
    n = len(kb)
    keys, pair = np.unique(query * n + concept, return_inverse=True)
    features = np.zeros((len(keys), len(FEATURES)), dtype=np.float32)
    sources = np.zeros(len(keys), dtype=np.uint8)
    name = np.full(len(keys), -1, dtype=np.int64)
    start = 0
    for p in found:
        rows = pair[start : start + len(p.query)]
        start += len(p.query)
        np.bitwise_or.at(sources, rows, np.uint8(p.source))
        for feature, values in p.values.items():
            np.maximum.at(features[:, _COLUMN[feature]], rows, values.astype(np.float32))
        # The best name of the first source that has one; within a source the best comes first.
        unnamed = name[rows] < 0
        first_rows, first = np.unique(rows[unnamed], return_index=True)
        name[first_rows] = p.name[unnamed][first]
    return Candidates(keys // n, keys % n, name, features, sources)


def _exact(queries: Sequence[str], kb: KnowledgeBase) -> _Proposals:
    """Names equal to the query; its spelling variants only where there are none."""
    rows = kb.lookup_names(queries)
    strength = np.where(rows >= 0, 1.0, _VARIANT)
    variants = [
        (i, v) for i in np.flatnonzero(rows < 0).tolist() for v in spelling_variants(queries[i])
    ]
    found = kb.lookup_names([v for _, v in variants])
    for (i, _), row in zip(variants, found, strict=True):
        if rows[i] < 0:
            rows[i] = row
    indptr, concepts, preferred = kb.concepts_of_names(rows)
    query = np.repeat(np.arange(len(queries)), np.diff(indptr))
    value = strength[query]
    unique = value / np.diff(indptr)[query]
    # A name is its own nearest neighbour, a variant nearly so, whether or not anyone searched.
    values = {
        "exact": value,
        "preferred": value * preferred,
        "unique": unique,
        "dense_vote": unique,
        "sparse_vote": unique,
    } | dict.fromkeys(_OF_A_NAME, value)
    return _Proposals(query, concepts, rows[query], values, EXACT)


def _counted(
    queries: Sequence[str], kb: KnowledgeBase, statistics: MentionStatistics
) -> _Proposals:
    """Concepts that the query itself was linked to in training."""
    seen = [i for i, query in enumerate(queries) if query in statistics.rows]
    rows = np.array([statistics.rows[queries[i]] for i in seen], dtype=np.int64)
    query, concept, count, share = _concepts_of_strings(rows, kb, statistics)
    values = {"memory": share, "seen": np.log1p(count)} | dict.fromkeys(_OF_A_STRING, share)
    unnamed = np.full(len(query), -1, dtype=np.int64)
    return _Proposals(np.array(seen, dtype=np.int64)[query], concept, unnamed, values, MEMORY)


def _concepts_of_strings(
    rows: IntArray, kb: KnowledgeBase, statistics: MentionStatistics
) -> tuple[IntArray, IntArray, NDArray[np.float32], NDArray[np.float32]]:
    """Number of the string, concept row, count and share of the string's mentions; (n,) each.

    rows (IntArray): Of strings, in `statistics.names`. Shape (n_strings,).
    """
    of_strings = statistics.concepts(kb)
    indptr, at = gather(of_strings.offsets, rows)
    number = np.repeat(np.arange(len(rows)), np.diff(indptr))
    return number, of_strings.concepts[at], of_strings.counts[at], of_strings.shares[at]


def _nearest(
    kb: KnowledgeBase,
    queries: Sequence[str],
    rows: IntArray,
    cosines: NDArray[np.float32],
    *,
    best: str,
    value: str,
) -> _Proposals:
    """Concepts of the names that a search found."""
    different, number = np.unique(rows.ravel(), return_inverse=True)
    # The first may stand for no name, -1.
    n_none = int((different < 0).sum())
    names = [""] * n_none + normalize_names(kb.names.take(different[n_none:]))
    owner = np.repeat(np.arange(len(queries)), rows.shape[1])
    words, covered = word_overlap(queries, names, owner, number)
    indptr, concepts, _ = kb.concepts_of_names(rows.ravel())
    entry = np.repeat(np.arange(rows.size), np.diff(indptr))
    query = owner[entry]
    cosine = cosines.ravel()[entry]
    # Equal to the best up to rounding: several names can be nearest.
    is_best = cosine >= cosines.max(axis=1, initial=-np.inf)[query] - 1e-5
    values = {
        value: np.maximum(cosine, 0.0),
        f"{value}_vote": _votes(query, concepts, cosine),
        best: is_best,
        "words": words[entry],
        "covered": covered[entry],
    }
    source = DENSE if value == "dense" else SPARSE
    return _Proposals(query, concepts, rows.ravel()[entry], values, source)


def _recalled(
    kb: KnowledgeBase,
    statistics: MentionStatistics,
    rows: IntArray,
    cosines: NDArray[np.float32],
    *,
    value: str,
) -> _Proposals:
    """Concepts of the training strings that a search found."""
    entry = np.flatnonzero(rows.ravel() >= 0)
    number, concept, _, share = _concepts_of_strings(rows.ravel()[entry], kb, statistics)
    entry = entry[number]
    query = entry // max(rows.shape[1], 1)
    cosine = cosines.ravel()[entry]
    values: dict[str, NDArray[Any]] = {
        value: np.maximum(cosine, 0.0) * share,
        f"{value}_vote": _votes(query, concept, cosine, share),
    }
    unnamed = np.full(len(entry), -1, dtype=np.int64)
    return _Proposals(query, concept, unnamed, values, MEMORY)


def _votes(
    query: IntArray,
    concept: IntArray,
    cosine: NDArray[np.float32],
    share: NDArray[np.float32] | float = 1.0,
) -> NDArray[np.float64]:
    """Share of the concept of each entry among all that was found for its query, from 0 to 1.

    It goes down where even the nearest is far: a mean is no evidence by itself.

    share (NDArray): Part of its weight that an entry gives to its concept. Shape (n,).
    """
    nearest = np.zeros(int(query.max(initial=-1)) + 1)
    np.maximum.at(nearest, query, cosine)
    weight = np.exp((cosine - nearest[query]) / _TEMPERATURE) * share
    total = np.bincount(query, weight, len(nearest))
    keys = query * (int(concept.max(initial=0)) + 1) + concept
    _, pair = np.unique(keys, return_inverse=True)
    of_pair = np.bincount(pair, weight)
    return of_pair[pair] / total[query] * nearest[query]
