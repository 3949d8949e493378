"""Compact view of a knowledge base for mention detection: from name key to set of types.

It takes about ten bytes a name: a detector carries it and needs no knowledge base at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.arrays import IntArray
from spacy_bioel.kb.knowledge_base import KeyArray, name_keys, span_keys
from spacy_bioel.text.normalize import normalize_name

if TYPE_CHECKING:
    from spacy_bioel.kb.knowledge_base import KnowledgeBase

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
class Lexicon:
    """Types of the names of a knowledge base, and of the single words in its names.

    names (KeyMasks): Types of the concepts that have a name.
    words (KeyMasks): Types that a word in a name usually indicates: names with "nephropathy" are
        diseases.
    """

    names: KeyMasks
    words: KeyMasks

    @classmethod
    def empty(cls) -> Lexicon:
        return cls(KeyMasks.empty(), KeyMasks.empty())

    @classmethod
    def from_kb(cls, kb: KnowledgeBase) -> Lexicon:
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
    def from_arrays(cls, arrays: Mapping[str, NDArray]) -> Lexicon:
        """Create a lexicon from the result of `arrays`."""

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
