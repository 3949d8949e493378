"""Spelling search: names that are spelled like a query, whatever finds them.

A factory returns a function from a knowledge base to a `SpellingSearch`; the one of the package is
`kb.words.ngrams`, those of other systems are in `lab.spelling`. Scores are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase

Found = tuple[NDArray[np.int64], NDArray[np.float32]]


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
