"""What the linker remembers of its training corpus: which strings were which concepts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.ngrams import NgramIndex, build_postings


@dataclass(frozen=True)
class Remembered:
    """The concepts of a knowledge base that strings were, one string after the other.

    offsets (NDArray[int64]): Where those of each string start, and the last end. Shape (n + 1,).
    concepts (NDArray[int64]): Rows of the knowledge base. Shape (n_pairs,).
    counts, shares (NDArray[float32]): How often the string was the concept, and what part of all
        its mentions that is. Shape (n_pairs,).
    """

    offsets: NDArray[np.int64]
    concepts: NDArray[np.int64]
    counts: NDArray[np.float32]
    shares: NDArray[np.float32]


class Memory:
    """How often each string was linked to each concept in the training corpus.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, ids in (counts or {}).items():
            self.counts[name].update(ids)
        self._of_kb: tuple[KnowledgeBase | None, Any] = None, None

    def add(self, name: str, concept_id: str) -> None:
        self.counts[name][concept_id] += 1

    @cached_property
    def names(self) -> list[str]:
        """All strings, sorted: the rows of `ngrams`. Taken when first asked for."""
        return sorted(self.counts)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Place of each string in `names`."""
        return {name: row for row, name in enumerate(self.names)}

    def concepts(self, kb: KnowledgeBase) -> Remembered:
        """Of each of `names`; kept for the knowledge base that was asked for last."""
        if self._of_kb[0] is not kb:
            self._of_kb = kb, self._concepts(kb)
        return self._of_kb[1]

    def _concepts(self, kb: KnowledgeBase) -> Remembered:
        of_names = [self.counts[name] for name in self.names]
        sizes = np.array([len(ids) for ids in of_names], dtype=np.int64)
        counts = np.array([n for ids in of_names for n in ids.values()], dtype=np.float32)
        totals = np.array([ids.total() for ids in of_names], dtype=np.float32)
        concepts = kb.find_all([id for ids in of_names for id in ids])
        known = concepts >= 0
        offsets = np.append(0, np.cumsum(known))[np.append(0, np.cumsum(sizes))]
        shares: NDArray[np.float32] = np.divide(counts, np.repeat(totals, sizes))
        return Remembered(offsets, concepts[known], counts[known], shares[known])

    @cached_property
    def ngrams(self) -> NgramIndex:
        return NgramIndex(*build_postings(self.names))

    def prior(self, kb: KnowledgeBase) -> NDArray[np.float32]:
        """log(1 + mentions) of each concept of `kb`. Shape (n_concepts,)."""
        totals: Counter[str] = Counter()
        for ids in self.counts.values():
            totals.update(ids)
        prior = np.zeros(len(kb), dtype=np.float32)
        rows = kb.find_all(list(totals))
        known = rows >= 0
        np.add.at(prior, rows[known], np.array(list(totals.values()), dtype=np.float32)[known])
        return np.log1p(prior)
