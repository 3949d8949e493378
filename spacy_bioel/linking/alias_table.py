"""Mention statistics (an alias table): counts of the concepts of strings in the training corpus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import NgramIndex, build_postings


@dataclass(frozen=True)
class ConceptsOfStrings:
    """The concepts of a knowledge base that strings meant, one string after the other.

    offsets (NDArray[int64]): Where those of each string start, and the last end. Shape (n + 1,).
    concepts (NDArray[int64]): Rows of the knowledge base. Shape (n_pairs,).
    counts, shares (NDArray[float32]): How often the string was the concept, and its part of all
        mentions of the string. Shape (n_pairs,).
    prior (NDArray[float32]): log(1 + mentions) of each concept. Shape (n_concepts,).
    """

    offsets: NDArray[np.int64]
    concepts: NDArray[np.int64]
    counts: NDArray[np.float32]
    shares: NDArray[np.float32]
    prior: NDArray[np.float32]


class MentionStatistics:
    """Counts of the concepts that each string was linked to in the training corpus; never change.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        # Dictionaries of strings and numbers, at which the garbage collector does not look.
        self.counts = {name: dict(ids) for name, ids in (counts or {}).items()}
        self._of_kbs: WeakKeyDictionary[KnowledgeBase, ConceptsOfStrings] = WeakKeyDictionary()

    @classmethod
    def from_json(cls, data: object) -> MentionStatistics:
        """RAISES BioelError: [B272] when these are no counts."""
        if not isinstance(data, dict):
            raise _no_counts(type(data).__name__)
        for name, ids in data.items():
            if not (isinstance(ids, dict) and all(type(n) is int and n > 0 for n in ids.values())):
                raise _no_counts(f"{name!r}: {ids!r:.60}")
        return cls(data)

    def with_mentions(self, mentions: Iterable[tuple[str, str]]) -> MentionStatistics:
        """These and further mentions: pairs of a normalised string and a concept id."""
        counts = defaultdict(Counter, {name: Counter(ids) for name, ids in self.counts.items()})
        for name, concept_id in mentions:
            counts[name][concept_id] += 1
        return MentionStatistics(counts)

    @cached_property
    def names(self) -> list[str]:
        """All strings, sorted: the rows of `ngrams`."""
        return sorted(self.counts)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Place of each string in `names`."""
        return {name: row for row, name in enumerate(self.names)}

    def concepts(self, kb: KnowledgeBase) -> ConceptsOfStrings:
        """Of each of `names`; kept for as long as the knowledge base is open."""
        kept = self._of_kbs.get(kb)
        if kept is None:
            self._of_kbs[kb] = kept = self._concepts(kb)
        return kept

    def _concepts(self, kb: KnowledgeBase) -> ConceptsOfStrings:
        of_names = [self.counts[name] for name in self.names]
        sizes = np.array([len(ids) for ids in of_names], dtype=np.int64)
        counts = np.array([n for ids in of_names for n in ids.values()], dtype=np.float32)
        totals = np.array([sum(ids.values()) for ids in of_names], dtype=np.float32)
        concepts = kb.find_all([id for ids in of_names for id in ids])
        known = concepts >= 0
        offsets = np.append(0, np.cumsum(known))[np.append(0, np.cumsum(sizes))]
        shares: NDArray[np.float32] = np.divide(counts, np.repeat(totals, sizes))
        n = np.bincount(concepts[known], counts[known], len(kb))
        prior = np.log1p(n.astype(np.float32))
        return ConceptsOfStrings(offsets, concepts[known], counts[known], shares[known], prior)

    @cached_property
    def ngrams(self) -> NgramIndex:
        return NgramIndex(*build_postings(self.names))


def _no_counts(found: str) -> BioelError:
    expected = "strings with their concept ids, and a whole number from 1 for each"
    return BioelError(Errors.B272.format(file="memory.json", found=found, expected=expected))
