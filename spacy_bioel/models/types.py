"""Types of the data passed between the thinc layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc

# Name of the layer made by `spacy-bioel.Transformer.v1`.
DOCUMENT_TRANSFORMER = "document_transformer"


@dataclass(frozen=True)
class MentionBatch:
    """Documents with their lexicon matches: the input of a mention detection model.

    Token indices refer to the concatenation of all documents.

    docs (list[Doc]): The documents, which may be empty.
    spans (NDArray[int64]): Matches of spans, (start, width - 1, feature). Shape
        (n_span_matches, 3).
    words (NDArray[int64]): Matches of single tokens, (token, feature). Shape (n_word_matches, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# Start token, end token (exclusive) and label index of each span of a batch; tokens are counted
# over the concatenated documents. Shape (n_spans, 3).
TokenSpans = NDArray[np.int64]

# Output of a network for the tokens of a batch. Shape (n_tokens, ...), by architecture.
Logits = NDArray[np.float32]
