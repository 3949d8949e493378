"""Names for what flows between the thinc layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc


@dataclass(frozen=True)
class SpanBatch:
    """Documents with their lexicon matches: the input of the span enumerator.

    docs (list[Doc]): The documents; empty ones are allowed.
    matches (NDArray[int64]): (start, width - 1, feature) with token indices into the
        concatenation of all documents. Shape (n_matches, 3).
    """

    docs: list[Doc]
    matches: NDArray[np.int64]


# Logits of all spans of a batch, -inf outside a document. Shape (n_tokens, max_width, n_labels).
SpanScores = NDArray[np.float32]
