"""Mention detection by BIO tagging.

The baseline to the span scorer in Bhowmik, Stratos and de Melo (2021), Fast and effective
biomedical entity linking using a dual encoder, https://aclanthology.org/2021.louhi-1.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.models.detector import DetectorKind, MentionModel, Tok2Vec, mention_model
from spacy_bioel.models.types import Logits, TokenSpans

# Tags: 0 is O, followed by B of each label, then I of each label.


def build_bio_tagger_v1(
    tok2vec: Tok2Vec, *, max_width: int = 10, context: int = 0, dropout: float = 0.2
) -> MentionModel:
    """Registered as `spacy-bioel.BioTagger.v1`.

    Fast, and not limited in the length of mentions. BIO tags cannot represent overlapping
    mentions: of these it learns the longest (at equal length the first) and predicts no other.

    The probability of a mention is the lowest of its tokens' probabilities. Unlike their product
    it does not fall with the length, so that one threshold suits all mentions. Decoding takes the
    most probable tag of each token whatever the threshold: a low one adds few mentions.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    max_width (int): The longest lexicon match in tokens.
    context (int): Size of a bidirectional LSTM between tok2vec and tags; 0: no LSTM.
    dropout (float): Dropout on token vectors, in training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] when the tok2vec is a transformer: only its weights would be saved.
    """
    settings = {"context": context, "dropout": dropout}
    return mention_model("bio_tagger", _KIND, tok2vec, max_width=max_width, settings=settings)


def _make(*, n_labels: int, **settings: Any) -> Any:
    from spacy_bioel.nn.tags import TagScorer

    return TagScorer(n_tags=2 * n_labels + 1, **settings)


def _loss(logits: Logits, gold: TokenSpans, known: NDArray[np.bool_]) -> tuple[float, Logits]:
    """Cross-entropy of the tags, mean over tokens; of a token outside, O and the tags of all labels
    that were not looked for are right together.

    logits (Logits): Logits of the tags. Shape (n_tokens, 2 * n_labels + 1).
    known (NDArray[bool]): Shape (n_tokens, n_labels).
    """
    n_tokens, n_tags = logits.shape
    tags = _gold_tags(gold, n_tokens, n_labels=n_tags // 2)
    right = np.arange(n_tags) == tags[:, None]
    right[:, 1:] |= (tags == 0)[:, None] & ~np.tile(known, 2)
    p = _softmax(logits)
    likelihood = np.maximum((p * right).sum(axis=1, keepdims=True), 1e-8)
    return float(-np.log(likelihood).mean()), (p - p * right / likelihood) / n_tokens


def _gold_tags(gold: TokenSpans, n_tokens: int, *, n_labels: int) -> NDArray[np.int64]:
    """Gold tag of each token; of overlapping mentions, the longest wins, then the first.

    RETURNS (NDArray[int64]): Shape (n_tokens,).
    """
    tags = np.zeros(n_tokens, dtype=np.int64)
    longest_first = sorted(gold.tolist(), key=lambda span: (span[0] - span[1], span))
    for start, end, label in longest_first:
        if not tags[start:end].any():
            tags[start:end] = 1 + n_labels + label
            tags[start] = 1 + label
    return tags


def _decode(
    logits: Logits, lengths: NDArray[np.int64], lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Decode mentions from the most probable tag of each token.

    A mention starts at B, and at an I that follows O, another label or the start of a document.
    """
    n_labels = logits.shape[1] // 2
    tags, confidence = logits.argmax(axis=1), _softmax(logits).max(axis=1)
    labels = np.where(tags > 0, (tags - 1) % n_labels, -1)
    before = np.concatenate([[-1], labels[:-1]])
    before[(np.cumsum(lengths) - lengths)[lengths > 0]] = -1
    starts = (labels >= 0) & ((tags <= n_labels) | (labels != before))
    # A mention ends before the next start, before the next O, or with the last token.
    borders = np.append(np.flatnonzero(starts | (labels < 0)), len(tags))
    start = np.flatnonzero(starts)
    end = borders[np.searchsorted(borders, start, side="right")]
    probabilities = np.array(
        [confidence[first:last].min() for first, last in zip(start, end, strict=True)],
        dtype=np.float32,
    )
    kept = probabilities >= lowest
    return np.stack([start, end, labels[start]], axis=1)[kept], probabilities[kept]


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_KIND = DetectorKind(make=_make, loss=_loss, decode=_decode)
