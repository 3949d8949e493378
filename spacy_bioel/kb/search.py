"""Search for concepts by words, as a person types them; several searches as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.arrays import IntArray
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import word_overlap
from spacy_bioel.kb.words.lexicon import Misspellings
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.text.stems import words_of
from spacy_bioel.types import Concept

Found = tuple[IntArray, NDArray[np.float32]]

_NAMES_A_CONCEPT = 8  # names that are looked at for each concept that is wanted


@dataclass(frozen=True, slots=True)
class Hit:
    """Concept that a search found."""

    concept: Concept
    name: str  # that is most like the words; the id, if that was searched for
    score: float  # likeness in spelling, from 0.3 to 1


def search_names(kb: KnowledgeBase, words: str, k: int = 10) -> list[Hit]:
    """Find the concepts that have the names most like some words, in any order of the words.

    words (str): Words of a name, which may be misspelled, or the id of a concept.
    k (int): Number of concepts.
    RETURNS (list[Hit]): The best first, each concept once: a concept with that id, then names
        that have all the words; of equal ones, those whose preferred name it is.
    """
    words = words.strip()
    hits = {kb.find(words): Hit(kb[words], words, 1.0)} if words in kb else {}
    query = normalize_name(words)
    rows, scores = (found[0] for found in kb.ngrams.search([query], k * _NAMES_A_CONCEPT))
    rows, scores = rows[rows >= 0], scores[rows >= 0]
    names = [normalize_name(kb.name(row)) for row in rows.tolist()]
    numbers = np.arange(len(names))
    _, shares = word_overlap([query], names, np.zeros_like(numbers), numbers)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    owner = np.repeat(numbers, np.diff(indptr))
    columns = (shares[owner] < 1, -scores[owner], ~is_preferred, rows[owner], concepts)
    ranked = sorted(zip(*(column.tolist() for column in columns), strict=True))
    for _, negative, _, row, concept in ranked:
        if len(hits) >= k:
            break
        if concept not in hits:
            hits[concept] = Hit(kb.concept(concept), kb.name(row), round(-negative, 4))
    return list(hits.values())[:k]


def corrected(kb: KnowledgeBase, words: str) -> str:
    """Words with those that are one slip away from a word of the names in its place: "siezures",
    which has no three letters in a row of "seizures", is like no name. Reads all names.
    """
    counts = Counter(word for name in normalize_names(list(kb.names)) for word in words_of(name))
    meant = partial(Misspellings(counts).meant, known={})
    return " ".join(meant(word) or word for word in normalize_name(words).split())


class JoinedSearch:
    """A search in each of several knowledge bases, whose results are one list.

    searches (Sequence): With `search(queries, k) -> (rows, scores)`; -1 stands for no row.
    rows (Sequence[NDArray]): Of each, the joined row of each of its rows.
    nothing (float): Score of no row.
    """

    def __init__(
        self, searches: Sequence[Any], rows: Sequence[NDArray[Any]], *, nothing: float
    ) -> None:
        self._searches, self._rows, self._nothing = searches, rows, nothing

    def search(self, queries: Sequence[str] | NDArray[np.float32], k: int) -> Found:
        """The k best rows for each query, best first, lower row first among equals."""
        found = [search.search(queries, k) for search in self._searches]
        pairs = zip(found, self._rows, strict=True)
        rows = np.concatenate([np.where(r >= 0, new[r], -1) for (r, _), new in pairs], axis=1)
        scores = np.concatenate([scores for _, scores in found], axis=1)
        rows, scores = _in_order(rows, scores)
        # A name of two knowledge bases is found by both searches, and stays where it is better.
        for at in range(1, rows.shape[1]):
            again = (rows[:, :at] == rows[:, at : at + 1]).any(axis=1)
            rows[again, at] = -1
        rows, scores = _in_order(rows, scores)
        return rows[:, :k], np.where(rows >= 0, scores, np.float32(self._nothing))[:, :k]

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Inverse document frequency of 3-grams: the mean over the knowledge bases."""
        mean: NDArray[np.float64] = np.mean([s.rarity(codes) for s in self._searches], axis=0)
        return mean


def _in_order(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> Found:
    """Rows of each query by score; -1 last."""
    order = np.lexsort((rows, -np.where(rows >= 0, scores, -np.inf)))
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
