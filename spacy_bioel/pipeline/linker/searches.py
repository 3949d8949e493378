"""The searches among names that a linker makes: by vectors, and by spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.index import QuantizedVectors

IntArray = NDArray[np.int64]
Found = tuple[IntArray, NDArray[np.float32]]


class NameSearch(Protocol):
    """Nearest names of unit vectors; `kb.vectors.index.ExactIndex` is one."""

    def search(self, queries: NDArray[np.float32], k: int) -> Found: ...


MakeIndex = Callable[[QuantizedVectors], NameSearch]


class SpellingSearch(Protocol):
    """Names that are spelled like a query."""

    def search(self, queries: Sequence[str], k: int) -> Found:
        """The k names most alike to each query.

        queries (Sequence[str]): Normalised strings.
        RETURNS (tuple): Rows and scores between 0 and 1, best first, lower row first among
            equals; -1 and 0 where fewer than k names are found. Shape (n_queries, k) each.
        """
        ...


MakeSearch = Callable[[KnowledgeBase], SpellingSearch]


def create_ngrams_v1() -> MakeSearch:
    """spacy-bioel.Ngrams.v1: the 3-grams that come with the knowledge base, `kb.words.ngrams`."""
    return _own_ngrams


def _own_ngrams(kb: KnowledgeBase) -> SpellingSearch:
    return kb.ngrams
