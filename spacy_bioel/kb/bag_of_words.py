"""Names of a knowledge base as bags of stems: lookup in any order, with other endings and linking
words, and with words that its own synonyms have in the place of each other.

The key of a bag is the sum of the keys of its stems, so the keys of all spans of a text are
differences of running sums, and the key with another word in place of one is a sum away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.arrays import IntArray, entries_of
from spacy_bioel.kb.gazetteer import KeyMasks
from spacy_bioel.kb.knowledge_base import KeyArray, KnowledgeBase, word_key
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.text.stems import (
    LINKING_WORDS,
    MORE_OR_LESS,
    amount_of,
    is_amount,
    stem_of,
    words_of,
)

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
class NameBags:
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
    def from_kb(cls, kb: KnowledgeBase, nouns: Mapping[str, str] | None = None) -> NameBags:
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
