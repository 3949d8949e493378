"""Spelling searches of other systems, TF-IDF and BM25, to compare the linker's own with.

Both are `NgramSearch`es of `linking.searches`. Names are weighed when the first query
comes.
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

# Scores of all names for some queries at once: at most so many numbers (16 MB).
_BLOCK = 1 << 22
# Scores that differ only by rounding are ties.
_DECIMALS = 6


class TfidfSearch:
    """Cosine of TF-IDF vectors of character n-grams, by scikit-learn.

    kb (KnowledgeBase): Its normalised names are what the weights are fitted on.
    ngram_range (tuple[int, int]): Shortest and longest n-gram.
    analyzer (str): "char_wb", n-grams within words; "char", across them too.
    """

    def __init__(self, kb: KnowledgeBase, *, ngram_range: tuple[int, int], analyzer: str) -> None:
        self.kb = kb
        self.ngram_range = ngram_range
        self.analyzer = analyzer

    @cached_property
    def _fitted(self) -> tuple[TfidfVectorizer, csr_matrix]:
        """The vectoriser, and the vectors of all names as a sparse matrix, (n_grams, n_names)."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            analyzer=self.analyzer,
            ngram_range=self.ngram_range,
            lowercase=False,
            dtype=np.float32,
        )
        return vectorizer, vectorizer.fit_transform(_normalized_names(self.kb)).T.tocsr()

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """See `SpellingSearch.search`."""
        vectorizer, names = self._fitted
        step = max(1, _BLOCK // self.kb.n_names)
        blocks = (queries[i : i + step] for i in range(0, len(queries), step))
        scores = ((vectorizer.transform(block) @ names).toarray() for block in blocks)
        return _best(chain.from_iterable(scores), shape=(len(queries), k))


class BM25Search:
    """BM25 in the form of Lucene, by bm25s: a document is a name, a term one of its words.

    BM25 has no upper bound, so a score is divided by what a name of exactly the words of the
    query would get; an equal name gets 1, a query of which half is in no name at most about half.
    The best score of each query would be no measure: it makes 1 of the best, however bad.

    Kamphuis et al. (2020), Which BM25 do you mean?, https://doi.org/10.1007/978-3-030-45442-5_4
    """

    def __init__(self, kb: KnowledgeBase, *, k1: float, b: float) -> None:
        self.kb = kb
        self.k1 = k1
        self.b = b

    @cached_property
    def _index(self) -> tuple[BM25, Counter[str], float]:
        """The index, in how many names each word is, and how many words a name has on average."""
        from bm25s import BM25

        names = [name.split() for name in _normalized_names(self.kb)]
        index = BM25(k1=self.k1, b=self.b, method="lucene", backend="numpy")
        index.index(names, show_progress=False)
        frequency = Counter(chain.from_iterable(map(set, names)))
        return index, frequency, sum(map(len, names)) / len(names)

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """See `SpellingSearch.search`."""
        return _best(map(self._scores, queries), shape=(len(queries), k))

    def _scores(self, query: str) -> FloatArray:
        """Scores of all names. Shape (n_names,)."""
        index, _, _ = self._index
        words = query.split()
        known = index.get_tokens_ids(words)
        if not known:
            return np.zeros(self.kb.n_names, dtype=np.float32)
        scores = index.get_scores_from_ids(known) / self._own_score(words)
        # A name that repeats a word of the query can be better than the query itself.
        return np.minimum(scores, 1.0)

    def _own_score(self, words: Sequence[str]) -> float:
        """The score of a name that has these words; a word of no name counts as a rare one."""
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
    """spacy-bioel.Tfidf.v1; the sparse part of BioSyn is analyzer = "char", from 1 to 2."""
    return partial(TfidfSearch, ngram_range=(ngram_min, ngram_max), analyzer=analyzer)


@spacy.registry.misc("spacy-bioel.BM25.v1")
def create_bm25_v1(k1: float = 1.2, b: float = 0.75) -> MakeSearch:
    """spacy-bioel.BM25.v1; needs the package bm25s.

    k1 (float): How much a word that is repeated counts; 0: once.
    b (float): How much long names are held back, 0 to 1.
    """
    return partial(BM25Search, k1=k1, b=b)


def _normalized_names(kb: KnowledgeBase) -> list[str]:
    return [normalize_name(name) for name in kb.names]


def _best(scores: Iterable[FloatArray], *, shape: tuple[int, int]) -> SearchResult:
    """The k best names of each query, from the scores of all names for one query after another.

    scores (Iterable): Shape (n_names,) each.
    shape (tuple[int, int]): Number of queries, k.
    """
    rows = np.full(shape, -1, dtype=np.int64)
    best = np.zeros(shape, dtype=np.float32)
    k = shape[1]
    for i, of_names in enumerate(scores):
        found = np.flatnonzero(of_names)
        values = np.round(of_names[found], _DECIMALS)
        if len(found) > k:
            kept = values >= np.partition(values, -k)[-k]
            found, values = found[kept], values[kept]
        order = np.lexsort((found, -values))[:k]
        rows[i, : len(order)], best[i, : len(order)] = found[order], values[order]
    return rows, best
