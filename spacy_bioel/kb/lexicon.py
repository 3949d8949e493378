"""A compact view of a knowledge base for mention detection: name key -> set of types.

Ten bytes or so a name, so that the detector carries it and needs no knowledge base at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.keys import KeyArray, span_keys

if TYPE_CHECKING:
    from spacy_bioel.kb.store import KnowledgeBase

# One bit of a 64-bit mask for each type; the last bit says "preferred name of a concept".
MAX_TYPES = 63
N_FEATURES = 64


class Lexicon:
    """Sorted name keys with a bit mask each.

    keys (KeyArray): Sorted keys of normalised names. Shape (n_names,).
    masks (NDArray[uint64]): Bit t: some concept of this name has type t. Shape (n_names,).
    """

    def __init__(self, keys: KeyArray, masks: NDArray[np.uint64]) -> None:
        self.keys = keys
        self.masks = masks

    @classmethod
    def empty(cls) -> Lexicon:
        return cls(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))

    @classmethod
    def from_kb(cls, kb: KnowledgeBase) -> Lexicon:
        """The names of `kb` with the 63 most frequent types of their concepts."""
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
        masks = np.bitwise_or.reduceat(entry_masks, kb.name_offsets[:-1])
        return cls(np.array(kb.name_keys), masks[kb.name_key_rows])

    def __len__(self) -> int:
        return len(self.keys)

    def match_spans(
        self, tokens: Sequence[str], max_width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All spans of a text that are names, as (start, width - 1, feature) triples.

        tokens (Sequence[str]): Normalised tokens of one document.
        max_width (int): Longest span, in tokens.
        RETURNS (tuple): Three arrays of one length; a span has one entry a feature bit, and
            feature < N_FEATURES.
        """
        keys = span_keys(tokens, max_width)
        if not len(self.keys) or not keys.size:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none
        # A span that begins or ends with a token without a word would repeat its core's match.
        wordless = np.array([not token for token in tokens])
        keys[wordless] = 0
        for width in range(1, max_width):
            keys[: len(tokens) - width, width][wordless[width:]] = 0
        position = np.searchsorted(self.keys, keys)
        position[position == len(self.keys)] = 0
        starts, widths = np.nonzero((self.keys[position] == keys) & (keys != 0))
        masks = self.masks[position[starts, widths]]
        bits = np.unpackbits(masks.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        spans, features = np.nonzero(bits)
        return starts[spans], widths[spans], features
