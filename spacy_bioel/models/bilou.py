"""BILOU tags: mentions to tags, and logits of tags to mentions.

B, I and L are the first, an inner and the last token of a mention, U is a mention of one token, O
is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
O, B, I, L, U = range(5)  # noqa: E741
# Whether a tag needs an open mention before it, and leaves one open.
_NEEDS_OPEN = np.array([0, 0, 1, 1, 0])
_LEAVES_OPEN = np.array([0, 1, 1, 0, 0])


def longest_spans(spans: IntArray) -> NDArray[np.bool_]:
    """Choose spans that do not overlap: the longest first, of equal length the first.

    spans (IntArray): Start and end (exclusive). Shape (n, 2).
    RETURNS (NDArray[bool]): Whether a span is kept. Shape (n,).
    """
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
    lengths (IntArray): Tokens of each document. Shape (n_docs,).
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
