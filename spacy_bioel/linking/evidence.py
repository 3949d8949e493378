"""Collect the evidence for a batch of queries in one candidate table.

Each source (exact names, alias table, n-gram search, dense search) proposes concepts. The table has
one row of features for each (query, concept) pair; `linker.fusion` weights these features.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import KbColumn, positions_of
from spacy_bioel.kb.joined import SearchResult
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import NgramIndex, build_postings, word_overlap
from spacy_bioel.linking.searches import NgramSearch
from spacy_bioel.models.fusion import Fusion, bundled_fusion
from spacy_bioel.text.normalize import normalize_names, respellings
from spacy_bioel.types import DoubleArray, FloatArray, IntArray

DenseSearch = Callable[[Sequence[str]], tuple[SearchResult, SearchResult | None]]


@dataclass(frozen=True)
class ConceptsOfAliases:
    """The knowledge base concepts linked to each alias-table string, in CSR format.

    offsets (IntArray): First entry of each string, then the end of the entries. Shape (n + 1,).
    concepts (IntArray): Concept rows. Shape (n_entries,).
    counts, shares (FloatArray): How often the string was linked to the concept, as a count and as
        a fraction of all mentions of the string. Shape (n_entries,).
    prior (FloatArray): log(1 + mentions) of each concept. Shape (n_concepts,).
    """

    offsets: IntArray
    concepts: IntArray
    counts: FloatArray
    shares: FloatArray
    prior: FloatArray


class AliasTable:
    """Immutable counts of how often each string is linked to each concept in the training corpus.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        # Copy to plain dicts: the garbage collector does not track dicts of strings and numbers.
        self.counts = {name: dict(ids) for name, ids in (counts or {}).items()}
        self._of_kbs: WeakKeyDictionary[KnowledgeBase, ConceptsOfAliases] = WeakKeyDictionary()

    @classmethod
    def from_json(cls, data: Any) -> AliasTable:
        """Read a table from JSON. RAISES BioelError: [B272] if the values are not counts."""
        wrong = [] if isinstance(data, dict) else [type(data).__name__]
        wrong += [
            f"{name!r}: {ids!r:.60}"
            for name, ids in (() if wrong else data.items())
            if not (isinstance(ids, dict) and all(type(n) is int and n > 0 for n in ids.values()))
        ]
        if wrong:
            expected = "strings with their concept ids, each with an integer of at least 1"
            file = "alias_table.json"
            raise BioelError(Errors.B272.format(file=file, found=wrong[0], expected=expected))
        return cls(data)

    def with_mentions(self, mentions: Iterable[tuple[str, str]]) -> AliasTable:
        """Return a copy that also counts these (normalised string, concept id) mentions."""
        counts = defaultdict(Counter, {name: Counter(ids) for name, ids in self.counts.items()})
        for name, concept_id in mentions:
            counts[name][concept_id] += 1
        return AliasTable(counts)

    @cached_property
    def names(self) -> list[str]:
        """All strings, sorted. Row i of `ngrams` is for string i."""
        return sorted(self.counts)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Index of each string in `names`."""
        return {name: row for row, name in enumerate(self.names)}

    @property
    def ids(self) -> Counter[str]:
        """Number of training mentions per concept id."""
        ids = Counter[str]()
        for counts in self.counts.values():
            ids.update(counts)
        return ids

    def concepts(self, kb: KnowledgeBase) -> ConceptsOfAliases:
        """Return each string's concepts in `kb`, cached for as long as `kb` is open."""
        if (cached := self._of_kbs.get(kb)) is not None:
            return cached
        counts_of_names = [self.counts[name] for name in self.names]
        sizes = np.array([len(ids) for ids in counts_of_names], dtype=np.int64)
        counts = np.array([n for ids in counts_of_names for n in ids.values()], dtype=np.float32)
        totals = np.array([sum(ids.values()) for ids in counts_of_names], dtype=np.float32)
        concepts = kb.find_all([id for ids in counts_of_names for id in ids])
        known = concepts >= 0
        offsets = np.append(0, np.cumsum(known))[np.append(0, np.cumsum(sizes))]
        shares: FloatArray = np.divide(counts, np.repeat(totals, sizes))
        n = np.bincount(concepts[known], counts[known], len(kb))
        prior = np.log1p(n.astype(np.float32))
        found = ConceptsOfAliases(offsets, concepts[known], counts[known], shares[known], prior)
        return self._of_kbs.setdefault(kb, found)

    @cached_property
    def ngrams(self) -> NgramIndex:
        return NgramIndex(*(KbColumn(array) for array in build_postings(self.names)))


# Columns of the feature matrix.
#   exact: 1 if the query is a name of the concept, 0.8 if it is a spelling variant of one
#   preferred: `exact` if that name is the concept's preferred name, otherwise 0
#   unique: `exact`, divided by the number of concepts with this name
#   alias_share: this concept's share of the training mentions of this string
#   alias_count: log(1 + training mentions of this string linked to this concept)
#   dense, ngram: cosine of the concept's best name in the search
#   dense_best, ngram_best: whether the search ranks a name of this concept first
#   alias_ngram, alias_dense: cosine of the concept's best training string in the search, times the
#       fraction of that string's mentions linked to the concept
#   dense_vote, ngram_vote, alias_ngram_vote, alias_dense_vote: the concept's share of the search
#       results, weighted by similarity, times the cosine of the best result
#   words: Dice coefficient between the words in the query and in the best name
#   covered: fraction of the query that the shared words cover
#   prior: log(1 + training mentions of the concept)
#   has_encoder: 1 if the linker has an encoder; has_alias_table: 1 if it has an alias table
FEATURES = (
    "exact", "preferred", "unique", "alias_share", "alias_count", "dense", "dense_best", "ngram",
    "ngram_best", "alias_ngram", "alias_dense", "dense_vote", "ngram_vote", "alias_ngram_vote",
    "alias_dense_vote", "words", "covered", "prior", "has_encoder", "has_alias_table",
)  # fmt: skip
# Kinds of evidence that can be disabled; "prior" does not propose candidates.
EVIDENCE = ("exact", "alias_table", "ngram", "dense", "prior")
_COLUMN = {name: index for index, name in enumerate(FEATURES)}
_NAME_FEATURES = ("dense", "dense_best", "ngram", "ngram_best", "words", "covered")
_ALIAS_FEATURES = ("alias_ngram", "alias_dense", "alias_ngram_vote", "alias_dense_vote")
_RESPELLED_EXACT = 0.8  # value of the `exact` feature for spelling variants
_VOTE_TEMPERATURE = 0.05  # a name this far below the best cosine gets 1/e of the best name's votes
EXACT, ALIAS, DENSE, NGRAM = 1, 2, 4, 8
SOURCES = {EXACT: "exact", ALIAS: "alias_table", DENSE: "dense", NGRAM: "ngram"}


@dataclass(frozen=True)
class CandidateTable:
    """Candidates for a batch of queries, grouped by query.

    query, concept, name (IntArray): Query number, concept row, and row of the matching name (-1 if
        only the alias table proposes the concept). Shape (n,).
    features (FloatArray): Shape (n, len(FEATURES)).
    sources (NDArray[uint8]): Bits EXACT, ALIAS, DENSE, NGRAM. Shape (n,).
    """

    query: IntArray
    concept: IntArray
    name: IntArray
    features: FloatArray
    sources: NDArray[np.uint8]


@dataclass(frozen=True)
class _Proposals:
    """Features of (query, concept) pairs from one source; `name` is -1 if no name matched."""

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
    dense_search: DenseSearch | None,
    ngram_search: NgramSearch,
    k: int,
    evidence: Container[str] = EVIDENCE,
    also_names: Container[str] = (),
) -> CandidateTable:
    """Collect the candidates for each query from all sources.

    queries (Sequence[str]): Distinct normalised strings.
    dense_search (Callable | None): Dense search over the knowledge base names and, if the alias
        table is evidence, over `alias_table.names`; None if there is no encoder.
    ngram_search (NgramSearch): N-gram search over the knowledge base names.
    k (int): Number of names that the n-gram search returns.
    evidence (Container[str]): The members of EVIDENCE to use.
    also_names (Container[str]): Searches ("ngram", "dense") to run even for queries that are names.
    """
    if "alias_table" not in evidence:
        alias_table = AliasTable()
    aliases = alias_table.concepts(kb)
    proposals = [_from_exact_names(queries, kb)] if "exact" in evidence else []
    in_alias_table = _from_alias_table(queries, alias_table.rows, aliases)
    proposals.append(in_alias_table)
    # Skip single letters: "c" in "c/o" is not a misspelt "CS". Skip knowledge base names as well,
    # because searches are slow and similar names rarely score higher than the name itself. The
    # n-gram search is the slowest, so it also skips alias-table strings.
    is_word = np.array([len(query) > 1 for query in queries], dtype=bool)
    is_name = np.zeros(len(queries), dtype=bool)
    if "exact" in evidence:
        is_name[proposals[0].query[proposals[0].values["exact"] == 1.0]] = True
    is_new = is_word & ~(is_name & ("ngram" not in also_names))
    is_new[in_alias_table.query] = False
    is_searched = is_word & ~(is_name & ("dense" not in also_names))
    if "ngram" in evidence and is_new.any():
        numbers = np.flatnonzero(is_new)
        strings = [queries[i] for i in numbers.tolist()]
        names = ngram_search.search(strings, k)
        proposals.append(_from_names(kb, strings, numbers, names, search="ngram"))
        near = alias_table.ngrams.search(strings, k)
        proposals.append(_from_aliases(aliases, numbers, near, feature="alias_ngram"))
    if "dense" in evidence and dense_search is not None and is_searched.any():
        numbers = np.flatnonzero(is_searched)
        strings = [queries[i] for i in numbers.tolist()]
        names, training_strings = dense_search(strings)
        proposals.append(_from_names(kb, strings, numbers, names, search="dense"))
        if training_strings is not None:
            found = _from_aliases(aliases, numbers, training_strings, feature="alias_dense")
            proposals.append(found)
    table = _merge_proposals(proposals, n_concepts=len(aliases.prior))
    if "prior" in evidence and "alias_table" in evidence:
        table.features[:, _COLUMN["prior"]] = aliases.prior[table.concept]
    table.features[:, _COLUMN["has_encoder"]] = "dense" in evidence and dense_search is not None
    table.features[:, _COLUMN["has_alias_table"]] = bool(alias_table.counts)
    return table


def _merge_proposals(proposals: list[_Proposals], *, n_concepts: int) -> CandidateTable:
    """Merge proposals into one row per (query, concept) pair, taking each feature's maximum."""
    query = np.concatenate([p.query for p in proposals])
    concept = np.concatenate([p.concept for p in proposals])
    keys, pair = np.unique(query * n_concepts + concept, return_inverse=True)
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
        # Take the name from the first source that has one; each source lists its best name first.
        unnamed = name[rows] < 0
        first_rows, first = np.unique(rows[unnamed], return_index=True)
        name[first_rows] = p.name[unnamed][first]
    return CandidateTable(keys // n_concepts, keys % n_concepts, name, features, sources)


def _from_exact_names(queries: Sequence[str], kb: KnowledgeBase) -> _Proposals:
    """Propose concepts with a name equal to the query or, failing that, to a spelling variant."""
    rows = kb.lookup_names(queries)
    strength = np.where(rows >= 0, 1.0, _RESPELLED_EXACT)
    respelled = [(i, v) for i in np.flatnonzero(rows < 0).tolist() for v in respellings(queries[i])]
    respelled_rows = kb.lookup_names([v for _, v in respelled]) if respelled else ()
    for (i, _), row in zip(respelled, respelled_rows, strict=True):
        if rows[i] < 0:
            rows[i] = row
    indptr, concepts, preferred = kb.concepts_of_names(rows)
    query = np.repeat(np.arange(len(queries)), np.diff(indptr))
    exact = strength[query]
    unique = exact / np.diff(indptr)[query]
    # Set the search features as if every search had found the name, so that they do not depend on
    # which searches ran.
    values = {
        "exact": exact,
        "preferred": exact * preferred,
        **dict.fromkeys(("unique", "dense_vote", "ngram_vote"), unique),
        **dict.fromkeys(_NAME_FEATURES, exact),
    }
    return _Proposals(query, concepts, rows[query], values, EXACT)


def _from_alias_table(
    queries: Sequence[str], alias_rows: Mapping[str, int], aliases: ConceptsOfAliases
) -> _Proposals:
    """Propose the concepts linked to the query in training."""
    known = np.array([i for i, query in enumerate(queries) if query in alias_rows], dtype=np.int64)
    rows = np.array([alias_rows[queries[i]] for i in known], dtype=np.int64)
    entry, number = _alias_entries(aliases, rows)
    share = aliases.shares[entry]
    values = {"alias_share": share, "alias_count": np.log1p(aliases.counts[entry])}
    values |= dict.fromkeys(_ALIAS_FEATURES, share)
    no_name = np.full(len(entry), -1, dtype=np.int64)
    return _Proposals(known[number], aliases.concepts[entry], no_name, values, ALIAS)


def _alias_entries(aliases: ConceptsOfAliases, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the entry positions for the strings in `rows`, and each entry's index in `rows`."""
    indptr, entries = positions_of(aliases.offsets, rows)
    return entries, np.repeat(np.arange(len(rows)), np.diff(indptr))


def _from_names(
    kb: KnowledgeBase,
    queries: Sequence[str],
    numbers: IntArray,
    result: SearchResult,
    *,
    search: str,
) -> _Proposals:
    """Propose the concepts whose names a search found.

    numbers (IntArray): Query numbers in the table. Shape (n_queries,).
    search (str): "dense" or "ngram".
    """
    rows, cosines = result
    different, number = np.unique(rows.ravel(), return_inverse=True)
    n_missing = int((different < 0).sum())  # -1 (fewer than k results) sorts first
    names = [""] * n_missing + normalize_names(kb.names.take(different[n_missing:]))
    owner = np.repeat(np.arange(len(queries)), rows.shape[1])
    words, covered = word_overlap(queries, names, owner, number)
    indptr, concepts, _ = kb.concepts_of_names(rows.ravel())
    entry = np.repeat(np.arange(rows.size), np.diff(indptr))
    query, cosine = owner[entry], cosines.ravel()[entry]
    values = {
        search: np.maximum(cosine, 0.0),
        f"{search}_vote": _votes(query, concepts, cosine),
        # Allow a tolerance of 1e-5, because rounding can separate equally near names.
        f"{search}_best": cosine >= cosines.max(axis=1, initial=-np.inf)[query] - 1e-5,
        "words": words[entry],
        "covered": covered[entry],
    }
    source = DENSE if search == "dense" else NGRAM
    return _Proposals(numbers[query], concepts, rows.ravel()[entry], values, source)


def _from_aliases(
    aliases: ConceptsOfAliases, numbers: IntArray, result: SearchResult, *, feature: str
) -> _Proposals:
    """Propose the concepts linked in training to the alias-table strings that a search found."""
    rows, cosines = result
    hits = np.flatnonzero(rows.ravel() >= 0)
    entry, number = _alias_entries(aliases, rows.ravel()[hits])
    hit, share, concept = hits[number], aliases.shares[entry], aliases.concepts[entry]
    query, cosine = hit // max(rows.shape[1], 1), cosines.ravel()[hit]
    values: dict[str, NDArray[Any]] = {
        feature: np.maximum(cosine, 0.0) * share,
        f"{feature}_vote": _votes(query, concept, cosine, share),
    }
    no_name = np.full(len(entry), -1, dtype=np.int64)
    return _Proposals(numbers[query], concept, no_name, values, ALIAS)


def _votes(
    query: IntArray, concept: IntArray, cosine: FloatArray, share: FloatArray | float = 1.0
) -> DoubleArray:
    """Return each concept's share of the search results for its query, from 0 to 1.

    The share is multiplied by the query's best cosine, because agreement among distant names is
    weak evidence.

    share (FloatArray): Fraction of a result's weight that goes to the concept. Shape (n,).
    """
    best = np.zeros(int(query.max(initial=-1)) + 1)
    np.maximum.at(best, query, cosine)
    weight = np.exp((cosine - best[query]) / _VOTE_TEMPERATURE) * share
    total = np.bincount(query, weight, len(best))
    keys = query * (int(concept.max(initial=0)) + 1) + concept
    _, pair = np.unique(keys, return_inverse=True)
    pair_weight = np.bincount(pair, weight)
    return pair_weight[pair] / total[query] * best[query]


def default_fusion() -> Fusion:
    """Return the default evidence weights, for linkers with or without an encoder.

    training/scripts/starter.py fitted these weights; `fit_fusion` fits weights on a user's corpus.
    """
    return bundled_fusion("fusion.json", FEATURES)
