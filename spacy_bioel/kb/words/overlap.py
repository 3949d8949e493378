"""Overlap of the words of two normalised names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.text.variants import singular

IntArray = NDArray[np.int64]

_BREAK = "\0"  # separates strings that are split together; occurs in no word


def word_overlap(
    queries: Sequence[str], names: Sequence[str], query: IntArray, name: IntArray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compare pairs of strings by their sets of words, in the singular.

    The weight of a word is its number of letters, since long words are rare.

    queries, names (Sequence[str]): Normalised strings.
    query, name (IntArray): Number of the query and of the name of each pair. Shape (n,) each.
    RETURNS (tuple): Dice coefficient (1: the same words), and the share of the query that is in
        the name. Shape (n,) each.
    """
    words: dict[str, int] = {}
    query_words, query_starts = _split(queries, words)
    name_words, name_starts = _split(names, words)
    size = np.fromiter(map(len, words), dtype=np.float64, count=len(words))
    query_size = _sums(size[query_words], query_starts)
    name_size = _sums(size[name_words], name_starts)
    # Each word of the name of a pair, and whether the query of the pair has it.
    counts = np.diff(name_starts)[name]
    pair = np.repeat(np.arange(len(name)), counts)
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    word = name_words[name_starts[name][pair] + nth]
    owners = np.repeat(np.arange(len(queries)), np.diff(query_starts))
    shared = _is_among(query[pair] * len(words) + word, owners * len(words) + query_words)
    common = np.bincount(pair, size[word] * shared, len(name))
    both = query_size[query] + name_size[name]
    dice = 2 * common / np.maximum(both, 1)
    covered = common / np.maximum(query_size[query], 1)
    return dice.astype(np.float32), covered.astype(np.float32)


def _split(strings: Sequence[str], words: dict[str, int]) -> tuple[IntArray, IntArray]:
    """Numbers of the distinct words of each string, ascending, and the offsets of the strings."""
    tokens = f" {_BREAK} ".join(strings).split()
    # Words repeat from name to name: `singular` is called once per distinct word.
    different = dict.fromkeys(tokens)
    different.pop(_BREAK, None)
    numbers = {word: words.setdefault(singular(word), len(words)) for word in different}
    numbers[_BREAK] = -1
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=len(tokens))
    owner = np.cumsum(number < 0)
    keys = np.sort((owner * len(words) + number)[number >= 0])
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    owner, number = np.divmod(keys, max(len(words), 1))
    return number, np.searchsorted(owner, np.arange(len(strings) + 1))


def _is_among(keys: IntArray, known: IntArray) -> NDArray[np.bool_]:
    """Mask of the keys that are among `known`, which ascends. Shape of keys."""
    if not len(known):
        return np.zeros(len(keys), bool)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


def _sums(values: NDArray[np.float64], starts: IntArray) -> NDArray[np.float64]:
    totals = np.concatenate([[0.0], np.cumsum(values)])
    return totals[starts[1:]] - totals[starts[:-1]]
