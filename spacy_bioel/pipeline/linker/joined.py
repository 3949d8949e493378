"""Candidate generation over several knowledge bases in one linker.

A mention whose label has a knowledge base of its own is linked as if there were no other. All
others get candidates of all, whose names are searched together and share the probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator, String
from spacy_bioel.pipeline.linker.sampling import NamePool
from spacy_bioel.pipeline.linker.starter import is_dense
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.types import Candidate


def make_generator(
    state: LinkerState, *, before: CandidateGenerator | None = None, pool: NamePool | None = None
) -> CandidateGenerator:
    """Make the generator of a state; arguments are those of `CandidateGenerator`."""
    is_joined = isinstance(state.kb, JoinedKnowledgeBase)
    kind = JoinedGenerator if is_joined else CandidateGenerator
    return kind(state, before=before, pool=pool)


class JoinedGenerator(CandidateGenerator):
    """Candidate generation over a joined knowledge base.

    While training searches a pool of names, labels choose among what was found there.
    """

    kb: JoinedKnowledgeBase

    def _make_parts(self, before: CandidateGenerator | None) -> list[CandidateGenerator]:
        kbs = self.kb.parts
        is_same = before is not None and before.kb is self.kb and before.parts
        earlier = before.parts if before is not None and is_same else [None] * len(kbs)
        return [
            CandidateGenerator(self._state_of(kb), before=generator)
            for kb, generator in zip(kbs, earlier, strict=True)
        ]

    def _state_of(self, kb: KnowledgeBase) -> LinkerState:
        encoder = self.state.encoder
        if encoder is not None and self.state.is_dense:
            encoder = (
                encoder if is_dense(kb, encoder, mentions=self.state.settings.mentions) else None
            )
        return replace(self.state, kb=kb, encoder=encoder)

    @cached_property
    def _of_labels(self) -> dict[str, NDArray[np.bool_]]:
        return {}  # concepts that mentions of a label may link to

    def of(self, label: str) -> CandidateGenerator:
        number = self.kb.part_of(label)
        return self if number is None or not self.parts else self.parts[number]

    def allowed(self, concepts: NDArray[np.int64], label: str) -> NDArray[np.bool_]:
        may = super().allowed(concepts, label)
        if (number := self.kb.part_of(label)) is None:
            return may
        if (mask := self._of_labels.get(label)) is None:
            mask = self._of_labels[label] = self.kb.has_concepts(number)
        return may & mask[concepts]

    def rank(self, wanted: Sequence[String]) -> dict[String, tuple[Candidate, ...]]:
        pairs: dict[CandidateGenerator, list[String]] = {}
        for pair in wanted:
            pairs.setdefault(self.of(pair[1]), []).append(pair)
        ranked = super().rank(pairs.pop(self, []))
        for generator, of_part in pairs.items():
            ranked |= generator.rank(of_part)
        return ranked
