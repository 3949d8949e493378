"""Training of the encoder of names; contextual methods build on it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.errors import Warnings
from spacy_bioel.models.name_encoder import name_loss
from spacy_bioel.models.reading import name_side
from spacy_bioel.pipeline.gold import gold_spans
from spacy_bioel.pipeline.linker.decision import mention_queries
from spacy_bioel.pipeline.linker.names import EncodedNames, FrozenEncoder, needs_no_folder
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.sampling import NamePool, NameSampler
from spacy_bioel.pipeline.linker.settings import LinkerSettings, TrainingSettings
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.text.normalize import normalize_name

IntArray = NDArray[np.int64]


def gold_mentions(
    examples: Sequence[Example], settings: LinkerSettings
) -> tuple[Mentions, list[str]]:
    """Gold mentions with one id, and the id of each."""
    docs = [example.predicted for example in examples]
    gold = [
        [g for g in gold_spans(example, key=settings.gold_key) if len(g.ids) == 1]
        for example in examples
    ]
    spans = [[doc[g.start : g.end] for g in found] for doc, found in zip(docs, gold, strict=True)]
    ids = [g.ids[0] for found in gold for g in found]
    return Mentions(docs, spans, [mention_queries(of_doc, settings) for of_doc in spans]), ids


def training_strings(
    examples: Sequence[Example], settings: LinkerSettings
) -> list[tuple[str, str]]:
    """Strings of the gold mentions, as written and with abbreviations written out, and ids."""
    mentions, ids = gold_mentions(examples, settings)
    spans = (span for of_doc in mentions.spans for span in of_doc)
    return [
        (string, concept_id)
        for span, whole, concept_id in zip(spans, mentions.strings, ids, strict=True)
        for string in sorted({normalize_name(span.text), whole} - {""})
    ]


class NameTraining:
    """Trains an encoder of names: those of one concept together, those of others apart.

    model (Model): Of the linker; its encoder of names has its network.
    state (LinkerState): Of the linker when training begins; its encoder is not used.
    """

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        self.model = model
        self.encoder = name_side(model)
        self.state = state
        self.settings = settings
        self.kb = state.kb
        self.pool = NamePool(self.kb, state.statistics, size=settings.pool_names)
        self._sampler = NameSampler(
            self.kb,
            state.statistics,
            n_synonyms=settings.synonyms,
            n_negatives=settings.negatives,
            seed=settings.seed,
        )
        self._updates = 0

    def update(self, examples: Sequence[Example]) -> float | None:
        """Add the gradients of one update. RETURNS (float | None): Its loss; None: no gradient."""
        if self._updates and self._updates % self.settings.refresh_every == 0:
            encoder = FrozenEncoder.of(self.encoder)
            self.mine(encoder, self.pool.encoded(encoder.encode, self.state.make_index))
        self._updates += 1
        return self.learn(examples)

    def pool_of(self, state: LinkerState) -> NamePool | None:
        """The names that development documents are linked against while training; None: all.

        A small knowledge base is encoded as a whole. Encoding a large one at each evaluation would
        take longer than the training.
        """
        if needs_no_folder(state.kb):
            return None
        n, of = len(self.pool.names), state.kb.n_names
        if n < of:
            warnings.warn(Warnings.W273.format(n=n, of=of, path=state.kb.where), stacklevel=2)
        return self.pool

    def mine(self, encoder: FrozenEncoder, names: EncodedNames) -> None:
        """Look for new negatives with the encoder as it is now.

        names (EncodedNames): Of the pool.
        """
        self._sampler.mine(encoder.encode, names)

    def learn(self, examples: Sequence[Example]) -> float | None:
        """Add the gradients of one update."""
        names, concepts = self.draw(examples)
        if not names:
            return None
        vectors, backprop = self.encoder.begin_update(names)
        loss, d_vectors = name_loss(vectors, concepts, loss=self.settings.loss)
        backprop(d_vectors)
        return loss

    def draw(self, examples: Sequence[Example]) -> tuple[list[str], IntArray]:
        """Names, and their concept rows, around the gold mentions that the KB knows."""
        gold = training_strings(examples, self.state.settings)
        rows = self.kb.find_all([concept_id for _, concept_id in gold])
        known = [(s, int(row)) for (s, _), row in zip(gold, rows, strict=True) if row >= 0]
        return self._sampler.draw(known)
