"""Baselines for n-gram search: TF-IDF and BM25.

Both can replace `NgramSearch` of `linking.searches`. Names are indexed at the first query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import spacy
from numpy.typing import NDArray

from spacy_bioel.kb.joined import SearchResult
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.searches import MakeSearch
from spacy_bioel.text.normalize import normalize_name

if TYPE_CHECKING:
    from bm25s import BM25
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

FloatArray = NDArray[np.float32]

_SCORES_PER_BLOCK = 1 << 22  # scores of all names for some queries at once, 16 MB
_DECIMALS = 6  # scores that are equal when rounded are ties


class TfidfSearch:
    """Cosine of TF-IDF vectors of character n-grams, by scikit-learn.

    kb (KnowledgeBase): The weights are fitted on its normalised names.
    ngram_range (tuple[int, int]): Shortest and longest n-gram.
    analyzer (str): "char_wb", n-grams within words; "char", across them too.
    """

    def __init__(self, kb: KnowledgeBase, *, ngram_range: tuple[int, int], analyzer: str) -> None:
        self.kb = kb
        self.ngram_range = ngram_range
        self.analyzer = analyzer

    @cached_property
    def _fitted(self) -> tuple[TfidfVectorizer, csr_matrix]:
        """Vectoriser, and vectors of all names as a sparse matrix, (n_grams, n_names)."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            analyzer=self.analyzer,
            ngram_range=self.ngram_range,
            lowercase=False,
            dtype=np.float32,
        )
        return vectorizer, vectorizer.fit_transform(_normalized_names(self.kb)).T.tocsr()

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """See `NgramSearch.search`."""
        vectorizer, names = self._fitted
        step = max(1, _SCORES_PER_BLOCK // self.kb.n_names)
        blocks = (queries[i : i + step] for i in range(0, len(queries), step))
        scores = ((vectorizer.transform(block) @ names).toarray() for block in blocks)
        return _best(chain.from_iterable(scores), shape=(len(queries), k))


class BM25Search:
    """BM25 as in Lucene, by bm25s: documents are names, terms are words.

    BM25 scores are not bounded, so they are divided by the score of a name with exactly the words
    of the query: an equal name gets 1, and if no name has half of the query, the best get about a
    half. Dividing by the best score instead would give every query a name with 1, however bad.

    Kamphuis et al. (2020), Which BM25 do you mean?, https://doi.org/10.1007/978-3-030-45442-5_4
    """

    def __init__(self, kb: KnowledgeBase, *, k1: float, b: float) -> None:
        self.kb = kb
        self.k1 = k1
        self.b = b

    @cached_property
    def _index(self) -> tuple[BM25, Counter[str], float]:
        """Index, number of names with each word, and average number of words in a name."""
        from bm25s import BM25

        names = [name.split() for name in _normalized_names(self.kb)]
        index = BM25(k1=self.k1, b=self.b, method="lucene", backend="numpy")
        index.index(names, show_progress=False)
        frequency = Counter(chain.from_iterable(map(set, names)))
        return index, frequency, sum(map(len, names)) / len(names)

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """See `NgramSearch.search`."""
        return _best(map(self._scores, queries), shape=(len(queries), k))

    def _scores(self, query: str) -> FloatArray:
        """Return the scores of all names. Shape (n_names,)."""
        index, _, _ = self._index
        words = query.split()
        known = index.get_tokens_ids(words)
        if not known:
            return np.zeros(self.kb.n_names, dtype=np.float32)
        scores = index.get_scores_from_ids(known) / self._ideal_score(words)
        # A name that repeats a word of the query can be better than the query itself.
        return np.minimum(scores, 1.0)

    def _ideal_score(self, words: Sequence[str]) -> float:
        """Return the score of a name with exactly these words; unknown words count as rare."""
        _, frequency, average = self._index
        length = self.k1 * (1 - self.b + self.b * len(words) / average)
        n_names = self.kb.n_names
        return sum(
            # The word counts as often in the query as in the name, hence the square.
            count**2 / (count + length) * np.log(1 + (n_names - df + 0.5) / (df + 0.5))
            for count, df in ((count, frequency[word]) for word, count in Counter(words).items())
        )


@spacy.registry.misc("spacy-bioel.Tfidf.v1")
def create_tfidf_v1(
    ngram_min: int = 3, ngram_max: int = 3, analyzer: str = "char_wb"
) -> MakeSearch:
    """Create spacy-bioel.Tfidf.v1; BioSyn uses analyzer = "char" with n-grams of 1 to 2."""
    return partial(TfidfSearch, ngram_range=(ngram_min, ngram_max), analyzer=analyzer)


@spacy.registry.misc("spacy-bioel.BM25.v1")
def create_bm25_v1(k1: float = 1.2, b: float = 0.75) -> MakeSearch:
    """Create spacy-bioel.BM25.v1; needs the package bm25s.

    k1 (float): Weight of repeated words; 0: they count once.
    b (float): Penalty on long names, 0 to 1.
    """
    return partial(BM25Search, k1=k1, b=b)


def _normalized_names(kb: KnowledgeBase) -> list[str]:
    return [normalize_name(name) for name in kb.names]


def _best(scores: Iterable[FloatArray], *, shape: tuple[int, int]) -> SearchResult:
    """Return the k best names of each query.

    scores (Iterable): For each query the scores of all names, shape (n_names,).
    shape (tuple[int, int]): Number of queries, k.
    """
    rows = np.full(shape, -1, dtype=np.int64)
    best = np.zeros(shape, dtype=np.float32)
    k = shape[1]
    for i, name_scores in enumerate(scores):
        name_rows = np.flatnonzero(name_scores)
        values = np.round(name_scores[name_rows], _DECIMALS)
        if len(name_rows) > k:
            kept = values >= np.partition(values, -k)[-k]
            name_rows, values = name_rows[kept], values[kept]
        order = np.lexsort((name_rows, -values))[:k]
        rows[i, : len(order)], best[i, : len(order)] = name_rows[order], values[order]
    return rows, best
