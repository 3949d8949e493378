"""Find names by spelling: n-gram search, word overlap, and correction of misspelled words.

The n-gram search is a memory-mapped inverted index of character 3-grams. Its score is the cosine of
TF-IDF vectors of 3-grams within words, as in scikit-learn's `char_wb` analyser, except that every
3-gram counts once per name. No sparse matrix is kept in memory: a query reads only the postings of
its dozen 3-grams. In a large knowledge base, these postings are long, so the rarest 3-grams propose
names and all 3-grams score them. The cost of a query therefore hardly grows with the number of
names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os.path import commonprefix

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns import KbColumn, entries_of, find_sorted, offsets_of
from spacy_bioel.text.normalize import singular_of
from spacy_bioel.types import DoubleArray, FloatArray, IntArray

_SPACE_BYTE, _NEWLINE_BYTE = ord(" "), ord("\n")
# Names with a lower cosine are too different to count as evidence. Dropping them before sorting
# cuts most of the search time.
_MIN_COSINE = 0.3
_NAMES_PER_PASS = 1 << 16  # limits the memory needed by a build.
# With up to `_MAX_SCORED_NAMES` names, all are scored. With more, the first `_N_POSTINGS` postings
# propose names, and the best `_N_SCORED` of these are scored with all 3-grams. With 2.2 million
# names, this found the nearest name for 400 of 400 queries, and 96 % of the 32 nearest names.
_MAX_SCORED_NAMES = 200_000
_N_POSTINGS, _N_SCORED = 1 << 16, 1024


def name_ngrams(names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Extract 3-grams (of UTF-8 bytes) from names, padding words with a space on both sides.

    names (Sequence[str]): Normalised names.
    RETURNS (tuple): For each distinct 3-gram in each name, the number of the name and the code of
        the 3-gram, sorted by name. Shape (n,) each.
    """
    # Line breaks separate names. Drop 3-grams that contain a line break or span two words.
    text = "".join(f" {name} \n" for name in names).encode("utf8")
    chars = np.frombuffer(text, dtype=np.uint8).astype(np.int64)
    name_numbers = np.cumsum(chars == _NEWLINE_BYTE)
    first, second, third = chars[:-2], chars[1:-1], chars[2:]
    is_dropped = second == _SPACE_BYTE
    for char in (first, second, third):
        is_dropped |= char == _NEWLINE_BYTE
    codes = (first << 16 | second << 8 | third)[~is_dropped]
    pairs = np.sort(name_numbers[:-2][~is_dropped] << 24 | codes)
    # np.unique would hash first, which is several times slower.
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
    starts = range(0, len(names), _NAMES_PER_PASS)
    blocks = []
    for start in starts:
        numbers, codes = name_ngrams(names[start : start + _NAMES_PER_PASS])
        pairs = np.sort(codes << 32 | numbers)
        codes, counts = np.unique(pairs >> 32, return_counts=True)
        blocks.append((codes, counts, (pairs & 0xFFFFFFFF).astype(np.int32)))
    grams = np.unique(np.concatenate([np.zeros(0, np.int64), *(codes for codes, _, _ in blocks)]))
    frequency = np.zeros(len(grams), np.int64)
    for codes, counts, _ in blocks:
        frequency[np.searchsorted(grams, codes)] += counts
    offsets = offsets_of(frequency)
    squares = _rarity(frequency, len(names)) ** 2
    rows, norms = np.empty(offsets[-1], np.int32), np.zeros(len(names), np.float32)
    free = offsets[:-1].copy()  # first free posting of each 3-gram
    for start, (codes, counts, names_of_block) in zip(starts, blocks, strict=True):
        gram = np.searchsorted(grams, codes)
        rows[entries_of(free[gram], counts)[1]] = start + names_of_block
        free[gram] += counts
        squared_norms = np.bincount(names_of_block, weights=np.repeat(squares[gram], counts))
        norms[start : start + len(squared_norms)] = np.sqrt(squared_norms)
    return grams.astype(np.uint32), offsets, rows, norms


def _rarity(frequency: NDArray, n_names: int) -> NDArray[np.float64]:
    """Return the smoothed inverse document frequency."""
    return np.log((1 + n_names) / (1 + frequency)) + 1


class NgramIndex:
    """N-gram search over the names in a knowledge base.

    grams, offsets, rows, norms (KbColumn): Results of `build_postings`, possibly mapped.
    RAISES BioelError: [B211] if the first or last offset is wrong. A search also raises it if
        the postings are damaged.
    """

    def __init__(self, grams: KbColumn, offsets: KbColumn, rows: KbColumn, norms: KbColumn) -> None:
        self._columns = grams, offsets, rows, norms
        self._grams, self._rows, self._norms = grams.values, rows.values, norms.values
        offsets.origin.ends(offsets.values, end=len(rows.values))

    @cached_property
    def _offsets(self) -> IntArray:
        """The offsets. The first access checks all arrays except the rows of a large index."""
        for column in self._columns:
            column.origin.verify()
        _, offsets, rows, _ = self._columns
        if len(self._norms) <= _MAX_SCORED_NAMES:
            rows.origin.rows(rows.values, below=len(self._norms))
        return offsets.origin.growing(offsets.values, least=1)

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Return the inverse document frequencies of codes from `name_ngrams`. Shape (n,)."""
        gram, known = find_sorted(self._grams, codes)
        frequency = np.where(known, self._offsets[gram + known] - self._offsets[gram], 0)
        return _rarity(frequency, len(self._norms))

    def search(self, queries: Sequence[str], k: int) -> tuple[IntArray, FloatArray]:
        """For each query (a normalised string), find the k names with the most similar spelling.

        RETURNS (tuple): Rows and cosines, best first; the lower row wins ties. Names with a cosine
            below 0.3 are dropped, and -1 and 0 fill the rest. Shape (n_queries, k) each.
        """
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        cosines = np.zeros((len(queries), k), dtype=np.float32)
        n_names = len(self._norms)
        query, codes = name_ngrams(queries)
        grams, known = find_sorted(self._grams, codes.astype(np.uint32))
        # 3-grams that occur in no name also count towards the query's norm.
        n_unknown = np.bincount(query[~known], minlength=len(queries))
        unknown = n_unknown * _rarity(np.zeros(1), n_names)[0] ** 2
        query, grams = query[known], grams[known]
        starts, ends = self._offsets[grams], self._offsets[grams + 1]
        squares = _rarity(ends - starts, n_names) ** 2
        # Shared by all queries; each query resets to zero the values that it changed.
        dots = np.zeros(n_names, np.float64 if n_names <= _MAX_SCORED_NAMES else np.float32)
        borders = np.searchsorted(query, np.arange(len(queries) + 1)).tolist()
        for i in np.flatnonzero(np.diff(borders)).tolist():
            own = slice(borders[i], borders[i + 1])
            norm = np.sqrt(squares[own].sum() + unknown[i])
            names, values = self._search_one(grams[own], squares[own], norm, k, dots)
            rows[i, : len(names)], cosines[i, : len(names)] = names, values
        return rows, cosines

    def _search_one(
        self, grams: IntArray, squares: DoubleArray, norm: float, k: int, dots: NDArray
    ) -> tuple[IntArray, DoubleArray]:
        postings = [self._rows[s:e] for s, e in self._offsets[grams[:, None] + [0, 1]].tolist()]
        if len(dots) <= _MAX_SCORED_NAMES:
            for rows, square in zip(postings, squares.tolist(), strict=True):
                np.add.at(dots, rows, square)
            # Compare with a scalar, to avoid a temporary array with a float for every name.
            names = np.flatnonzero(dots >= _MIN_COSINE * norm * self._norms.min())
            products = dots[names]
            dots.fill(0)
        else:
            by_rarity = np.argsort([len(rows) for rows in postings], kind="stable")
            rarest_first = [postings[i] for i in by_rarity.tolist()]
            names, products = self._propose(rarest_first, squares[by_rarity], dots)
        cosines = products / np.maximum(norm * self._norms[names], 1e-12)
        kept = np.flatnonzero(cosines >= _MIN_COSINE)
        kept = kept[_highest(cosines[kept], k)]
        kept = kept[np.lexsort((names[kept], -cosines[kept]))[:k]]
        return names[kept], cosines[kept]

    def _propose(
        self, postings: Sequence[NDArray[np.int32]], squares: DoubleArray, dots: NDArray
    ) -> tuple[IntArray, DoubleArray]:
        """Return names sharing rare 3-grams with a query, and their dot products over all 3-grams.

        postings, squares: For each 3-gram in the query, the rarest first, the names that contain it
            and its squared inverse document frequency.
        dots (NDArray): All zeros, before and after the call. Shape (n_names,).
        """
        n_postings = np.cumsum([len(rows) for rows in postings])
        n_rare = max(1, int(np.searchsorted(n_postings, _N_POSTINGS, side="right")))
        rare = self._columns[2].origin.rows(np.concatenate(postings[:n_rare]), below=len(dots))
        by_gram = np.split(rare.astype(np.int64), n_postings[: n_rare - 1])
        first_seen: list[IntArray] = []
        for names, square in zip(by_gram, squares.tolist(), strict=False):
            old_dots = dots.take(names)
            first_seen.append(names[old_dots == 0])
            dots[names] = old_dots + np.float32(square)
        names = np.concatenate(first_seen)
        products = dots.take(names)
        dots[names] = 0
        if n_rare < len(postings):
            best = _highest(products / self._norms.take(names), _N_SCORED)
            best = best[np.argsort(names[best])]  # sorted names are faster to look up
            names, products = names[best], products[best]
        totals = products.astype(np.float64)
        names_int32 = names.astype(np.int32)  # otherwise all postings would be copied as int64
        for rows, square in zip(postings[n_rare:], squares[n_rare:], strict=True):
            totals += square * find_sorted(rows, names_int32)[1]
        return names, totals


def _highest(values: NDArray[np.floating], k: int) -> IntArray:
    """Return the positions of the k highest values and any ties with the k-th, in any order."""
    if len(values) <= k:
        return np.arange(len(values))
    return np.flatnonzero(values >= np.partition(values, -k)[-k])


_WORD_BREAK = "\0"  # separates strings that are split in one call; never occurs in a word


def word_overlap(
    queries: Sequence[str], names: Sequence[str], query: IntArray, name: IntArray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compare pairs of strings as sets of singularised words.

    The weight of a word is its number of letters, since long words are rare.

    queries, names (Sequence[str]): Normalised strings.
    query, name (IntArray): For each pair, the number of its query and its name. Shape (n,) each.
    RETURNS (tuple): Dice coefficient (1: the same words), and the share of the query that is in
        the name. Shape (n,) each.
    """
    words: dict[str, int] = {}
    query_words, query_starts = _split_words(queries, words)
    name_words, name_starts = _split_words(names, words)
    size = np.fromiter(map(len, words), dtype=np.float64, count=len(words))
    query_size = np.diff(np.concatenate([[0.0], np.cumsum(size[query_words])])[query_starts])
    name_size = np.diff(np.concatenate([[0.0], np.cumsum(size[name_words])])[name_starts])
    # For each word in a pair's name: whether the pair's query contains it.
    counts = np.diff(name_starts)[name]
    pair = np.repeat(np.arange(len(name)), counts)
    word = name_words[entries_of(name_starts[name], counts)[1]]
    keys = query[pair] * len(words) + word
    owner = np.repeat(np.arange(len(queries)), np.diff(query_starts))
    is_shared = find_sorted(owner * len(words) + query_words, keys)[1]
    shared_size = np.bincount(pair, size[word] * is_shared, len(name))
    dice = 2 * shared_size / np.maximum(query_size[query] + name_size[name], 1)
    covered = shared_size / np.maximum(query_size[query], 1)
    return dice.astype(np.float32), covered.astype(np.float32)


def _split_words(strings: Sequence[str], words: dict[str, int]) -> tuple[IntArray, IntArray]:
    """Return the sorted word numbers of each string, without duplicates, and their offsets.

    words (dict[str, int]): Number of each word in the singular; new words are added.
    """
    tokens = f" {_WORD_BREAK} ".join(strings).split()
    # Many names share words, so call `singular` only once per distinct word.
    distinct = dict.fromkeys(tokens)
    distinct.pop(_WORD_BREAK, None)
    numbers = {word: words.setdefault(singular(word), len(words)) for word in distinct}
    numbers[_WORD_BREAK] = -1
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=len(tokens))
    string = np.cumsum(number < 0)
    keys = np.unique((string * len(words) + number)[number >= 0])
    string, number = np.divmod(keys, max(len(words), 1))
    return number, np.searchsorted(string, np.arange(len(strings) + 1))


def singular(word: str) -> str:
    """Crudely strip a plural ending: the result is for comparison, not for display."""
    return word[:-1] if len(word) > 4 and word.endswith("s") and word[-2] not in "sui" else word


# Minimum and maximum length of words to correct. Shorter words resemble too many others. Longer
# strings are not words, and would take too much memory, because each letter adds a deletion.
SHORTEST, LONGEST = 6, 64
# A correction must be this many times as frequent as any other candidate.
_MIN_FREQUENCY_RATIO = 10.0
RARE = 0.3  # per million words; assumed for words of unknown frequency


class Misspellings:
    """Corrects single typing errors: an added, missing or wrong letter, or two swapped letters.

    words (Mapping[str, int]): Words in a knowledge base, and the number of names with each word.
    """

    def __init__(self, words: Mapping[str, int]) -> None:
        self._words = [w for w in words if SHORTEST <= len(w) <= LONGEST and w.isalpha()]
        self._counts = words
        # Words one typing error apart become identical if a letter is deleted from one or both.
        keys = (hash(key) for word in self._words for key in (word, *_deletions(word)))
        hashes = np.fromiter(keys, dtype=np.int64)
        numbers = np.repeat(np.arange(len(self._words)), list(map(len, self._words)))
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._numbers = hashes[order], numbers[order].astype(np.int32)

    def correction(self, word: str, *, known: Mapping[str, float]) -> str | None:
        """Return the correct form of a misspelled word, or None if there is no clear correction.

        known (Mapping[str, float]): Additional correct words that are not in the knowledge
            base, with their frequency per million words of text.
        """
        if not SHORTEST <= len(word) <= LONGEST or not (word.isalpha() and word.isascii()):
            return None
        if any(w in self._counts or w in known for w in (word, singular_of(word), word + "s")):
            return None
        candidates = dict.fromkeys(self._near(word))
        candidates = candidates or dict.fromkeys(self._near(singular_of(word)))
        frequency: dict[str, float] = defaultdict(float)
        for candidate in candidates:
            frequency[singular_of(candidate)] += known.get(candidate, RARE)
        if not frequency:
            return None
        best, *others = sorted(frequency, key=frequency.__getitem__, reverse=True)
        if any(frequency[best] < _MIN_FREQUENCY_RATIO * frequency[other] for other in others):
            return None
        forms = [candidate for candidate in candidates if singular_of(candidate) == best]
        return max(forms, key=self._counts.__getitem__)

    def _near(self, word: str) -> Iterator[str]:
        """Yield the words that are one typing error away. A word may be yielded more than once.

        A wrong last letter is another ending: "hyperemic" is not a misspelling of "hyperemia".
        """
        keys = np.fromiter(map(hash, (word, *_deletions(word))), dtype=np.int64)
        first, last = (self._hashes.searchsorted(keys, side).tolist() for side in ("left", "right"))
        for start, end in zip(first, last, strict=True):
            for number in self._numbers[start:end].tolist():
                other = self._words[number]
                is_ending = len(other) == len(word) and other[-1] != word[-1]
                if is_one_error_apart(word, other) and not is_ending:
                    yield other


def _deletions(word: str) -> Iterator[str]:
    """Yield the word with each letter deleted in turn, except the first, which is rarely wrong."""
    return (word[:i] + word[i + 1 :] for i in range(1, len(word)))


def is_one_error_apart(word: str, other: str) -> bool:
    """Return whether strings differ by one added, missing or wrong letter, or by a swapped pair."""
    if abs(len(word) - len(other)) > 1 or word == other:
        return False
    n_equal = len(commonprefix((word, other)))
    a, b = word[n_equal:], other[n_equal:]
    return (
        a[1:] == b[1:]  # wrong letter
        or a[1:] == b  # added letter
        or a == b[1:]  # missing letter
        or (a[:2] == b[:2][::-1] and a[2:] == b[2:])  # swapped letters
    )
