"""Evidence for each candidate: one table for a whole batch of queries, numpy columns only.

Each source (exact names, mention statistics, search by encoder and by spelling) proposes concepts.
The table has one row for every pair of query and concept with all its features, and knows nothing
of how they are weighed, which is `linker.fusion`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import srsly
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import positions_of
from spacy_bioel.kb.joined import SearchResult
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import NgramIndex, build_postings, word_overlap
from spacy_bioel.linking.searches import NgramSearch
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.text.normalize import normalize_names, respellings
from spacy_bioel.types import IntArray


@dataclass(frozen=True)
class ConceptsOfAliases:
    """The concepts of a knowledge base that strings meant, one string after the other.

    offsets (NDArray[int64]): Where those of each string start, and the last end. Shape (n + 1,).
    concepts (NDArray[int64]): Rows of the knowledge base. Shape (n_pairs,).
    counts, shares (NDArray[float32]): How often the string was the concept, and its part of all
        mentions of the string. Shape (n_pairs,).
    prior (NDArray[float32]): log(1 + mentions) of each concept. Shape (n_concepts,).
    """

    offsets: NDArray[np.int64]
    concepts: NDArray[np.int64]
    counts: NDArray[np.float32]
    shares: NDArray[np.float32]
    prior: NDArray[np.float32]


class AliasTable:
    """Counts of the concepts that each string was linked to in the training corpus; never change.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        # Dictionaries of strings and numbers, at which the garbage collector does not look.
        self.counts = {name: dict(ids) for name, ids in (counts or {}).items()}
        self._of_kbs: WeakKeyDictionary[KnowledgeBase, ConceptsOfAliases] = WeakKeyDictionary()

    @classmethod
    def from_json(cls, data: object) -> AliasTable:
        """RAISES BioelError: [B272] when these are no counts."""
        if not isinstance(data, dict):
            raise _no_counts(type(data).__name__)
        for name, ids in data.items():
            if not (isinstance(ids, dict) and all(type(n) is int and n > 0 for n in ids.values())):
                raise _no_counts(f"{name!r}: {ids!r:.60}")
        return cls(data)

    def with_mentions(self, mentions: Iterable[tuple[str, str]]) -> AliasTable:
        """These and further mentions: pairs of a normalised string and a concept id."""
        counts = defaultdict(Counter, {name: Counter(ids) for name, ids in self.counts.items()})
        for name, concept_id in mentions:
            counts[name][concept_id] += 1
        return AliasTable(counts)

    @cached_property
    def names(self) -> list[str]:
        """All strings, sorted: the rows of `ngrams`."""
        return sorted(self.counts)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Place of each string in `names`."""
        return {name: row for row, name in enumerate(self.names)}

    @property
    def ids(self) -> set[str]:
        return {concept_id for counts in self.counts.values() for concept_id in counts}

    def concepts(self, kb: KnowledgeBase) -> ConceptsOfAliases:
        """Of each of `names`; kept for as long as the knowledge base is open."""
        kept = self._of_kbs.get(kb)
        if kept is None:
            self._of_kbs[kb] = kept = self._concepts(kb)
        return kept

    def _concepts(self, kb: KnowledgeBase) -> ConceptsOfAliases:
        of_names = [self.counts[name] for name in self.names]
        sizes = np.array([len(ids) for ids in of_names], dtype=np.int64)
        counts = np.array([n for ids in of_names for n in ids.values()], dtype=np.float32)
        totals = np.array([sum(ids.values()) for ids in of_names], dtype=np.float32)
        concepts = kb.find_all([id for ids in of_names for id in ids])
        known = concepts >= 0
        offsets = np.append(0, np.cumsum(known))[np.append(0, np.cumsum(sizes))]
        shares: NDArray[np.float32] = np.divide(counts, np.repeat(totals, sizes))
        n = np.bincount(concepts[known], counts[known], len(kb))
        prior = np.log1p(n.astype(np.float32))
        return ConceptsOfAliases(offsets, concepts[known], counts[known], shares[known], prior)

    @cached_property
    def ngrams(self) -> NgramIndex:
        return NgramIndex(*build_postings(self.names))


def _no_counts(proposals: str) -> BioelError:
    expected = "strings with their concept ids, and a whole number from 1 for each"
    return BioelError(
        Errors.B272.format(file="alias_table.json", proposals=proposals, expected=expected)
    )


# Columns of the feature matrix.
#   exact: the query is a name of the concept (0.8 for a spelling variant of it)
#   preferred: ... and the preferred one
#   unique: ... divided by the number of concepts of that name
#   alias_share: share of this concept among the training mentions of this string
#   alias_count: log of 1 + how often this string was this concept in training
#   dense, ngram: cosine of the best name of the concept, by encoder and by character 3-grams
#   dense_best, ngram_best: the concept has the best of all names, by encoder and by 3-grams
#   alias_ngram, alias_dense: cosine of the best training string of the concept, by 3-grams and by
#       encoder, times the share of the concept in that string
#   dense_vote, ngram_vote, alias_ngram_vote, alias_dense_vote: share of the concept among all that
#       the search found, the near ones counting more, times the cosine of the nearest
#   words, covered: words that the best name that was found shares with the query, and the part of
#       the query that they are
#   prior: log of 1 + how often the concept was mentioned in training
#   has_encoder, has_alias_table: whether there is an encoder, and an alias table, at all
FEATURES = (
    "exact", "preferred", "unique", "alias_share", "alias_count", "dense", "dense_best", "ngram", "ngram_best",
    "alias_ngram", "alias_dense", "dense_vote", "ngram_vote", "alias_ngram_vote",
    "alias_dense_vote", "words", "covered", "prior", "has_encoder", "has_alias_table",
)  # fmt: skip
# Sources that can be switched off. "prior" proposes no candidates of its own.
EVIDENCE = ("exact", "alias_table", "ngram", "dense", "prior")
_COLUMN = {name: index for index, name in enumerate(FEATURES)}
_OF_A_NAME = ("dense", "dense_best", "ngram", "ngram_best", "words", "covered")
_OF_A_STRING = ("alias_ngram", "alias_dense", "alias_ngram_vote", "alias_dense_vote")
_RESPELLED = 0.8
_TEMPERATURE = 0.05  # a name farther by this cosine has 1/e of the vote
EXACT, ALIAS, DENSE, NGRAM = 1, 2, 4, 8
SOURCES = {EXACT: "exact", ALIAS: "alias_table", DENSE: "dense", NGRAM: "ngram"}


@dataclass(frozen=True)
class CandidateTable:
    """Candidates of a batch of queries, grouped by query.

    query, concept, name (IntArray): Query number, concept row, name row that matched (-1: the
        string itself was seen in training). Shape (n,).
    features (NDArray[float32]): Shape (n, len(FEATURES)).
    sources (NDArray[uint8]): Bits EXACT, ALIAS, DENSE. Shape (n,).
    """

    query: IntArray
    concept: IntArray
    name: IntArray
    features: NDArray[np.float32]
    sources: NDArray[np.uint8]


@dataclass(frozen=True)
class _Proposals:
    """Values of features of (query, concept) from one source, by way of a name (-1: of none)."""

    query: IntArray
    concept: IntArray
    name: IntArray
    values: Mapping[str, NDArray[Any]]
    source: int


def candidate_table(
    queries: Sequence[str],
    kb: KnowledgeBase,
    *,
    alias_table: AliasTable,
    dense_names: SearchResult | None,
    dense_aliases: SearchResult | None,
    ngram_search: NgramSearch,
    k: int,
    evidence: Container[str] = EVIDENCE,
) -> CandidateTable:
    """Ask every source about every query.

    queries (Sequence[str]): Different normalised strings.
    dense_names (Found | None): Nearest names of the knowledge base by the encoder, if there is one.
    dense_aliases (SearchResult | None): Nearest of `alias_table.names` by the encoder.
    ngram_search (NgramSearch): Searches the names of the knowledge base by spelling.
    k (int): Names looked at in the search by spelling.
    evidence (Container[str]): Which of EVIDENCE to use.
    """
    if "alias_table" not in evidence:
        alias_table, dense_aliases = AliasTable(), None
    meant = alias_table.concepts(kb)
    in_alias_table = _from_alias_table(queries, alias_table.rows, meant)
    proposals = [*([_from_exact_names(queries, kb)] if "exact" in evidence else ()), in_alias_table]
    # One letter is like nothing: "c" in "c/o" is no misspelt "CS".
    is_word = np.array([len(query) > 1 for query in queries], dtype=bool)
    if "ngram" in evidence:
        # For strings that are no name and were never seen: it is the slowest source, and finds the
        # string itself otherwise.
        unsure = is_word.copy()
        unsure[in_alias_table.query] = False
        if "exact" in evidence:
            unsure[proposals[0].query[proposals[0].values["exact"] == 1.0]] = False
        if unsure.any():
            numbers = np.flatnonzero(unsure)
            strings = [queries[i] for i in numbers.tolist()]
            names, near = ngram_search.search(strings, k), alias_table.ngrams.search(strings, k)
            proposals.append(
                _from_names(kb, strings, numbers, names, best="ngram_best", value="ngram")
            )
            proposals.append(_from_aliases(meant, numbers, near, value="alias_ngram"))
    if "dense" in evidence and dense_names is not None and is_word.any():
        numbers = np.flatnonzero(is_word)
        strings, names = [queries[i] for i in numbers.tolist()], _rows_of(dense_names, numbers)
        proposals.append(_from_names(kb, strings, numbers, names, best="dense_best", value="dense"))
        if dense_aliases is not None:
            near = _rows_of(dense_aliases, numbers)
            proposals.append(_from_aliases(meant, numbers, near, value="alias_dense"))
    candidates = _merge(proposals, len(meant.prior))
    if "prior" in evidence and "alias_table" in evidence:
        candidates.features[:, _COLUMN["prior"]] = meant.prior[candidates.concept]
    candidates.features[:, _COLUMN["has_encoder"]] = "dense" in evidence and dense_names is not None
    candidates.features[:, _COLUMN["has_alias_table"]] = bool(alias_table.counts)
    return candidates


def _rows_of(result: SearchResult, queries: IntArray) -> SearchResult:
    return result[0][queries], result[1][queries]


def _merge(proposals: list[_Proposals], n: int) -> CandidateTable:
    """One row a pair of query and concept, of n, with the greatest value of each feature."""
    query = np.concatenate([p.query for p in proposals])
    concept = np.concatenate([p.concept for p in proposals])
    keys, pair = np.unique(query * n + concept, return_inverse=True)
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
    return CandidateTable(keys // n, keys % n, name, features, sources)


def _from_exact_names(queries: Sequence[str], kb: KnowledgeBase) -> _Proposals:
    """Names equal to the query; its spelling variants only where there are none."""
    rows = kb.lookup_names(queries)
    strength = np.where(rows >= 0, 1.0, _RESPELLED)
    respelled = [(i, v) for i in np.flatnonzero(rows < 0).tolist() for v in respellings(queries[i])]
    proposals = kb.lookup_names([v for _, v in respelled]) if respelled else ()
    for (i, _), row in zip(respelled, proposals, strict=True):
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
        **dict.fromkeys(("unique", "dense_vote", "ngram_vote"), unique),
        **dict.fromkeys(_OF_A_NAME, value),
    }
    return _Proposals(query, concepts, rows[query], values, EXACT)


def _from_alias_table(
    queries: Sequence[str], known: Mapping[str, int], meant: ConceptsOfAliases
) -> _Proposals:
    """Concepts that the query itself was linked to in training.

    known (Mapping): From a training string to its row.
    """
    seen = np.array([i for i, query in enumerate(queries) if query in known], dtype=np.int64)
    entry, number = _entries(meant, np.array([known[queries[i]] for i in seen], dtype=np.int64))
    share = meant.shares[entry]
    values = {"alias_share": share, "alias_count": np.log1p(meant.counts[entry])}
    values |= dict.fromkeys(_OF_A_STRING, share)
    unnamed = np.full(len(entry), -1, dtype=np.int64)
    return _Proposals(seen[number], meant.concepts[entry], unnamed, values, ALIAS)


def _entries(meant: ConceptsOfAliases, strings: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of the concepts of some strings, and the number of the string of each."""
    indptr, entries = positions_of(meant.offsets, strings)
    return entries, np.repeat(np.arange(len(strings)), np.diff(indptr))


def _from_names(
    kb: KnowledgeBase,
    queries: Sequence[str],
    numbers: IntArray,
    result: SearchResult,
    *,
    best: str,
    value: str,
) -> _Proposals:
    """Concepts of the names that a search found for queries with these numbers."""
    rows, cosines = result
    different, number = np.unique(rows.ravel(), return_inverse=True)
    # The first may stand for no name, -1.
    n_none = int((different < 0).sum())
    names = [""] * n_none + normalize_names(kb.names.take(different[n_none:]))
    owner = np.repeat(np.arange(len(queries)), rows.shape[1])
    words, covered = word_overlap(queries, names, owner, number)
    indptr, concepts, _ = kb.concepts_of_names(rows.ravel())
    entry = np.repeat(np.arange(rows.size), np.diff(indptr))
    query, cosine = owner[entry], cosines.ravel()[entry]
    values = {
        value: np.maximum(cosine, 0.0),
        f"{value}_vote": _votes(query, concepts, cosine),
        # Equal to the best up to rounding: several names can be nearest.
        best: cosine >= cosines.max(axis=1, initial=-np.inf)[query] - 1e-5,
        "words": words[entry],
        "covered": covered[entry],
    }
    source = DENSE if value == "dense" else NGRAM
    return _Proposals(numbers[query], concepts, rows.ravel()[entry], values, source)


def _from_aliases(
    meant: ConceptsOfAliases, numbers: IntArray, result: SearchResult, *, value: str
) -> _Proposals:
    """Concepts of the training strings that a search found for queries with these numbers."""
    rows, cosines = result
    hit = np.flatnonzero(rows.ravel() >= 0)
    entry, number = _entries(meant, rows.ravel()[hit])
    hit, share, concept = hit[number], meant.shares[entry], meant.concepts[entry]
    query, cosine = hit // max(rows.shape[1], 1), cosines.ravel()[hit]
    values: dict[str, NDArray[Any]] = {
        value: np.maximum(cosine, 0.0) * share,
        f"{value}_vote": _votes(query, concept, cosine, share),
    }
    unnamed = np.full(len(entry), -1, dtype=np.int64)
    return _Proposals(numbers[query], concept, unnamed, values, ALIAS)


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


# Fitted by training/scripts/starter.py; used until `fit_fusion` has seen a corpus of one's own.
_DEFAULT = Path(__file__).parents[1] / "assets" / "fusion.json"


@cache
def default_fusion() -> Fusion:
    """Weights that serve most knowledge bases, with an encoder or without."""
    return Fusion.from_json(srsly.read_json(_DEFAULT), FEATURES)
