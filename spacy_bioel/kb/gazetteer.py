"""Find knowledge base names in a text by hashed keys: `Gazetteer` and `BagsOfWords`.

`Gazetteer` maps the keys of names to their types, for mention detection. A gazetteer takes about
ten bytes per name, so a detector can include it and needs no knowledge base at run time.

`BagsOfWords` indexes names by their sets of stems. The index finds a name in any word order, with
different endings or linking words, and with words replaced by interchangeable words.
The key of a bag is the sum of its stem keys, so the key of any text span is the difference between
two running sums, and replacing a word takes one subtraction and one addition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns import entries_of, find_sorted
from spacy_bioel.kb.knowledge_base import (
    KEY_MASK,
    KeyArray,
    KnowledgeBase,
    name_keys,
    span_keys,
    word_key,
)
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    MORE_OR_LESS,
    PREPOSITIONS,
    amount_of,
    is_amount,
    normalize_name,
    normalize_names,
    stem_of,
    words_of,
)
from spacy_bioel.types import IntArray

# A 64-bit mask has one bit per type. Its last bit marks preferred names, or words that usually
# come last in a name.
MAX_TYPES = 63
_LAST_BIT = np.uint64(1 << MAX_TYPES)
# A word indicates a type if at least this share of the names that contain it have the type.
_MIN_SHARE_OF_NAMES = 0.3

MaskArray = NDArray[np.uint64]


@dataclass(frozen=True)
class KeyMasks:
    """Sorted keys of names or words, each with a bit mask of types."""

    keys: KeyArray
    masks: MaskArray

    def find(self, keys: KeyArray) -> MaskArray:
        """Return the mask of each key (0 for unknown keys), in the same shape as `keys`."""
        # Few text spans are names, so first use leading key bits to rule out nearly all the others.
        prefixes = keys >> np.uint64(64 - self._n_prefix_bits)
        bits = self._prefixes[prefixes >> np.uint64(3)]
        bits = bits >> (prefixes & np.uint64(7)).astype(np.uint8)
        possible = np.flatnonzero(bits & np.uint8(1))
        wanted = keys.ravel()[possible]
        position, known = find_sorted(self.keys, wanted)
        known &= wanted != 0
        masks = np.zeros(keys.size, dtype=np.uint64)
        masks[possible[known]] = self.masks[position[known]]
        return masks.reshape(keys.shape)

    @cached_property
    def _n_prefix_bits(self) -> int:
        """Number of leading key bits that index `_prefixes`, where at most 1 bit in 16 is set."""
        return len(self.keys).bit_length() + 4

    @cached_property
    def _prefixes(self) -> NDArray[np.uint8]:
        """Bitmap of all possible key prefixes; a bit is set if any key has that prefix."""
        prefixes = self.keys >> np.uint64(64 - self._n_prefix_bits)
        bitmap = np.zeros(1 << (self._n_prefix_bits - 3), np.uint8)
        np.bitwise_or.at(bitmap, prefixes >> 3, np.uint8(1) << (prefixes & 7).astype(np.uint8))
        return bitmap


NO_KEYS = KeyMasks(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))


@dataclass(frozen=True, eq=False)
class Gazetteer:
    """The types of a knowledge base's names, and the types that single words indicate.

    names (KeyMasks): For each name, the types of its concepts.
    words (KeyMasks): For each word, the types that it indicates: most names with "nephropathy" are
        diseases.
    """

    names: KeyMasks = NO_KEYS
    words: KeyMasks = NO_KEYS

    @classmethod
    def from_kb(cls, kb: KnowledgeBase) -> Gazetteer:
        """Build a gazetteer from a knowledge base, using its 63 most frequent types."""
        masks = _name_masks(kb)
        names = KeyMasks(np.array(kb.name_keys), masks[kb.name_key_rows])
        return cls(names, _word_masks([normalize_name(name) for name in kb.names], masks))

    def arrays(self) -> dict[str, NDArray]:
        """Return all arrays by name, for storage: keys, distinct masks, and mask numbers."""
        arrays: dict[str, NDArray] = {}
        for name, table in (("names", self.names), ("words", self.words)):
            masks, mask_numbers = np.unique(table.masks, return_inverse=True)
            arrays[f"{name}.keys"] = table.keys
            arrays[f"{name}.different_masks"] = masks
            arrays[f"{name}.mask_numbers"] = mask_numbers.astype(np.min_scalar_type(len(masks)))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray]) -> Gazetteer:
        """Restore a gazetteer from the result of `arrays`."""

        def table(name: str) -> KeyMasks:
            masks = arrays[f"{name}.different_masks"][arrays[f"{name}.mask_numbers"]]
            return KeyMasks(arrays[f"{name}.keys"], masks)

        return cls(table("names"), table("words"))

    def match_spans(
        self, tokens: Sequence[str], max_width: int, *, lengths: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Find all token spans that are names, in several documents at once.

        tokens (Sequence[str]): Normalised tokens of all documents, concatenated.
        lengths (IntArray): Number of tokens in each document. Shape (n_docs,).
        RETURNS (tuple): start, width - 1 and bit, one entry for each set bit of a span's mask.
            Shape (n_bits,) each.
        """
        keys = span_keys(tokens, max_width)
        tokens_left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens))
        keys[tokens_left[:, None] <= np.arange(max_width)] = 0
        # A span that begins or ends with an empty token would repeat the match of a shorter span.
        is_empty = keys[:, 0] == 0
        keys[is_empty] = 0
        for width in range(1, max_width):
            keys[: len(tokens) - width, width][is_empty[width:]] = 0
        masks = self.names.find(keys)
        starts, widths = np.nonzero(masks)
        spans, bits = unpack_bits(masks[starts, widths])
        return starts[spans], widths[spans], bits

    def match_words(self, tokens: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Find all tokens that occur as words in names.

        RETURNS (tuple): token and bit, one entry per set bit of a token's mask; shape (n_bits,).
        """
        return unpack_bits(self.words.find(span_keys(tokens, 1).reshape(-1)))


def unpack_bits(masks: MaskArray) -> tuple[IntArray, IntArray]:
    """Return the mask position and the bit number of each set bit in n masks."""
    bits = np.unpackbits(masks.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    positions, numbers = np.nonzero(bits)
    return positions, numbers


def _name_masks(kb: KnowledgeBase) -> MaskArray:
    """Return, for each name, a mask of its concepts' types. Shape (n_names,)."""
    frequency = np.bincount(kb.type_ids, minlength=len(kb.type_names))
    frequent = np.argsort(-frequency, kind="stable")[:MAX_TYPES]
    mask_of_type = np.zeros(len(kb.type_names), dtype=np.uint64)
    mask_of_type[frequent] = np.uint64(1) << np.arange(len(frequent), dtype=np.uint64)
    concept_masks = np.zeros(len(kb), dtype=np.uint64)
    concepts = np.repeat(np.arange(len(kb)), np.diff(kb.type_offsets))
    np.bitwise_or.at(concept_masks, concepts, mask_of_type[kb.type_ids])
    entry_masks = concept_masks[kb.name_concepts]
    entry_masks |= np.asarray(kb.name_is_preferred, dtype=np.uint64) << np.uint64(MAX_TYPES)
    return np.bitwise_or.reduceat(entry_masks, kb.name_offsets[:-1])


def _word_masks(names: Sequence[str], masks: MaskArray) -> KeyMasks:
    """Return masks of repeated words: types they indicate, and whether they usually end names."""
    numbers: dict[str, int] = {}
    split_names = [name.split() for name in names]
    words = [word for name_words in split_names for word in name_words]
    word_numbers = np.array([numbers.setdefault(word, len(numbers)) for word in words])
    lengths = np.array([len(name_words) for name_words in split_names])
    total = np.bincount(word_numbers, minlength=len(numbers))
    word_masks = np.zeros(len(numbers), dtype=np.uint64)
    masks_of_words = np.repeat(masks & ~_LAST_BIT, lengths)
    masks_of_words[np.cumsum(lengths) - 1] |= _LAST_BIT
    for bit in range(MAX_TYPES + 1):
        has_bit = (masks_of_words >> np.uint64(bit)) & np.uint64(1)
        count = np.bincount(word_numbers, weights=has_bit, minlength=len(numbers))
        word_masks |= (count >= _MIN_SHARE_OF_NAMES * total).astype(np.uint64) << np.uint64(bit)
    keys = name_keys(numbers)
    repeated = np.flatnonzero(total > 1)
    order = repeated[np.argsort(keys[repeated])]
    return KeyMasks(keys[order], word_masks[order])


MAX_WORDS = 12  # maximum number of words in a span to look up at every position in a text.
# Two words are substitutes if at least this many concepts, and at least this share of the concepts
# with the rarer word, have two names that differ only in these words.
_MIN_CONCEPTS = 3
_MIN_SHARE_OF_CONCEPTS = 0.04
_SHARE_OF_NOUNS = 0.8  # share assumed for listed adjectives and their nouns ("renal", "kidney").
# Negations have no substitutes: otherwise "no seizure" would match "absence seizure".
NEGATIONS = frozenset("no not non without never none nor".split())
_GLUED_BRACKET = re.compile(r"\w[(\[]")
# Words that may be added to a name such as "low potassium": "low serum potassium level".
_WORDS_WITH_AMOUNTS = ((), ("serum",), ("plasma",), ("level",), ("serum", "level"))
_MAX_STEP = 8  # each name is compared with up to seven names that differ from it in one word


def stem_key(word: str) -> int:
    """Return the key of a word's stem, or 0 for an ignored linking word such as "of"."""
    return 0 if word in LINKING_WORDS else word_key(stem_of(word))


_Substitute = tuple[int, int, str, float, str]


@dataclass(frozen=True)
class Substitutes:
    """Pairs of words that are interchangeable in names, such as "anomaly" and "abnormality"."""

    word: KeyArray  # keys of words in a text, ascending
    by: KeyArray  # keys of the interchangeable words in names
    replacement: tuple[str, ...]  # for each word in `by`, the most frequent word with the same stem
    share: NDArray[np.float32]  # share of the rarer word's concepts that use both words
    adjective: tuple[str, ...]  # adjective to match by itself ("renal" for "kidney"), or ""

    @classmethod
    def from_pairs(cls, pairs: Sequence[_Substitute]) -> Substitutes:
        """Build the table from one tuple per pair, with a value for each column."""
        columns = list(zip(*sorted(pairs, key=itemgetter(0)), strict=True)) or [()] * 5
        word, by = (np.array(keys, dtype=np.uint64) for keys in columns[:2])
        return cls(word, by, columns[2], np.array(columns[3], dtype=np.float32), columns[4])


@dataclass(frozen=True)
class BagsOfWords:
    """Knowledge base names, grouped by bag of stems."""

    found: KeyMasks  # key of each bag, with the bag's number (from 1) as its mask
    offsets: IntArray  # start of each bag in `rows`
    rows: IntArray  # name rows, grouped by bag
    words: dict[str, int]  # number of names that contain each word
    substitutes: Substitutes
    long: KeyMasks  # keys of the first MAX_WORDS words of longer names, each with a maximum length
    phrases: KeyArray  # keys of the two-word noun phrases in names, ascending

    @classmethod
    def from_kb(cls, kb: KnowledgeBase, nouns: Mapping[str, str] | None = None) -> BagsOfWords:
        """Index all names in a knowledge base. This takes a second per 100,000 names.

        nouns (Mapping[str, str] | None): Nouns by adjective, such as "kidney" for "renal".
        """
        names = list(kb.names)
        split_names = [words_of(name) for name in normalize_names(names)]
        counts = Counter(word for words in split_names for word in dict.fromkeys(words))
        stems: dict[str, int] = {}
        stem_numbers = {
            word: -1 if word in LINKING_WORDS else stems.setdefault(stem_of(word), len(stems))
            for word in counts
        }
        stem_keys = np.array([word_key(stem) for stem in stems], dtype=np.uint64)
        word_of = {stem_numbers[word]: word for word in sorted(counts, key=counts.__getitem__)}
        stem_words = [word_of[number] for number in range(len(stems))]
        # For each word in each name, except linking words: the name's row and the stem's number.
        lengths = np.fromiter(map(len, split_names), dtype=np.int64, count=len(split_names))
        numbers = (stem_numbers[word] for words in split_names for word in words)
        stem = np.fromiter(numbers, np.int64, count=lengths.sum())
        name = np.repeat(np.arange(len(split_names)), lengths)[stem >= 0]
        stem = stem[stem >= 0]
        name_bags = np.zeros(len(split_names), dtype=np.uint64)
        np.add.at(name_bags, name, stem_keys[stem])
        amounts = [(row, key) for row, words in enumerate(split_names) for key in _amounts(words)]
        keys = np.append(name_bags, np.array([key for _, key in amounts], dtype=np.uint64))
        rows = np.append(np.arange(len(name_bags)), np.array([r for r, _ in amounts], np.int64))
        order = np.argsort(keys, kind="stable")
        bags, starts = np.unique(keys[order], return_index=True)
        # In "T(reg)", "reg" is not a word that a synonym could replace.
        is_whole = np.array([not _GLUED_BRACKET.search(name) for name in names], dtype=bool)[name]
        of_words = name[is_whole], stem[is_whole]
        substitutes = _substitutes(kb, name_bags, *of_words, stem_keys, stem_words)
        pairs = [(adjective, noun, adjective) for adjective, noun in (nouns or {}).items()]
        pairs += [(noun, adjective, "") for adjective, noun in (nouns or {}).items()]
        substitutes += [
            (stem_key(word), stem_key(by), by, _SHARE_OF_NOUNS, adjective)
            for word, by, adjective in pairs
            if stem_of(by) in stems
        ]
        phrases = [
            sum(map(stem_key, phrase)) & KEY_MASK
            for words in split_names
            for phrase in phrases_of(words)
        ]
        return cls(
            KeyMasks(bags, np.arange(1, len(bags) + 1, dtype=np.uint64)),
            np.append(starts, len(order)),
            rows[order],
            dict(counts),
            Substitutes.from_pairs(substitutes),
            _long_names(split_names),
            np.unique(np.array(phrases, dtype=np.uint64)),
        )


def _amounts(words: list[str]) -> list[int]:
    """Return the bag keys of other names for an amount, such as "low serum potassium"."""
    sign, substance = amount_of(words) if words and is_amount(words) else (0, [])
    if not substance:
        return []
    key = sum(map(word_key, substance))
    added = [sum(map(stem_key, words)) for words in _WORDS_WITH_AMOUNTS]
    directions = map(stem_key, MORE_OR_LESS[sign])
    return [(key + direction + words) & KEY_MASK for direction in directions for words in added]


def phrases_of(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield two-word noun phrases in a name: "tibial plateau" in "fracture of tibial plateau"."""
    ends = [-1, *(i for i, word in enumerate(words) if word in PREPOSITIONS), len(words)]
    for before, end in pairwise(ends):
        if end == before + 3 and not LINKING_WORDS.intersection(words[before + 1 : end]):
            yield words[before + 1 : end]


def _long_names(split_names: Sequence[list[str]]) -> KeyMasks:
    """Map the MAX_WORDS-word prefixes of longer names to the length of the longest such name."""
    lengths: dict[int, int] = {}
    for words in split_names:
        if len(words) > MAX_WORDS:
            key = sum(map(stem_key, words[:MAX_WORDS])) & KEY_MASK
            lengths[key] = max(len(words), lengths.get(key, 0))
    keys = np.array(sorted(lengths), dtype=np.uint64)
    return KeyMasks(keys, np.array([lengths[key] for key in sorted(lengths)], dtype=np.uint64))


def _substitutes(
    kb: KnowledgeBase,
    name_bags: KeyArray,
    name: IntArray,
    stem: IntArray,
    stem_keys: KeyArray,
    words: Sequence[str],
) -> list[_Substitute]:
    """Find word pairs that, for many concepts, are the only difference between two names.

    name_bags (KeyArray): Key of each name's bag.
    name, stem (IntArray): Row of the name and number of the stem, for each word in each name.
    stem_keys (KeyArray), words (Sequence[str]): Key of each stem, and a word with that stem.
    """
    rest = name_bags[name] - stem_keys[stem]  # bag of the other words in the name.
    # Arrays with one entry per (concept, name, word): concept, rest and stem.
    starts = np.searchsorted(name, np.arange(len(name_bags) + 1))
    names = np.asarray(kb.concept_names, dtype=np.int64)
    concept = np.repeat(np.arange(len(kb)), np.diff(kb.concept_offsets))
    n_words = np.diff(starts)[names]
    entries = entries_of(starts[names], n_words)[1]
    concept, rest, stem = np.repeat(concept, n_words), rest[entries], stem[entries]
    stems_of_concepts = np.unique(concept * len(stem_keys) + stem) % len(stem_keys)
    n_concepts = np.bincount(stems_of_concepts, minlength=len(stem_keys))
    order = np.lexsort((stem, rest, concept))
    order = order[rest[order] != 0]
    concept, rest, stem = concept[order], rest[order], stem[order]
    pair_blocks = []
    for step in range(1, _MAX_STEP):
        same = (concept[step:] == concept[:-step]) & (rest[step:] == rest[:-step])
        same &= stem[step:] != stem[:-step]
        first, second = stem[:-step][same], stem[step:][same]
        low, high = np.minimum(first, second), np.maximum(first, second)
        pair_blocks.append(np.stack([concept[:-step][same], low, high], axis=1))
    pairs = np.unique(np.concatenate(pair_blocks), axis=0)[:, 1:]
    pairs, counts = np.unique(pairs, axis=0, return_counts=True)
    share = counts / np.minimum(*n_concepts[pairs].T) if len(pairs) else counts.astype(float)
    negations = {stem_of(word) for word in NEGATIONS}
    negates = np.array([stem_of(word) in negations for word in words], dtype=bool)
    is_frequent = (counts >= _MIN_CONCEPTS) & (share >= _MIN_SHARE_OF_CONCEPTS)
    kept = is_frequent & ~negates[pairs].any(axis=1)
    shares, pairs = share[kept].tolist() * 2, np.concatenate([pairs[kept], pairs[kept][:, ::-1]])
    of_pairs = zip(*stem_keys[pairs].T.tolist(), pairs[:, 1].tolist(), shares, strict=True)
    return [(word, by, words[number], share, "") for word, by, number, share in of_pairs]
