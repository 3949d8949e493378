"""Names for what flows between the thinc layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc

# Name of the layer that `spacy-bioel.Transformer.v1` makes.
DOCUMENT_TRANSFORMER = "document_transformer"


@dataclass(frozen=True)
class SpanBatch:
    """Documents with their lexicon matches: the input of the span enumerator.

    Token indices are into the concatenation of all documents.

    docs (list[Doc]): The documents; empty ones are allowed.
    spans (NDArray[int64]): (start, width - 1, feature). Shape (n_span_matches, 3).
    words (NDArray[int64]): (token, feature). Shape (n_word_matches, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# Logits of all spans of a batch, -inf outside a document. Shape (n_tokens, max_width, n_labels).
SpanScores = NDArray[np.float32]
