"""BILOU tags of mentions, and back."""

from __future__ import annotations

from itertools import product

import numpy as np

from spacy_bioel.models.bio_tagger import B, I, L, O, U, decode_bilou, encode_bilou, longest_spans

LEGAL_AFTER = {O: {O, B, U}, B: {I, L}, I: {I, L}, L: {O, B, U}, U: {O, B, U}}


def test_tags_of_mentions() -> None:
    tags = encode_bilou(np.array([[1, 2], [3, 6], [6, 8]]), 9)
    assert tags.tolist() == [O, U, O, B, I, L, B, L, O]


def test_the_longest_of_overlapping_mentions_are_kept() -> None:
    spans = np.array([[0, 2], [1, 5], [5, 7], [6, 8], [2, 3], [9, 10]])
    assert longest_spans(spans).tolist() == [False, True, True, False, False, True]
    assert longest_spans(np.zeros((0, 2), dtype=np.int64)).tolist() == []


def test_clear_logits_give_the_mentions_back() -> None:
    spans = np.array([[1, 2], [3, 6], [6, 8], [9, 10]])
    logits = (20 * np.eye(5)[encode_bilou(spans, 10)]).astype(np.float32)
    found, probability, repaired = decode_bilou(logits, np.array([9, 0, 1]))
    assert found.tolist() == spans.tolist()
    assert probability.min() > 0.999
    assert repaired.tolist() == [0, 0, 0]


def test_an_illegal_sequence_is_repaired_and_counted() -> None:
    tags = [O, I, L, O, B, O, B]  # I after O, O after B, and a mention that the end cuts
    logits = (4 * np.eye(5)[tags]).astype(np.float32)
    logits[1, B] = 3.5
    found, _, repaired = decode_bilou(logits, np.array([7]))
    assert found.tolist()[0] == [1, 3]
    assert repaired[0] == 3
    # A mention never reaches from one document into the next.
    logits = (4 * np.eye(5)[[B, L]]).astype(np.float32)
    found, _, repaired = decode_bilou(logits, np.array([1, 1]))
    assert found.tolist() == []
    assert repaired.tolist() == [1, 1]


def test_the_best_of_all_legal_sequences() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        lengths = random.integers(0, 6, size=3)
        logits = random.normal(size=(lengths.sum(), 5)).astype(np.float32)
        found, _, _ = decode_bilou(logits, lengths)
        first, expected = 0, []
        for length in lengths.tolist():
            scores = logits[first : first + length]
            legal = [
                tags
                for tags in product(range(5), repeat=length)
                if all(b in LEGAL_AFTER[a] for a, b in zip((O, *tags), tags, strict=False))
                and (not tags or tags[-1] in (O, L, U))
            ]
            best = max(legal, key=lambda tags: sum(scores[range(length), tags]))
            expected += [
                [first + i, first + i + 1 + (0 if tag == U else best[i:].index(L))]
                for i, tag in enumerate(best)
                if tag in (B, U)
            ]
            first += length
        assert found.tolist() == expected


def test_no_documents() -> None:
    found, probability, repaired = decode_bilou(np.zeros((0, 5), np.float32), np.array([0, 0]))
    assert (found.shape, probability.shape, repaired.tolist()) == ((0, 2), (0,), [0, 0])
