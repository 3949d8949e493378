"""Sampling for training: synonyms from the knowledge base, and mined negatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.quantized import QuantizedVectors, quantize
from spacy_bioel.pipeline.linker.evidence import NameSearch
from spacy_bioel.pipeline.linker.names import EncodedNames
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.text.normalize import normalize_name

IntArray = NDArray[np.int64]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
MakeIndex = Callable[[QuantizedVectors], NameSearch]
_MINED = 10  # confusable names remembered for each training string


class NamePool:
    """The part of a knowledge base that training encodes again and again.

    Encoding all names at every refresh would cost more than the training itself. The pool has all
    names of the concepts of the training corpus, then those of the concepts with the most names,
    which are the most mentioned ones too. It is where negatives are mined, and what the
    development documents are linked against while training; `bioel kb encode` then encodes all.

    rows (IntArray): Name rows in the pool. Shape (n_pool,).
    """

    def __init__(self, kb: KnowledgeBase, statistics: MentionStatistics, *, size: int) -> None:
        gold = {concept_id for counts in statistics.counts.values() for concept_id in counts}
        gold_rows = kb.find_all(sorted(gold))
        n_names = np.diff(kb.concept_offsets)
        order = np.argsort(-n_names, kind="stable")
        wanted = np.unique(np.concatenate([gold_rows[gold_rows >= 0], order]), return_index=True)
        by_need = wanted[0][np.argsort(wanted[1], kind="stable")]
        n_fitting = int(np.searchsorted(np.cumsum(n_names[by_need]), size, side="right"))
        chosen = by_need[: max(1, n_fitting)]
        entries = np.zeros(len(kb), dtype=bool)
        entries[chosen] = True
        self.rows = np.unique(kb.concept_names[np.repeat(entries, n_names)]).astype(np.int64)
        self.names = [normalize_name(name) for name in kb.names.take(self.rows)]

    def encoded(self, encode: Encode, make_index: MakeIndex) -> EncodedNames:
        """All names of the pool."""
        vectors = quantize(encode(self.names))
        return EncodedNames(vectors, make_index(vectors), self.rows)


class NameSampler:
    """Draws training names; deterministic for a seed.

    n_synonyms (int): Pairs of synonyms drawn from the whole knowledge base for each update.
    n_negatives (int): Confusable names drawn for each mention.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        statistics: MentionStatistics,
        *,
        n_synonyms: int,
        n_negatives: int,
        seed: int,
    ) -> None:
        self.kb = kb
        self.statistics = statistics
        self.n_synonyms = n_synonyms
        self.n_negatives = n_negatives
        self._generator = np.random.default_rng(seed)
        self._with_synonyms = np.flatnonzero(np.diff(kb.concept_offsets) > 1)
        self._mined: dict[str, IntArray] = {}

    def mine(self, encode: Encode, search: NameSearch) -> None:
        """Find, for each training string, the names of other concepts that are nearest to it."""
        names, right = self.statistics.names, self.statistics.concepts(self.kb)
        rows, _ = search.search(encode(names), 2 * _MINED)
        of_names = pairwise(right.offsets.tolist())
        for name, candidates, (start, end) in zip(names, rows, of_names, strict=True):
            gold = set(right.concepts[start:end].tolist())
            self._mined[name] = _without(self.kb, candidates, gold)[:_MINED]

    def draw(self, mentions: Sequence[tuple[str, int]]) -> tuple[list[str], IntArray]:
        """Strings and their concepts for one update.

        mentions (Sequence): Normalised mention and concept row of each.
        RETURNS (tuple): Strings, each once, and the concept row of each, shape (n,). A string
            that is a name of two concepts stays with the first: pulling it both ways and apart
            from itself would teach nothing.
        """
        drawn: dict[str, int] = {}
        for mention, concept in dict.fromkeys(mentions):
            drawn.setdefault(mention, concept)
            self._add_name(drawn, concept)
            negatives = self._mined.get(mention)
            if negatives is not None and len(negatives):
                for row in self._generator.choice(negatives, self.n_negatives):
                    _, concepts, _ = self.kb.concepts_of_names(np.array([row]))
                    drawn.setdefault(normalize_name(self.kb.name(int(row))), int(concepts[0]))
        if len(self._with_synonyms):
            for concept in self._generator.choice(self._with_synonyms, self.n_synonyms):
                names = self.kb.names_of(int(concept))
                for row in self._generator.choice(names, 2, replace=False):
                    drawn.setdefault(normalize_name(self.kb.name(int(row))), int(concept))
        return list(drawn), np.fromiter(drawn.values(), dtype=np.int64, count=len(drawn))

    def _add_name(self, drawn: dict[str, int], concept: int) -> None:
        row = int(self._generator.choice(self.kb.names_of(concept)))
        drawn.setdefault(normalize_name(self.kb.name(row)), concept)


class CandidateSampler:
    """Draws the names that mentions are told from in a dual encoder; deterministic for a seed.

    Half are drawn at random and half are those that were nearest when last mined, as in Bhowmik,
    Stratos and de Melo (2021), who have one name of each concept.

    n_candidates (int): Of each half, for each mention; they serve all mentions of the update.
    """

    def __init__(self, kb: KnowledgeBase, *, n_candidates: int, seed: int) -> None:
        self.kb = kb
        self.n_candidates = n_candidates
        self._generator = np.random.default_rng(seed)
        self._read: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._mined: dict[tuple[str, int], IntArray] = {}

    def remember(
        self, strings: Sequence[str], concepts: IntArray, vectors: NDArray[np.float32]
    ) -> None:
        """Keep the vectors of mentions as they were last read, to mine with."""
        self._read.update(zip(_keys(strings, concepts), vectors, strict=True))

    def mine(self, search: NameSearch) -> None:
        """Find the names nearest to the mentions that were read, those of the right concept aside.

        search (NameSearch): Name rows of the knowledge base.
        """
        if not self._read:
            return
        found, _ = search.search(np.stack(list(self._read.values())), 2 * self.n_candidates)
        for key, rows in zip(self._read, found, strict=True):
            self._mined[key] = _without(self.kb, rows, {key[1]})[: self.n_candidates]

    def draw(self, strings: Sequence[str], concepts: IntArray) -> IntArray:
        """Name rows to tell the mentions from, each once, one of each right concept among them.

        strings (Sequence[str]), concepts (IntArray): Of the mentions. Shape (n_mentions,).
        """
        right = [self._generator.choice(self.kb.names_of(row)) for row in concepts.tolist()]
        mined = [self._mined[key] for key in _keys(strings, concepts) if key in self._mined]
        n_random = self.n_candidates * max(1, len(strings))
        by_chance = self._generator.integers(self.kb.n_names, size=n_random)
        return np.unique(np.concatenate([np.array(right, dtype=np.int64), *mined, by_chance]))


def _keys(strings: Sequence[str], concepts: IntArray) -> list[tuple[str, int]]:
    return list(zip(strings, concepts.tolist(), strict=True))


def _without(kb: KnowledgeBase, rows: IntArray, concepts: set[int]) -> IntArray:
    """Of name rows, those that name none of the concepts. -1 names nothing and is left out."""
    indptr, owners, _ = kb.concepts_of_names(rows)
    is_right = [
        row < 0 or not concepts.isdisjoint(owners[start:end].tolist())
        for row, start, end in zip(rows.tolist(), indptr, indptr[1:], strict=False)
    ]
    kept: IntArray = rows[~np.array(is_right, dtype=bool)].astype(np.int64)
    return kept
