"""Names for what flows between the thinc layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc

# Name of the layer that `spacy-bioel.Transformer.v1` makes.
DOCUMENT_TRANSFORMER = "document_transformer"


@dataclass(frozen=True)
class MentionBatch:
    """Documents with their lexicon matches: the input of a model that finds mentions.

    Token indices are into the concatenation of all documents.

    docs (list[Doc]): The documents; empty ones are allowed.
    spans (NDArray[int64]): (start, width - 1, feature). Shape (n_span_matches, 3).
    words (NDArray[int64]): (token, feature). Shape (n_word_matches, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# (start token, end token, label) of each span of a batch: half-open, tokens of all documents
# concatenated, labels by their place in the list of labels. Shape (n_spans, 3).
TokenSpans = NDArray[np.int64]

# What a network says of the tokens of a batch. Shape (n_tokens, ...), the rest as the kind has it.
Logits = NDArray[np.float32]
