"""Names of a knowledge base, to be found in a text by their keys.

`Gazetteer`, a compact view for mention detection, goes from name key to set of types. It takes about
ten bytes a name: a detector carries it and needs no knowledge base at run time.

`BagsOfWords` has names as bags of stems: lookup in any order, with other endings and linking words,
and with words that its own synonyms have in the place of each other. The key of a bag is the sum of
the keys of its stems, so the keys of all spans of a text are differences of running sums, and the
key with another word in place of one is a sum away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns import entries_of
from spacy_bioel.kb.knowledge_base import KeyArray, KnowledgeBase, name_keys, span_keys, word_key
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    MORE_OR_LESS,
    amount_of,
    is_amount,
    normalize_name,
    normalize_names,
    stem_of,
    words_of,
)
from spacy_bioel.types import IntArray

# One bit of a 64-bit mask per type. The last bit marks preferred names, and words that are usually
# the last word of a name.
MAX_TYPES = 63
N_BITS = 64
# A word indicates a type if at least this share of the names with the word have it.
_WORD_SHARE = 0.3

MaskArray = NDArray[np.uint64]


@dataclass(frozen=True)
class KeyMasks:
    """Sorted keys with a bit mask each."""

    keys: KeyArray
    masks: MaskArray

    @classmethod
    def empty(cls) -> KeyMasks:
        return cls(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))

    def find(self, keys: KeyArray) -> MaskArray:
        """Mask of each key, 0 for unknown keys. Same shape."""
        if not len(self.keys):
            return np.zeros(keys.shape, dtype=np.uint64)
        # Most spans of a text are no names; the first bits of their keys rule nearly all out.
        places = keys >> np.uint64(64 - self._n_bits)
        bits = self._among[places >> np.uint64(3)] >> (places & np.uint64(7)).astype(np.uint8)
        likely = np.flatnonzero(bits & np.uint8(1))
        wanted = keys.ravel()[likely]
        position = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        known = (self.keys[position] == wanted) & (wanted != 0)
        masks = np.zeros(keys.size, dtype=np.uint64)
        masks[likely[known]] = self.masks[position[known]]
        return masks.reshape(keys.shape)

    @cached_property
    def _n_bits(self) -> int:
        """Number of first bits that index `_among`, of which about one bit in 16 is set."""
        return len(self.keys).bit_length() + 4

    @cached_property
    def _among(self) -> NDArray[np.uint8]:
        """Bitmap over all values of the first bits: set if a key begins with them."""
        places = self.keys >> np.uint64(64 - self._n_bits)
        among = np.zeros(1 << (self._n_bits - 3), np.uint8)
        np.bitwise_or.at(among, places >> 3, np.uint8(1) << (places & 7).astype(np.uint8))
        return among


@dataclass(frozen=True, eq=False)
class Gazetteer:
    """Types of the names of a knowledge base, and of the single words in its names.

    names (KeyMasks): Types of the concepts that have a name.
    words (KeyMasks): Types that a word in a name usually indicates: names with "nephropathy" are
        diseases.
    """

    names: KeyMasks
    words: KeyMasks

    @classmethod
    def empty(cls) -> Gazetteer:
        return cls(KeyMasks.empty(), KeyMasks.empty())

    @classmethod
    def from_kb(cls, kb: KnowledgeBase) -> Gazetteer:
        """Collect the names and words of `kb` with the 63 most frequent types of its concepts."""
        masks = _name_masks(kb)
        names = KeyMasks(np.array(kb.name_keys), masks[kb.name_key_rows])
        return cls(names, _word_masks([normalize_name(name) for name in kb.names], masks))

    def arrays(self) -> dict[str, NDArray]:
        """All arrays by name, for storage: of masks, each different one, and their numbers."""
        arrays: dict[str, NDArray] = {}
        for name, table in (("names", self.names), ("words", self.words)):
            masks, numbers = np.unique(table.masks, return_inverse=True)
            arrays[f"{name}.keys"] = table.keys
            arrays[f"{name}.different_masks"] = masks
            arrays[f"{name}.mask_numbers"] = numbers.astype(np.min_scalar_type(len(masks)))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray]) -> Gazetteer:
        """Create a gazetteer from the result of `arrays`."""

        def table(name: str) -> KeyMasks:
            masks = arrays[f"{name}.different_masks"][arrays[f"{name}.mask_numbers"]]
            return KeyMasks(arrays[f"{name}.keys"], masks)

        return cls(table("names"), table("words"))

    def match_spans(
        self, tokens: Sequence[str], max_width: int, *, lengths: IntArray | None = None
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Find all spans of documents that are names.

        tokens (Sequence[str]): Normalised tokens of all documents, concatenated.
        lengths (IntArray | None): Tokens of each document; None: one document. Shape (n_docs,).
        RETURNS (tuple): start, width - 1 and bit, one entry for each bit of each span. Shape
            (n_bits,) each.
        """
        keys = span_keys(tokens, max_width)
        if lengths is not None:
            left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens))
            keys[left[:, None] <= np.arange(max_width)] = 0
        # A span with an empty token at its border would repeat the match without that token.
        wordless = np.array([not token for token in tokens], dtype=bool)
        keys[wordless] = 0
        for width in range(1, max_width):
            keys[: len(tokens) - width, width][wordless[width:]] = 0
        masks = self.names.find(keys)
        starts, widths = np.nonzero(masks)
        spans, bits = unpack_bits(masks[starts, widths])
        return starts[spans], widths[spans], bits

    def match_words(self, tokens: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Find all tokens that are words of names.

        RETURNS (tuple): token and bit. Shape (n_bits,) each.
        """
        return unpack_bits(self.words.find(span_keys(tokens, 1).reshape(-1)))


def unpack_bits(masks: MaskArray) -> tuple[IntArray, IntArray]:
    """Positions and numbers of all set bits. masks: shape (n,)."""
    bits = np.unpackbits(masks.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    positions, numbers = np.nonzero(bits)
    return positions, numbers


def _name_masks(kb: KnowledgeBase) -> MaskArray:
    """Types of the concepts of each name. Shape (n_names,)."""
    frequency = np.bincount(kb.type_ids, minlength=len(kb.type_names))
    bit_of_type = np.full(len(kb.type_names), -1)
    kept = np.argsort(-frequency, kind="stable")[:MAX_TYPES]
    bit_of_type[kept] = np.arange(len(kept))
    concept_masks = np.zeros(len(kb), dtype=np.uint64)
    bits = bit_of_type[kb.type_ids]
    concepts = np.repeat(np.arange(len(kb)), np.diff(kb.type_offsets))[bits >= 0]
    np.bitwise_or.at(concept_masks, concepts, np.uint64(1) << bits[bits >= 0].astype(np.uint64))
    entry_masks = concept_masks[kb.name_concepts]
    entry_masks |= np.asarray(kb.name_is_preferred, dtype=np.uint64) << np.uint64(MAX_TYPES)
    return np.bitwise_or.reduceat(entry_masks, kb.name_offsets[:-1])


def _word_masks(names: Sequence[str], masks: MaskArray) -> KeyMasks:
    """Types and usual position of the words that occur in more than one name."""
    numbers: dict[str, int] = {}
    split = [name.split() for name in names]
    flat = np.array([numbers.setdefault(word, len(numbers)) for words in split for word in words])
    lengths = np.array([len(words) for words in split])
    total = np.bincount(flat, minlength=len(numbers))
    word_masks = np.zeros(len(numbers), dtype=np.uint64)
    flat_masks = np.repeat(masks, lengths)
    is_last = np.zeros(len(flat), dtype=bool)
    is_last[np.cumsum(lengths) - 1] = True
    for bit in range(N_BITS):
        has_bit = is_last if bit == MAX_TYPES else (flat_masks >> np.uint64(bit)) & np.uint64(1)
        count = np.bincount(flat, weights=has_bit, minlength=len(numbers))
        word_masks |= (count >= _WORD_SHARE * total).astype(np.uint64) << np.uint64(bit)
    keys = name_keys(numbers)
    kept = np.flatnonzero(total > 1)
    order = kept[np.argsort(keys[kept])]
    return KeyMasks(keys[order], word_masks[order])


MAX_WORDS = 12  # of names that are looked up at all places of a text
_MASK = (1 << 64) - 1
_FEWEST = 3  # concepts whose names have one word in the place of another
_LIKELY = 0.04  # ... of those whose names have the rarer of them
_SURE = 0.8  # share of adjectives and their nouns, which other vocabularies have
# "No testis" is a name of "Absent testis", and no seizure is an absence seizure.
NEGATIONS = frozenset("no not non without never none nor".split())
_BESIDE_AMOUNTS = ((), ("serum",), ("plasma",), ("level",), ("serum", "level"))
_MOST = 8  # names of a concept that differ in one word


@lru_cache(maxsize=1 << 17)
def stem_key(word: str) -> int:
    """Key of a word in a bag; 0 for linking words, which count for nothing."""
    return 0 if word in LINKING_WORDS else word_key(stem_of(word))


@dataclass(frozen=True)
class Substitutes:
    """Words that names have in the place of each other: "anomaly" and "abnormality"."""

    word: KeyArray  # keys of words, ascending
    by: KeyArray  # ... and of those that may stand for them
    stem: tuple[str, ...]  # of `by`; of nouns, the words
    share: NDArray[np.float32]  # of the concepts with the rarer word, those that have both
    adjective: tuple[str, ...]  # "renal", which may stand for a name, "kidney"; "": in a name only

    def share_of(self, rows: IntArray) -> NDArray[np.float32]:
        return np.append(self.share, np.float32(0))[rows]


@dataclass(frozen=True)
class BagsOfWords:
    """Names by their bags."""

    found: KeyMasks  # distinct keys, with the number of the bag, from 1
    offsets: IntArray  # of the name rows of each bag
    rows: IntArray
    words: dict[str, int]  # in how many names each word is
    substitutes: Substitutes  # among the stems
    long: KeyMasks  # keys of the first MAX_WORDS words of longer names, with the most words of one

    def rows_of(self, bag: int) -> list[int]:
        """Name rows of a bag, by its number from 1."""
        return self.rows[self.offsets[bag - 1] : self.offsets[bag]].tolist()

    @classmethod
    def from_kb(cls, kb: KnowledgeBase, nouns: Mapping[str, str] | None = None) -> BagsOfWords:
        """Read all names, which takes a second for 100,000.

        nouns (Mapping[str, str] | None): From an adjective to what it means: "renal", "kidney".
        """
        names = list(kb.names)
        split = [words_of(name) for name in normalize_names(names)]
        counts = Counter(word for words in split for word in dict.fromkeys(words))
        stems: dict[str, int] = {}
        of_word = {
            word: -1 if word in LINKING_WORDS else stems.setdefault(stem_of(word), len(stems))
            for word in counts
        }
        lengths = np.fromiter(map(len, split), dtype=np.int64, count=len(split))
        flat = np.fromiter(
            (of_word[word] for words in split for word in words), np.int64, count=lengths.sum()
        )
        keys_of = np.array([word_key(stem) for stem in stems], dtype=np.uint64)
        kept = flat >= 0
        owner, flat = np.repeat(np.arange(len(split)), lengths)[kept], flat[kept]
        keys = np.zeros(len(split), dtype=np.uint64)
        np.add.at(keys, owner, keys_of[flat])
        more = [(row, key) for row, words in enumerate(split) for key in _amounts(words)]
        bags = np.append(keys, np.array([key for _, key in more], dtype=np.uint64))
        rows = np.append(np.arange(len(keys)), np.array([row for row, _ in more], dtype=np.int64))
        order = np.argsort(bags, kind="stable")
        different, first = np.unique(bags[order], return_index=True)
        return cls(
            KeyMasks(different, np.arange(1, len(different) + 1, dtype=np.uint64)),
            np.append(first, len(order)),
            rows[order],
            dict(counts),
            _with_nouns(
                _substitutes(kb, keys, owner, flat, keys_of, tuple(stems)), nouns or {}, stems
            ),
            _long(split),
        )


def _amounts(words: list[str]) -> list[int]:
    """Keys of other ways to say that there is more or less of something: "low serum potassium"."""
    sign, rest = amount_of(words) if words and is_amount(words) else (0, [])
    if not rest:
        return []
    key = sum(map(word_key, rest))
    beside = [sum(map(stem_key, words)) for words in _BESIDE_AMOUNTS]
    return [(key + stem_key(d) + k) & _MASK for d in MORE_OR_LESS[sign] for k in beside]


def _long(split: Sequence[list[str]]) -> KeyMasks:
    most: dict[int, int] = {}
    for words in split:
        if len(words) > MAX_WORDS:
            key = sum(map(stem_key, words[:MAX_WORDS])) & _MASK
            most[key] = max(len(words), most.get(key, 0))
    keys = np.array(sorted(most), dtype=np.uint64)
    return KeyMasks(keys, np.array([most[key] for key in sorted(most)], dtype=np.uint64))


def _substitutes(
    kb: KnowledgeBase,
    keys: KeyArray,
    owner: IntArray,
    word: IntArray,
    keys_of: KeyArray,
    stems: Sequence[str],
) -> Substitutes:
    """Count the concepts two of whose names differ in one word.

    keys: of the bag of each name; owner, word: name and word of each word of a name.
    """
    rest = keys[owner] - keys_of[word]
    # Entries: one for each word of each name of each concept.
    start = np.searchsorted(owner, np.arange(len(keys) + 1))
    names = np.asarray(kb.concept_names, dtype=np.int64)
    concept = np.repeat(np.arange(len(kb)), np.diff(kb.concept_offsets))
    n_words = np.diff(start)[names]
    at = entries_of(start[names], n_words)[1]
    concept, rest, word = np.repeat(concept, n_words), rest[at], word[at]
    of_word = np.unique(concept * len(keys_of) + word) % len(keys_of)
    n_concepts = np.bincount(of_word, minlength=len(keys_of))
    shared = rest != 0
    concept, rest, word = concept[shared], rest[shared], word[shared]
    order = np.lexsort((word, rest, concept))
    concept, rest, word = concept[order], rest[order], word[order]
    pairs = []
    for step in range(1, _MOST):
        same = (concept[step:] == concept[:-step]) & (rest[step:] == rest[:-step])
        same &= word[step:] != word[:-step]
        a, b = word[:-step][same], word[step:][same]
        low, high = np.minimum(a, b), np.maximum(a, b)
        pairs.append(np.stack([concept[:-step][same], low, high], axis=1))
    found = np.unique(np.concatenate(pairs), axis=0)[:, 1:]
    found, counts = np.unique(found, axis=0, return_counts=True)
    share = counts / np.minimum(*n_concepts[found].T) if len(found) else counts.astype(float)
    negations = {stem_of(word) for word in NEGATIONS}
    negates = np.array([stem in negations for stem in stems], dtype=bool)
    good = (counts >= _FEWEST) & (share >= _LIKELY) & ~negates[found].any(axis=1)
    found, share = found[good], share[good].astype(np.float32)
    word, by = np.concatenate([found, found[:, ::-1]]).T
    order = np.argsort(keys_of[word], kind="stable")
    word, by = word[order], by[order]
    by_stems = tuple(stems[i] for i in by.tolist())
    share = np.tile(share, 2)[order]
    return Substitutes(keys_of[word], keys_of[by], by_stems, share, ("",) * len(word))


def _with_nouns(own: Substitutes, nouns: Mapping[str, str], stems: Container[str]) -> Substitutes:
    """Add adjectives and their nouns, each for the other where names have the other."""
    pairs = [(adjective, noun, adjective) for adjective, noun in nouns.items()]
    pairs += [(noun, adjective, "") for adjective, noun in nouns.items()]
    pairs = [pair for pair in pairs if stem_of(pair[1]) in stems]
    added = np.array([tuple(map(stem_key, pair[:2])) for pair in pairs], dtype=np.uint64)
    word, by = np.append(np.stack([own.word, own.by]), added.reshape(-1, 2).T, axis=1)
    share = np.append(own.share, np.full(len(pairs), _SURE, dtype=np.float32))
    stem = [*own.stem, *(noun for _, noun, _ in pairs)]
    adjective = [*own.adjective, *(adjective for *_, adjective in pairs)]
    order = np.argsort(word, kind="stable")
    return Substitutes(
        word[order],
        by[order],
        tuple(stem[i] for i in order.tolist()),
        share[order],
        tuple(adjective[i] for i in order.tolist()),
    )
