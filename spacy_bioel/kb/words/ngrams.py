"""Search for names that are spelled alike: character 3-grams in an inverted index, mapped.

The cosine of TF-IDF vectors of 3-grams within words, as scikit-learn's `char_wb` analyser makes
them but with every 3-gram counted once a name, found without a sparse matrix in memory: a query
touches only the postings of its own dozen 3-grams. In a large knowledge base those are too many:
there names are proposed by the rarest of them and compared by all, so that what a query costs
hardly grows with the number of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.checks import Origin

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_SPACE = ord(" ")
_SIZE = 3
# Names less alike than this are no evidence; not sorting them is most of the speed.
_LOWEST = 0.3
_BLOCK = 1 << 16  # names that are taken apart together: bounds the memory of a build
# Up to so many names all are compared. Above it, postings that propose names for a query, and the
# best of these that are compared by all 3-grams: among 2.2 million names the nearest was found for
# 400 of 400 queries, and 96 % of the nearest 32.
_ALL = 200_000
_POSTINGS, _COMPARED = 1 << 16, 1024
_EVERY = 8  # values of which one is looked at first, where a few of many are wanted


def name_ngrams(names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The 3-grams (of UTF-8 bytes) of names, words padded with a space on both sides.

    names (Sequence[str]): Normalised names.
    RETURNS (tuple): Name number and code of each different 3-gram of each name, sorted by name.
        Shape (n,) each.
    """
    # A line break after each name: no 3-gram has one.
    blob = "".join(f" {name} \n" for name in names).encode("utf8")
    chars = np.frombuffer(blob, dtype=np.uint8).astype(np.int64)
    if len(chars) < _SIZE:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    owner = np.cumsum(chars == ord("\n"))
    first, second, third = chars[:-2], chars[1:-1], chars[2:]
    crosses = second == _SPACE
    for char in (first, second, third):
        crosses |= char == ord("\n")
    codes = (first << 16 | second << 8 | third)[~crosses]
    pairs = np.sort(owner[:-2][~crosses] << 24 | codes)
    # np.unique hashes first, which takes several times as long.
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    return pairs >> 24, pairs & 0xFFFFFF


def build_postings(
    names: Sequence[str],
) -> tuple[NDArray[np.uint32], IntArray, NDArray[np.int32], FloatArray]:
    """An inverted index over names, made of blocks of them.

    RETURNS (tuple): Codes of the 3-grams, ascending, shape (n_grams,); where the postings of each
        start and the last end, shape (n_grams + 1,); name rows, shape (n_postings,); length of
        the TF-IDF vector of each name, shape (n_names,).
    """
    starts = range(0, len(names), _BLOCK)
    blocks = [_block_postings(names[start : start + _BLOCK]) for start in starts]
    grams = np.unique(np.concatenate([np.zeros(0, np.int64), *(block.grams for block in blocks)]))
    places = [np.searchsorted(grams, block.grams) for block in blocks]
    frequency = np.zeros(len(grams), np.int64)
    for place, block in zip(places, blocks, strict=True):
        frequency[place] += block.counts
    offsets = np.append(0, np.cumsum(frequency))
    squares = _rarity(frequency, len(names)) ** 2
    rows, norms = np.empty(offsets[-1], np.int32), np.zeros(len(names), np.float32)
    free = offsets[:-1].copy()  # where the next block's postings of each 3-gram go
    for start, place, block in zip(starts, places, blocks, strict=True):
        runs = np.cumsum(block.counts) - block.counts
        at = np.repeat(free[place] - runs, block.counts) + np.arange(len(block.names))
        rows[at] = start + block.names
        free[place] += block.counts
        lengths = np.bincount(block.names, weights=np.repeat(squares[place], block.counts))
        norms[start : start + len(lengths)] = np.sqrt(lengths)
    return grams.astype(np.uint32), offsets, rows, norms


class _BlockPostings(NamedTuple):
    """The different 3-grams of a block of names, ascending, and the names of each in a row."""

    grams: IntArray
    counts: IntArray
    names: NDArray[np.int32]


def _block_postings(names: Sequence[str]) -> _BlockPostings:
    numbers, codes = name_ngrams(names)
    pairs = np.sort(codes << 32 | numbers)
    grams, counts = np.unique(pairs >> 32, return_counts=True)
    return _BlockPostings(grams, counts, (pairs & 0xFFFFFFFF).astype(np.int32))


def _rarity(frequency: NDArray, n_names: int) -> NDArray[np.float64]:
    """Inverse document frequency, smoothed."""
    return np.log((1 + n_names) / (1 + frequency)) + 1


class NgramIndex:
    """Names by spelling.

    grams, offsets, rows, norms (NDArray): Those of `build_postings`, possibly mapped.
    origin (Origin): Of the rows, for messages.
    RAISES BioelError: [B211] when the first or the last offset is wrong; in a search, where damage
        is met.
    """

    def __init__(
        self,
        grams: NDArray[np.uint32],
        offsets: IntArray,
        rows: NDArray[np.int32],
        norms: FloatArray,
        *,
        origin: Origin | None = None,
    ) -> None:
        self._grams = np.asarray(grams)
        self._offsets = np.asarray(offsets)
        self._rows = rows
        self._norms = np.asarray(norms)
        self._origin = origin or Origin()
        self._origin.check_ends(self._offsets, end=len(rows))
        self._are_checked = np.zeros(len(grams), dtype=bool)

    def search(self, queries: Sequence[str], k: int) -> tuple[IntArray, FloatArray]:
        """The k names most alike to each query.

        queries (Sequence[str]): Normalised strings.
        RETURNS (tuple): Rows and cosines, best first, lower row first among equals; -1 and 0
            where fewer than k names have a cosine of 0.3. Shape (n_queries, k) each.
        """
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        cosines = np.zeros((len(queries), k), dtype=np.float32)
        owner, codes = name_ngrams(queries)
        wanted = codes.astype(np.uint32)  # as `_grams`, which would be copied for each query else
        bounds = np.searchsorted(owner, np.arange(len(queries) + 1))
        # Zero for every name, before and after each query: no query has to go through all of them.
        dots = np.zeros(len(self._norms), dtype=np.float32)
        for i in range(len(queries)):
            found, values = self._search_one(wanted[bounds[i] : bounds[i + 1]], k, dots)
            rows[i, : len(found)], cosines[i, : len(found)] = found, values
        return rows, cosines

    def _search_one(
        self, codes: NDArray[np.uint32], k: int, dots: FloatArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        n = len(self._norms)
        at = np.minimum(np.searchsorted(self._grams, codes), len(self._grams) - 1)
        known = self._grams[at] == codes if len(self._grams) else np.zeros(len(codes), bool)
        if not known.any():
            return np.zeros(0, np.int64), np.zeros(0)
        starts, ends = self._offsets[at[known]], self._offsets[at[known] + 1]
        self._check_bounds(starts, ends)
        squares = _rarity(ends - starts, n) ** 2
        # A 3-gram that no name has makes the query longer all the same.
        unknown = (~known).sum() * _rarity(np.zeros(1), n)[0] ** 2
        length = np.sqrt(squares.sum() + unknown)
        if n <= _ALL:
            postings = [self._rows[s:e] for s, e in zip(starts, ends, strict=True)]
            weights = np.repeat(squares, ends - starts)
            self._check_postings(at[known], postings)
            of_all: Any = np.bincount(np.concatenate(postings), weights, minlength=n)
            alike = np.flatnonzero(of_all >= _LOWEST * length * self._norms)
            shared = of_all[alike]
        else:
            rarest = np.argsort(ends - starts, kind="stable")
            postings = [self._rows[starts[i] : ends[i]] for i in rarest.tolist()]
            alike, shared = self._propose(postings, squares[rarest], dots)
        cosines = shared / np.maximum(length * self._norms[alike], 1e-12)
        kept = np.flatnonzero(cosines >= _LOWEST)
        kept = kept[_highest(cosines[kept], k)]
        kept = kept[np.lexsort((alike[kept], -cosines[kept]))[:k]]
        return alike[kept], cosines[kept]

    def _check_bounds(self, starts: IntArray, ends: IntArray) -> None:
        """Hold the postings of 3-grams, of which each has some, against all that there are."""
        if (starts >= ends).any() or starts.min() < 0 or ends.max() > len(self._rows):
            found = np.stack([starts, ends], axis=1).tolist()
            raise self._origin.damaged(expected="postings from a start to an end", found=found)

    def _check_postings(self, grams: IntArray, postings: Sequence[NDArray[np.int32]]) -> None:
        """Check the rows of 3-grams that no query had before: once, for there are many."""
        for i in np.flatnonzero(~self._are_checked[grams]).tolist():
            self._origin.rows(postings[i], below=len(self._norms))
            self._are_checked[grams[i]] = True

    def _propose(
        self, postings: Sequence[NDArray[np.int32]], squares: NDArray[np.float64], dots: FloatArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Names that share rare 3-grams with a query, and the dot products of all 3-grams.

        postings (Sequence): Names of each 3-gram of the query, the rarest 3-gram first.
        """
        n_postings = np.cumsum([len(rows) for rows in postings])
        n_rare = max(1, int(np.searchsorted(n_postings, _POSTINGS, side="right")))
        rare = self._origin.rows(np.concatenate(postings[:n_rare]), below=len(dots))
        by_gram = np.split(rare.astype(np.int64), n_postings[: n_rare - 1])
        first_seen: list[IntArray] = []
        for names, square in zip(by_gram, squares.tolist(), strict=False):
            before = dots.take(names)
            first_seen.append(names[before == 0])
            dots[names] = before + np.float32(square)
        names = np.concatenate(first_seen)
        shared = dots.take(names)
        dots[names] = 0
        if n_rare < len(postings):
            best = _highest(shared / self._norms.take(names), _COMPARED)
            best = best[np.argsort(names[best])]  # neighbours are looked up faster
            names, shared = names[best], shared[best]
        totals = shared.astype(np.float64)
        same_type = names.astype(np.int32)  # or all postings would be copied as int64
        for rows, square in zip(postings[n_rare:], squares[n_rare:], strict=True):
            place = np.minimum(np.searchsorted(rows, same_type), len(rows) - 1)
            totals += square * (rows[place] == same_type)
        return names, totals


def _highest(values: NDArray[np.floating], k: int) -> IntArray:
    """Where the k highest values are, and others equal to the lowest of them; in any order."""
    if len(values) <= k:
        return np.arange(len(values))
    above = np.arange(len(values))
    if len(values) > 4 * _EVERY * k:
        # A part says below what nothing has to be sorted, and is rarely wrong.
        at = 2 * k // _EVERY + 1
        likely = np.flatnonzero(values >= np.partition(values[::_EVERY], -at)[-at])
        above = likely if len(likely) >= k else above
    return above[values[above] >= np.partition(values[above], -k)[-k]]
