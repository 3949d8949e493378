"""What the linker remembers of its training corpus: which strings were which concepts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.ngrams import NgramIndex, build_postings
from spacy_bioel.kb.store import KnowledgeBase


class Memory:
    """How often each string was linked to each concept in the training corpus.

    counts (Mapping): Normalised string -> concept id -> count.
    """

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, ids in (counts or {}).items():
            self.counts[name].update(ids)

    def add(self, name: str, concept_id: str) -> None:
        self.counts[name][concept_id] += 1

    @cached_property
    def names(self) -> list[str]:
        """All strings, sorted: the rows of `ngrams`. Taken when first asked for."""
        return sorted(self.counts)

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
