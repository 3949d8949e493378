"""Reading with a cross-encoder: each candidate of a mention is read together with its context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span
from thinc.api import Model

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.cross_encoder import score_pairs
from spacy_bioel.models.pairs import Pair
from spacy_bioel.pipeline.contextual.weighing import Reading, weigh
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]


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


def read_pairs(
    model: Model, kb: KnowledgeBase, mentions: Mentions, given: Sequence[Sequence[Candidate]]
) -> Reading:
    """The pairs to weigh, see `contextual.weighing`: the candidates of the strings, no others.

    given (Sequence): Candidates that the string of each mention was given.
    """
    pairs = model.get_ref("pairs")
    spans = [span for of_doc in mentions.spans for span in of_doc]

    def logit(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        context = pairs.attrs["max_pieces"]  # a token is a piece at least
        return score_pairs(pairs, make_pairs(kb, spans, mention, concept, context=context))

    none = np.zeros(0, dtype=np.int64)
    return weigh(kb, given, none, none, logit, temperature=1.0)
