"""Mention detection by span enumeration: spans of up to L tokens, a binary decision per label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.models.detector import (
    DetectorKind,
    Logits,
    MentionModel,
    TokenSpans,
    mention_model,
)
from spacy_bioel.models.inference import span_logits
from spacy_bioel.models.tok2vec import Tok2Vec


def build_span_enumerator_v1(
    tok2vec: Tok2Vec,
    *,
    max_width: int = 10,
    hidden: int = 128,
    context: int = 0,
    dropout: float = 0.2,
) -> MentionModel:
    """Registered as `spacy-bioel.SpanEnumerator.v1`.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    max_width (int): L, the longest span in tokens; longer mentions cannot be found.
    hidden (int): Size of the hidden layer of the span scorer; 0: the linear score of Bhowmik et al.
        (2021), equation 4 as published, without hidden layer and width embedding, and with lexicon
        matches as token features only.
    context (int): Size of a bidirectional LSTM between tok2vec and scorer; 0: no LSTM.
    dropout (float): Dropout on token vectors and hidden layer, in training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] when the tok2vec is a transformer: only its weights would be saved.
    """
    settings = {"hidden": hidden, "context": context, "dropout": dropout}
    return mention_model("span_enumerator", _KIND, tok2vec, max_width=max_width, settings=settings)


def _loss(
    logits: Logits, gold: TokenSpans, likely: NDArray[np.float32], known: NDArray[np.bool_]
) -> tuple[float, Logits]:
    """Binary cross-entropy, summed over all spans and the labels that were looked for, and divided
    by the gold mentions.

    logits (Logits): -inf for spans outside a document. Shape (n_tokens, max_width, n_labels).
    """
    short = gold[:, 1] - gold[:, 0] <= logits.shape[1]
    start, end, label = gold[short].T
    target = np.zeros(logits.shape, dtype="float32")
    np.maximum.at(target, (start, end - start - 1, label), likely[short])
    possible = np.isfinite(logits) & known[:, None, :]
    p = _sigmoid(logits)
    scale = 1.0 / max(1.0, target.sum())
    gradient = np.where(possible, (p - target) * scale, 0.0).astype("float32")
    log_p, log_rest = (np.log(np.maximum(x[possible], 1e-8)) for x in (p, 1 - p))
    target = target[possible]
    return float(-(target * log_p + (1 - target) * log_rest).sum() * scale), gradient


def _decode(
    logits: Logits, lengths: NDArray[np.int64], lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Decode all spans of at least the minimum probability, overlapping ones included."""
    probabilities = _sigmoid(logits)
    start, width, label = np.nonzero((probabilities >= lowest) & np.isfinite(logits))
    return np.stack([start, start + width + 1, label], axis=1), probabilities[start, width, label]


def _sigmoid(logits: Logits) -> Logits:
    # Clipped, because exp would overflow for the linear scores of wide spans.
    return (1 / (1 + np.exp(-np.maximum(logits, -80.0)))).astype("float32")


_KIND = DetectorKind("SpanScorer", infer=span_logits, loss=_loss, decode=_decode, is_local=True)
