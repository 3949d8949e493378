"""The name to write about a training mention: of the names of its concept, the likest one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.ngrams import name_ngrams
from spacy_bioel.text.normalize import normalize_names

IntArray = NDArray[np.int64]


def nearest_names(kb: KnowledgeBase, strings: Sequence[str], concepts: IntArray) -> IntArray:
    """For each mention the name of its concept with the highest cosine of TF-IDF vectors.

    The vectors are of character 3-grams, with the frequencies of all names, as in the spelling
    search. The first name wins among equals, so that a string that is like none gets the preferred
    one.

    strings (Sequence[str]): Normalised mentions.
    concepts (IntArray): Concept row of each. Shape (n,).
    RETURNS (IntArray): Name rows. Shape (n,).
    """
    indptr, rows = kb.names_of_all(concepts)
    mention = np.repeat(np.arange(len(concepts)), np.diff(indptr))
    different, place = np.unique(rows, return_inverse=True)
    names = normalize_names(kb.names.take(different))
    owner, codes = name_ngrams([*strings, *names])
    weights = kb.ngrams.rarity(codes) ** 2
    norms = np.sqrt(np.bincount(owner, weights, len(strings) + len(names)))
    starts = np.searchsorted(owner, np.arange(len(strings) + len(names) + 1))
    # All 3-grams of each name, looked for among those of its mention.
    first, last = starts[len(strings) + place], starts[len(strings) + place + 1]
    counts = last - first
    pair = np.repeat(np.arange(len(rows)), counts)
    ends = np.cumsum(counts)
    at = np.repeat(first - (ends - counts), counts) + np.arange(counts.sum())
    of_strings = (owner << 24 | codes)[: starts[len(strings)]]
    keys = mention[pair] << 24 | codes[at]
    found = np.minimum(np.searchsorted(of_strings, keys), max(0, len(of_strings) - 1))
    shared = of_strings[found] == keys if len(of_strings) else np.zeros(len(keys), dtype=bool)
    dots = np.bincount(pair, weights[at] * shared, len(rows))
    cosines = dots / np.maximum(norms[mention] * norms[len(strings) + place], 1e-12)
    order = np.lexsort((np.arange(len(rows)), -cosines.round(6), mention))
    nearest: IntArray = rows[order[np.searchsorted(mention[order], np.arange(len(concepts)))]]
    return nearest
