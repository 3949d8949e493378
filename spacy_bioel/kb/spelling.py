"""Spelling search: a memory-mapped inverted index of character 3-grams.

The score is the cosine of TF-IDF vectors of 3-grams within words, as in scikit-learn's `char_wb`
analyser, except that every 3-gram counts once a name. No sparse matrix is kept in memory: a query
reads only the postings of its own dozen 3-grams. In a large knowledge base those are too many.
There the rarest 3-grams propose names and all 3-grams score them, so that the cost of a query
hardly grows with the number of names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns import MEMORY, Origin, entries_of, offsets_of
from spacy_bioel.text.normalize import singular_of
from spacy_bioel.types import FloatArray, IntArray

_SPACE = ord(" ")
_SIZE = 3
# Lowest cosine that counts as evidence. Not sorting the names below it saves most of the time.
_LOWEST = 0.3
_BLOCK = 1 << 16  # names per block of a build, which bounds its memory
# Up to this number of names, all are scored. Above it, `_POSTINGS` postings propose names, and the
# best `_COMPARED` of these are scored by all 3-grams. Among 2.2 million names the nearest was found
# for 400 of 400 queries, and 96 % of the nearest 32.
_ALL = 200_000
_POSTINGS, _COMPARED = 1 << 16, 1024
_EVERY = 8  # stride of the sample that bounds the k highest of many values


def name_ngrams(names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Extract the 3-grams (of UTF-8 bytes) of names, words padded with a space on both sides.

    names (Sequence[str]): Normalised names.
    RETURNS (tuple): Name number and code of each distinct 3-gram of each name, sorted by name.
        Shape (n,) each.
    """
    # Line breaks separate names: 3-grams across them are dropped.
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
    # np.unique hashes first and takes several times as long.
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    return pairs >> 24, pairs & 0xFFFFFF


def build_postings(
    names: Sequence[str],
) -> tuple[NDArray[np.uint32], IntArray, NDArray[np.int32], FloatArray]:
    """Build an inverted index over names, block by block.

    RETURNS (tuple): Codes of the 3-grams, ascending, shape (n_grams,); offsets of their postings,
        shape (n_grams + 1,); name rows, shape (n_postings,); norm of the TF-IDF vector of each
        name, shape (n_names,).
    """
    starts = range(0, len(names), _BLOCK)
    blocks = [_block_postings(names[start : start + _BLOCK]) for start in starts]
    grams = np.unique(np.concatenate([np.zeros(0, np.int64), *(own for own, _, _ in blocks)]))
    frequency = np.zeros(len(grams), np.int64)
    for own, counts, _ in blocks:
        frequency[np.searchsorted(grams, own)] += counts
    offsets = offsets_of(frequency)
    squares = _rarity(frequency, len(names)) ** 2
    rows, norms = np.empty(offsets[-1], np.int32), np.zeros(len(names), np.float32)
    free = offsets[:-1].copy()  # first free posting of each 3-gram
    for start, (own, counts, numbers) in zip(starts, blocks, strict=True):
        place = np.searchsorted(grams, own)
        rows[entries_of(free[place], counts)[1]] = start + numbers
        free[place] += counts
        lengths = np.bincount(numbers, weights=np.repeat(squares[place], counts))
        norms[start : start + len(lengths)] = np.sqrt(lengths)
    return grams.astype(np.uint32), offsets, rows, norms


def _block_postings(names: Sequence[str]) -> tuple[IntArray, IntArray, NDArray[np.int32]]:
    """Distinct 3-grams of a block of names, ascending, with their counts and concatenated names."""
    numbers, codes = name_ngrams(names)
    pairs = np.sort(codes << 32 | numbers)
    grams, counts = np.unique(pairs >> 32, return_counts=True)
    return grams, counts, (pairs & 0xFFFFFFFF).astype(np.int32)


def _rarity(frequency: NDArray, n_names: int) -> NDArray[np.float64]:
    """Inverse document frequency, smoothed."""
    return np.log((1 + n_names) / (1 + frequency)) + 1


class NgramIndex:
    """Spelling search over the names of a knowledge base.

    grams, offsets, rows, norms (NDArray): Results of `build_postings`, possibly mapped.
    origin (Origin): File of the rows, for messages.
    RAISES BioelError: [B211] when the first or the last offset is wrong. A search raises it too,
        when it reads damaged postings.
    """

    def __init__(
        self,
        grams: NDArray[np.uint32],
        offsets: IntArray,
        rows: NDArray[np.int32],
        norms: FloatArray,
        *,
        origin: Origin = MEMORY,
    ) -> None:
        self._grams = np.asarray(grams)
        self._rows, self._origin = rows, origin
        self._norms = np.asarray(norms)
        self._offsets = self._origin.ends(np.asarray(offsets), end=len(rows))
        self._are_checked = np.zeros(len(grams), dtype=bool)

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Inverse document frequency of 3-grams, by the codes of `name_ngrams`. Shape (n,)."""
        at, known = self._find(codes)
        frequency = np.where(known, self._offsets[at + known] - self._offsets[at], 0)
        return _rarity(frequency, len(self._norms))

    def _find(self, codes: NDArray[Any]) -> tuple[IntArray, NDArray[np.bool_]]:
        """Number of each 3-gram, and whether there is one."""
        if not len(self._grams):
            return np.zeros(len(codes), np.int64), np.zeros(len(codes), bool)
        at = np.minimum(np.searchsorted(self._grams, codes), len(self._grams) - 1)
        return at, self._grams[at] == codes

    def search(self, queries: Sequence[str], k: int) -> tuple[IntArray, FloatArray]:
        """Find the k names with the most similar spelling for each query, a normalised string.

        RETURNS (tuple): Rows and cosines, best first, lower row first among equals. Names below a
            cosine of 0.3 are left out; -1 and 0 pad the rest. Shape (n_queries, k) each.
        """
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        cosines = np.zeros((len(queries), k), dtype=np.float32)
        owner, codes = name_ngrams(queries)
        wanted = codes.astype(np.uint32)  # the type of `_grams`, or each query would copy `_grams`
        bounds = np.searchsorted(owner, np.arange(len(queries) + 1))
        # Shared by all queries: each resets the few names that it touched to zero.
        dots = np.zeros(len(self._norms), dtype=np.float32)
        for i in range(len(queries)):
            found, values = self._search_one(wanted[bounds[i] : bounds[i + 1]], k, dots)
            rows[i, : len(found)], cosines[i, : len(found)] = found, values
        return rows, cosines

    def _search_one(
        self, codes: NDArray[np.uint32], k: int, dots: FloatArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        n = len(self._norms)
        at, known = self._find(codes)
        if not known.any():
            return np.zeros(0, np.int64), np.zeros(0)
        starts, ends = self._offsets[at[known]], self._offsets[at[known] + 1]
        if (starts >= ends).any() or starts.min() < 0 or ends.max() > len(self._rows):
            found = np.stack([starts, ends], axis=1).tolist()
            raise self._origin.damaged(expected="postings from a start to an end", found=found)
        squares = _rarity(ends - starts, n) ** 2
        # 3-grams that no name has add to the norm of the query too.
        unknown = (~known).sum() * _rarity(np.zeros(1), n)[0] ** 2
        length = np.sqrt(squares.sum() + unknown)
        if n <= _ALL:
            postings = [self._rows[s:e] for s, e in zip(starts, ends, strict=True)]
            weights = np.repeat(squares, ends - starts)
            self._check_postings(at[known], postings)
            of_all: Any = np.bincount(np.concatenate(postings), weights, minlength=n)
            names = np.flatnonzero(of_all >= _LOWEST * length * self._norms)
            shared = of_all[names]
        else:
            rarest = np.argsort(ends - starts, kind="stable")
            postings = [self._rows[starts[i] : ends[i]] for i in rarest.tolist()]
            names, shared = self._propose(postings, squares[rarest], dots)
        cosines = shared / np.maximum(length * self._norms[names], 1e-12)
        kept = np.flatnonzero(cosines >= _LOWEST)
        kept = kept[_highest(cosines[kept], k)]
        kept = kept[np.lexsort((names[kept], -cosines[kept]))[:k]]
        return names[kept], cosines[kept]

    def _check_postings(self, grams: IntArray, postings: Sequence[NDArray[np.int32]]) -> None:
        """Check the rows of each 3-gram when it is first used; repeating it would cost time."""
        new = np.flatnonzero(~self._are_checked[grams])
        if len(new):
            rows = np.concatenate([postings[i] for i in new.tolist()])
            self._origin.rows(rows, below=len(self._norms))
            self._are_checked[grams[new]] = True

    def _propose(
        self, postings: Sequence[NDArray[np.int32]], squares: NDArray[np.float64], dots: FloatArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Propose names that share rare 3-grams with a query, with dot products over all 3-grams.

        postings, squares: Names of each 3-gram of the query, the rarest 3-gram first, and its
            squared inverse document frequency.
        dots (FloatArray): Zeros, before and after. Shape (n_names,).
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
            best = best[np.argsort(names[best])]  # sorted, lookups are faster
            names, shared = names[best], shared[best]
        totals = shared.astype(np.float64)
        same_type = names.astype(np.int32)  # else all postings would be copied as int64
        for rows, square in zip(postings[n_rare:], squares[n_rare:], strict=True):
            place = np.minimum(np.searchsorted(rows, same_type), len(rows) - 1)
            totals += square * (rows[place] == same_type)
        return names, totals


def _highest(values: NDArray[np.floating], k: int) -> IntArray:
    """Positions of the k highest values, and of ties with the lowest of them; in any order."""
    if len(values) <= k:
        return np.arange(len(values))
    above = np.arange(len(values))
    if len(values) > 4 * _EVERY * k:
        # A sample gives a lower bound, which is rarely too high.
        at = 2 * k // _EVERY + 1
        likely = np.flatnonzero(values >= np.partition(values[::_EVERY], -at)[-at])
        above = likely if len(likely) >= k else above
    return above[values[above] >= np.partition(values[above], -k)[-k]]


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
    query_size, name_size = (
        np.diff(np.concatenate([[0.0], np.cumsum(size[own])])[starts])
        for own, starts in ((query_words, query_starts), (name_words, name_starts))
    )
    # Each word of the name of a pair, and whether the query of the pair has it.
    counts = np.diff(name_starts)[name]
    pair = np.repeat(np.arange(len(name)), counts)
    word = name_words[entries_of(name_starts[name], counts)[1]]
    owners = np.repeat(np.arange(len(queries)), np.diff(query_starts))
    keys, known = query[pair] * len(words) + word, owners * len(words) + query_words
    shared = np.zeros(len(keys), bool)
    if len(known):
        shared = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
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


def singular(word: str) -> str:
    """Strip a plural ending, roughly: the result is for comparison, not for display."""
    return word[:-1] if len(word) > 4 and word.endswith("s") and word[-2] not in "sui" else word


# Letters: short words are near to too many others, and longer strings are no words. A word has as
# many pieces as letters, each as long as itself.
SHORTEST, LONGEST = 6, 64
# Of two words that may be meant, one has to be so many times as frequent as the other.
_SURER = 10.0
RARE = 0.3  # times in a million words, of a word whose frequency is not known


class Misspellings:
    """Finds the word that is meant: one letter more, less, another, or two in the wrong order.

    words (Mapping[str, int]): Words of a knowledge base, and how often each is there.
    """

    def __init__(self, words: Mapping[str, int]) -> None:
        self._words = [w for w in words if SHORTEST <= len(w) <= LONGEST and w.isalpha()]
        self._counts = words
        # Two words are one slip apart if they are equal with a letter left out of one, or both.
        pieces = [
            (hash(piece), number)
            for number, word in enumerate(self._words)
            for piece in {word, *_shortened(word)}
        ]
        table = np.array(pieces, dtype=np.int64).reshape(-1, 2)
        table = table[np.argsort(table[:, 0], kind="stable")]
        self._hashes, self._numbers = table[:, 0].copy(), table[:, 1].astype(np.int32)

    def meant(self, word: str, *, known: Mapping[str, float]) -> str | None:
        """The word that a misspelled one stands for; None: no word, or a choice between several.

        known (Mapping[str, float]): Words that are right as they are, as is every word of the
            knowledge base, and how often they are in a million words of text.
        """
        if not SHORTEST <= len(word) <= LONGEST or not (word.isalpha() and word.isascii()):
            return None
        if any(w in self._counts or w in known for w in (word, singular_of(word), word + "s")):
            return None
        found = dict.fromkeys(self._near(word)) or dict.fromkeys(self._near(singular_of(word)))
        frequency: dict[str, float] = defaultdict(float)
        for other in found:
            frequency[singular_of(other)] += known.get(other, RARE)
        ranked = sorted(frequency, key=frequency.__getitem__, reverse=True)
        if not ranked or any(frequency[ranked[0]] < _SURER * frequency[w] for w in ranked[1:]):
            return None
        likely = [other for other in found if singular_of(other) == ranked[0]]
        return max(likely, key=self._counts.__getitem__)

    def _near(self, word: str) -> Iterator[str]:
        for piece in {word, *_shortened(word)}:
            start = np.searchsorted(self._hashes, hash(piece))
            end = np.searchsorted(self._hashes, hash(piece), side="right")
            for number in self._numbers[start:end].tolist():
                if _is_one_slip(word, self._words[number]):
                    yield self._words[number]


def _shortened(word: str) -> Iterator[str]:
    """All strings with one letter left out, but not the first, which is rarely wrong."""
    return (word[:i] + word[i + 1 :] for i in range(1, len(word)))


def _is_one_slip(word: str, other: str) -> bool:
    if word[0] != other[0] or abs(len(word) - len(other)) > 1 or word == other:
        return False
    shorter = min(len(word), len(other))
    same = next((i for i in range(shorter) if word[i] != other[i]), shorter)
    a, b = word[same:], other[same:]
    return (
        a[1:] == b[1:]  # another letter
        or a[1:] == b
        or a == b[1:]
        or (a[:2] == b[:2][::-1] and a[2:] == b[2:])
    )
