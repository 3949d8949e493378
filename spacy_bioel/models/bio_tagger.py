"""Mention detection by BIO tagging, with BILOU tags.

The baseline to the span scorer in Bhowmik, Stratos and de Melo (2021), Fast and effective
biomedical entity linking using a dual encoder, https://aclanthology.org/2021.louhi-1.4. B, I and L
are the first, an inner and the last token of a mention, U is a mention of one token, O is none.
"""

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
from spacy_bioel.models.inference import tag_logits
from spacy_bioel.models.tok2vec import Tok2Vec

IntArray = NDArray[np.int64]
O, B, I, L, U = range(5)  # noqa: E741
# Whether a tag needs an open mention before it, and leaves one open.
_NEEDS_OPEN = np.array([0, 0, 1, 1, 0])
_LEAVES_OPEN = np.array([0, 1, 1, 0, 0])


def longest_spans(spans: IntArray) -> NDArray[np.bool_]:
    """Which of spans to keep without overlaps: the longest first, of equal length the first."""
    kept = np.zeros(len(spans), dtype=bool)
    taken: set[int] = set()
    for i in np.lexsort((spans[:, 1], spans[:, 0], spans[:, 0] - spans[:, 1])).tolist():
        tokens = range(*spans[i].tolist())
        kept[i] = taken.isdisjoint(tokens)
        if kept[i]:
            taken.update(tokens)
    return kept


def encode_bilou(spans: IntArray, n_tokens: int) -> IntArray:
    """Tag of each token. spans (IntArray): Without overlaps, shape (n, 2)."""
    tags = np.full(n_tokens, O)
    for start, end in spans.tolist():
        tags[start:end] = I
        tags[start], tags[end - 1] = B, L
        if end - start == 1:
            tags[start] = U
    return tags


def decode_bilou(
    logits: NDArray[np.float32], lengths: IntArray
) -> tuple[IntArray, NDArray[np.float64], IntArray]:
    """The most probable legal sequence of tags of each document, by the algorithm of Viterbi.

    logits (NDArray): Of the tags of all tokens, one document after the other. Shape (n_tokens, 5).
    lengths (IntArray): Tokens of each document.
    RETURNS (tuple): Start and end (exclusive) of each mention, counted over all documents, shape
        (n_mentions, 2); the lowest probability of its tags, (n_mentions,); and how many tokens of
        each document have another tag than their most probable one, (n_docs,).
    """
    scores = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    scores = (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))).astype(np.float64)
    tags = _best_legal(scores, lengths)
    start = np.flatnonzero((tags == B) | (tags == U))
    end = np.flatnonzero((tags == L) | (tags == U)) + 1
    # A last element, so that a mention may end with the last token; a legal sequence has no gaps.
    of_tags = np.append(np.exp(scores[np.arange(len(tags)), tags]), 1.0)
    borders = np.stack([start, end], axis=1)
    lowest = np.minimum.reduceat(of_tags, borders.ravel())[::2] if len(start) else np.zeros(0)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    repaired = np.bincount(owner, tags != scores.argmax(axis=1), minlength=len(lengths))
    return borders, lowest, repaired.astype(np.int64)


def _best_legal(scores: NDArray[np.float64], lengths: IntArray) -> IntArray:
    """Tags of all documents, computed for all of them at once, token by token."""
    n, longest = len(lengths), int(lengths.max(initial=0))
    first = np.cumsum(lengths) - lengths
    # Of the best sequences that leave no mention open, and that do: score, and last tag.
    best = np.tile([0.0, -np.inf], (n, 1))
    reached_by = np.zeros((longest, n, 2), dtype=np.int64)
    for at in range(longest):
        alive = np.flatnonzero(lengths > at)
        total = best[alive][:, _NEEDS_OPEN] + scores[first[alive] + at]  # (n_alive, 5)
        for leaves_open in (0, 1):
            tags = np.flatnonzero(_LEAVES_OPEN == leaves_open)
            reached_by[at, alive, leaves_open] = tags[total[:, tags].argmax(axis=1)]
            best[alive, leaves_open] = total[:, tags].max(axis=1)
    tags_of = np.zeros((longest, n), dtype=np.int64)
    is_open = np.zeros(n, dtype=np.int64)  # a document ends with all mentions closed
    for at in reversed(range(longest)):
        alive = np.flatnonzero(lengths > at)
        tags_of[at, alive] = reached_by[at, alive, is_open[alive]]
        is_open[alive] = _NEEDS_OPEN[tags_of[at, alive]]
    owner = np.repeat(np.arange(n), lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(first, lengths)
    found: IntArray = tags_of[within, owner]
    return found


# BIO tags: 0 is O, followed by B of each label, then I of each label.


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


def _loss(
    logits: Logits, gold: TokenSpans, likely: NDArray[np.float32], known: NDArray[np.bool_]
) -> tuple[float, Logits]:
    """Cross-entropy of the tags, mean over tokens; of a token outside, O and the tags of all labels
    that were not looked for are right together. Only likely spans have tags.

    logits (Logits): Of the tags. Shape (n_tokens, 2 * n_labels + 1).
    """
    n_tokens, n_tags = logits.shape
    tags = _gold_tags(gold[likely >= 0.5], n_tokens, n_labels=n_tags // 2)
    right = np.arange(n_tags) == tags[:, None]
    right[:, 1:] |= (tags == 0)[:, None] & ~np.tile(known, 2)
    p = _softmax(logits)
    likelihood = np.maximum((p * right).sum(axis=1, keepdims=True), 1e-8)
    return float(-np.log(likelihood).mean()), (p - p * right / likelihood) / n_tokens


def _gold_tags(gold: TokenSpans, n_tokens: int, *, n_labels: int) -> NDArray[np.int64]:
    """Gold tag of each token; of overlapping mentions, the longest wins, then the first."""
    tags = np.zeros(n_tokens, dtype=np.int64)
    gold = gold[np.argsort(gold[:, 2], kind="stable")]
    for start, end, label in gold[longest_spans(gold[:, :2])].tolist():
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
    lowest_of = [confidence[first:last].min() for first, last in zip(start, end, strict=True)]
    probabilities = np.array(lowest_of, dtype=np.float32)
    kept = probabilities >= lowest
    return np.stack([start, end, labels[start]], axis=1)[kept], probabilities[kept]


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_KIND = DetectorKind("TagScorer", infer=tag_logits, loss=_loss, decode=_decode)
