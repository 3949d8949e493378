"""What is drawn for training: synonyms from the knowledge base, and mined negatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.pipeline.evidence import NameSearch
from spacy_bioel.pipeline.memory import Memory
from spacy_bioel.text.normalize import normalize_name

IntArray = NDArray[np.int64]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
_MINED = 10  # confusable names remembered for each training string


class NamePool:
    """The part of a knowledge base that training encodes again and again.

    Encoding all names at every refresh would cost more than the training itself. The pool has all
    names of the concepts of the training corpus, then those of the concepts with the most names,
    which are the most mentioned ones too. It is where negatives are mined, and what the
    development documents are linked against while training; `bioel kb encode` then encodes all.

    rows (IntArray): Name rows in the pool. Shape (n_pool,).
    """

    def __init__(self, kb: KnowledgeBase, memory: Memory, *, size: int) -> None:
        gold = {concept_id for counts in memory.counts.values() for concept_id in counts}
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
        self._search: NameSearch | None = None

    def refresh(self, encode: Encode, make_index: Callable[[NDArray], NameSearch]) -> None:
        """Encode all names of the pool with the encoder as it is now."""
        self._search = make_index(encode(self.names))

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[IntArray, NDArray[np.float32]]:
        """Like `ExactIndex.search`, with rows of the knowledge base."""
        assert self._search is not None
        found, scores = self._search.search(queries, k)
        return np.where(found >= 0, self.rows[found], -1), scores


class NameSampler:
    """Draws training names; deterministic for a seed.

    n_synonyms (int): Pairs of synonyms drawn from the whole knowledge base for each update.
    n_negatives (int): Confusable names drawn for each mention.
    """

    def __init__(
        self, kb: KnowledgeBase, memory: Memory, *, n_synonyms: int, n_negatives: int, seed: int
    ) -> None:
        self.kb = kb
        self.memory = memory
        self.n_synonyms = n_synonyms
        self.n_negatives = n_negatives
        self._generator = np.random.default_rng(seed)
        self._with_synonyms = np.flatnonzero(np.diff(kb.concept_offsets) > 1)
        self._mined: dict[str, IntArray] = {}

    def mine(self, encode: Encode, search: NameSearch) -> None:
        """Find, for each training string, the names of other concepts that are nearest to it."""
        names = sorted(self.memory.counts)
        rows, _ = search.search(encode(names), 2 * _MINED)
        right = [set(self.kb.find_all(list(self.memory.counts[name])).tolist()) for name in names]
        for name, candidates, gold in zip(names, rows, right, strict=True):
            indptr, concepts, _ = self.kb.concepts_of_names(candidates)
            wrong = [
                row
                for i, row in enumerate(candidates)
                if row >= 0 and gold.isdisjoint(concepts[indptr[i] : indptr[i + 1]].tolist())
            ]
            self._mined[name] = np.array(wrong[:_MINED], dtype=np.int64)

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


class ConceptSampler:
    """Draws the concepts that mentions are told from in a dual encoder; deterministic for a seed.

    Half are drawn at random and half are those that were nearest when last mined, as in Bhowmik,
    Stratos and de Melo (2021).

    n_candidates (int): Of each half, for each mention; they serve all mentions of the update.
    """

    def __init__(self, kb: KnowledgeBase, *, n_candidates: int, seed: int) -> None:
        self.n_candidates = n_candidates
        self._generator = np.random.default_rng(seed)
        self._named = np.flatnonzero(np.diff(kb.concept_offsets))
        self._read: dict[str, tuple[int, NDArray[np.float32]]] = {}
        self._mined: dict[str, IntArray] = {}

    def remember(
        self, strings: Sequence[str], concepts: IntArray, vectors: NDArray[np.float32]
    ) -> None:
        """Keep the vectors of mentions as they were last read, to mine with."""
        for string, concept, vector in zip(strings, concepts.tolist(), vectors, strict=True):
            self._read[string] = concept, vector

    def mine(self, search: Callable[[NDArray[np.float32], int], IntArray]) -> None:
        """Find the concepts nearest to the mentions that were read, the right one aside.

        search (Callable): From vectors and k to concept rows, `Ranker.nearest_concepts`.
        """
        if not self._read:
            return
        vectors = np.stack([vector for _, vector in self._read.values()])
        found = search(vectors, self.n_candidates + 1)
        for (string, (right, _)), rows in zip(self._read.items(), found, strict=True):
            self._mined[string] = rows[(rows >= 0) & (rows != right)]

    def draw(self, strings: Sequence[str], concepts: IntArray) -> IntArray:
        """Concept rows to tell the mentions from, each once, the right ones among them.

        strings (Sequence[str]), concepts (IntArray): Of the mentions. Shape (n_mentions,).
        """
        n_random = min(len(self._named), self.n_candidates * max(1, len(strings)))
        mined = [self._mined[string] for string in strings if string in self._mined]
        return np.unique(
            np.concatenate([concepts, *mined, self._generator.choice(self._named, n_random)])
        )
