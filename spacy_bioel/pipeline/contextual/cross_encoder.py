"""Reading with a cross-encoder: each candidate of a mention is read together with its context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.cross_encoder import score_pairs
from spacy_bioel.models.marked import Pair
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.pipeline.contextual.weighing import Reading, weigh
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.settings import TrainingSettings
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.pipeline.linker.training import NameTraining, gold_mentions
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
PROPOSES = False


def make_pairs(
    kb: KnowledgeBase, spans: Sequence[Span], owner: IntArray, concept: IntArray, *, context: int
) -> list[Pair]:
    """Mentions in their contexts, each with its concepts.

    owner, concept (IntArray): Number of the mention among `spans`, concept row. Shape (n_pairs,).
    context (int): Tokens before and after a mention. The model takes what fits of them.
    """
    before = [span.doc[max(0, span.start - context) : span.start].text for span in spans]
    after = [span.doc[span.end : span.end + context].text for span in spans]
    texts = [span.text for span in spans]
    return [
        Pair(before[i], texts[i], after[i], kb.preferred_name(row))
        for i, row in zip(owner.tolist(), concept.tolist(), strict=True)
    ]


def read(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Pairs to weigh: the candidates of the strings, no others."""
    kb, pairs, spans = generator.kb, model.get_ref("pairs"), mentions.spans

    def logit(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        context = pairs.attrs["max_pieces"]  # a token is a piece at least
        return score_pairs(pairs, make_pairs(kb, spans, mention, concept, context=context))

    return weigh(kb, given, logit, temperature=1.0)


class Training(NameTraining):
    """Trains a cross-encoder to tell the right candidate from others that the string is given.

    A few mentions of each update, `training.mentions`, with `training.candidates` each: reading
    all pairs would take hours. The encoder of names stays as it is.
    """

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        self._candidates = CandidateGenerator(replace(state, pool=self.pool_of(state)))

    def update(self, examples: Sequence[Example]) -> float | None:
        return self.learn(examples)

    def learn(self, examples: Sequence[Example]) -> float | None:
        gold, ids = gold_mentions(examples, self.state.settings)
        rows = self.kb.find_all(ids)
        ranked = self._candidates.rank([(string, "") for string in dict.fromkeys(gold.strings)])
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings.mentions)
        chosen = np.sort(self._random.choice(known, n, replace=False))
        if not n:
            return None
        owners, concepts = [], []
        for i, number in enumerate(chosen.tolist()):
            found = self.kb.find_all([c.id for c in ranked[gold.strings[number], ""]])
            wrong = found[found != rows[number]][: self.settings.candidates - 1]
            owners += [i] * (1 + len(wrong))
            concepts += [int(rows[number]), *wrong.tolist()]
        owner, concept = np.array(owners, dtype=np.int64), np.array(concepts, dtype=np.int64)
        spans = [gold.spans[number] for number in chosen.tolist()]
        model = self.model
        context = model.get_ref("pairs").attrs["max_pieces"]
        pairs = make_pairs(self.kb, spans, owner, concept, context=context)
        logits, backprop = model.begin_update(pairs)
        right = concept == rows[chosen][owner]
        loss, d_logits = loss_and_gradients("ranking_loss", logits, owner, right)
        backprop(d_logits)
        return float(loss)
