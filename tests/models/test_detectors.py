"""Tags and spans become mentions, and losses are, as their definitions say."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from thinc.api import noop

from spacy_bioel.mentions.model import (
    B,
    I,
    L,
    O,
    U,
    build_bio_tagger_v1,
    build_span_enumerator_v1,
    decode_bilou,
    encode_bilou,
)

# BILOU tags.

LEGAL_AFTER = {O: {O, B, U}, B: {I, L}, I: {I, L}, L: {O, B, U}, U: {O, B, U}}


def test_mentions_survive_encoding_and_decoding():
    spans = np.array([[1, 2], [3, 6], [6, 8], [9, 10]])
    tags = encode_bilou(spans, 10)
    assert tags.tolist() == [O, U, O, B, I, L, B, L, O, U]
    found, probability, repaired = decode_bilou(
        (20 * np.eye(5)[tags]).astype(np.float32), np.array([9, 0, 1])
    )
    assert found.tolist() == spans.tolist()
    assert probability.min() > 0.999
    assert repaired.tolist() == [0, 0, 0]


def test_an_illegal_sequence_is_repaired_and_counted():
    tags = [O, I, L, O, B, O, B]  # I after O, O after B, and an open mention at the end
    logits = (4 * np.eye(5)[tags]).astype(np.float32)
    logits[1, B] = 3.5
    found, _, repaired = decode_bilou(logits, np.array([7]))
    assert found.tolist()[0] == [1, 3]
    assert repaired[0] == 3
    # A mention never continues in the next document.
    logits = (4 * np.eye(5)[[B, L]]).astype(np.float32)
    found, _, repaired = decode_bilou(logits, np.array([1, 1]))
    assert found.tolist() == []
    assert repaired.tolist() == [1, 1]


def test_the_best_of_all_legal_sequences():
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
    found, probability, repaired = decode_bilou(np.zeros((0, 5), np.float32), np.array([0, 0]))
    assert (found.shape, probability.shape, repaired.tolist()) == ((0, 2), (0,), [0, 0])


# BIO tags.

TAGS = ["O", "B-X", "B-Y", "I-X", "I-Y"]
BIO = build_bio_tagger_v1(noop()).attrs["kind"]


def logits_of(*tags: str, sure: float | list[float] = 0.9) -> NDArray[np.float32]:
    """Return logits that give each of these tags its probability, and the others equal ones."""
    probabilities = np.broadcast_to(np.asarray(sure), len(tags))
    p = np.repeat((1 - probabilities)[:, None] / 4, 5, axis=1)
    p[np.arange(len(tags)), [TAGS.index(tag) for tag in tags]] = probabilities
    return np.log(p).astype("float32")


SURE = np.ones(9, dtype="float32")  # probabilities of gold mentions


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", []),
        ("B-X I-X O", [(0, 2, "X")]),
        ("O I-X I-X", [(1, 3, "X")]),  # I after O opens a mention
        ("B-X I-Y I-Y", [(0, 1, "X"), (1, 3, "Y")]),  # as does I of another label
        ("I-X B-X I-X O I-Y", [(0, 1, "X"), (1, 3, "X"), (4, 5, "Y")]),
    ],
)
def test_tags_to_mentions(tags, found):
    logits = logits_of(*tags.split())
    spans, _ = BIO.decode(logits, np.array([len(logits)]), 0.0)
    assert [(start, end, "XY"[label]) for start, end, label in spans] == found


def test_a_mention_ends_with_its_document():
    logits = logits_of("B-X", "I-X", "I-X", "I-X")
    for lengths, found in (
        ([4], [[0, 4, 0]]),
        ([0, 2, 0, 2], [[0, 2, 0], [2, 4, 0]]),
        ([1, 3, 0], [[0, 1, 0], [1, 4, 0]]),
    ):
        assert BIO.decode(logits, np.array(lengths), 0.0)[0].tolist() == found


def test_a_mention_has_the_lowest_probability_of_its_tokens():
    logits = logits_of("B-X", "I-X", "O", "B-Y", sure=[0.9, 0.6, 0.99, 0.8])
    spans, probabilities = BIO.decode(logits, np.array([4]), 0.0)
    assert spans.tolist() == [[0, 2, 0], [3, 4, 1]]
    assert probabilities.tolist() == pytest.approx([0.6, 0.8], abs=1e-6)
    spans, probabilities = BIO.decode(logits, np.array([4]), 0.7)
    assert spans.tolist() == [[3, 4, 1]] and len(probabilities) == 1
    spans, probabilities = BIO.decode(logits, np.array([4]), 0.95)
    assert (spans.shape, probabilities.shape) == ((0, 3), (0,))


@pytest.mark.parametrize(
    ("gold", "tags"),
    [
        ([], "O O O O O"),
        ([[0, 2, 0], [2, 3, 0], [3, 5, 1]], "B-X I-X B-X B-Y I-Y"),
        ([[2, 3, 1], [1, 4, 0]], "O B-X I-X I-X O"),  # nested: the longest is kept
        ([[1, 3, 1], [0, 2, 0], [4, 5, 1]], "B-X I-X O O B-Y"),  # as long: the first
    ],
)
def test_the_least_loss_is_that_of_these_tags(gold, tags):
    spans = np.array(gold, dtype=np.int64).reshape(-1, 3)
    # The gradient points away from the gold tag of each token alone.
    annotated = np.ones((5, 2), dtype=bool)
    loss, gradient = BIO.loss(
        np.zeros((5, 5), dtype="float32"), spans, SURE[: len(spans)], annotated
    )
    assert [TAGS[i] for i in gradient.argmin(axis=1)] == tags.split()
    assert loss == pytest.approx(np.log(5))
    sure = logits_of(*tags.split(), sure=0.9)
    assert BIO.loss(sure, spans, SURE[: len(spans)], annotated)[0] == pytest.approx(-np.log(0.9))


def test_tokens_outside_may_have_labels_that_were_not_annotated():
    annotated = np.array([[True, False]] * 3)
    loss, gradient = BIO.loss(
        np.zeros((3, 5), dtype="float32"), np.array([[1, 2, 0]]), SURE[:1], annotated
    )
    # Tokens 0 and 2 are O, B-Y or I-Y, of five tags; token 1 is B-X.
    assert loss == pytest.approx((2 * np.log(5 / 3) + np.log(5)) / 3)
    assert (np.sign(gradient[0]) == [-1, 1, -1, 1, -1]).all()
    assert (np.sign(gradient[1]) == [1, -1, 1, 1, 1]).all()


def test_the_gradient_is_that_of_finite_differences():
    logits = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    gold = np.array([[1, 3, 1]])
    annotated = np.array([[True, True], [True, False], [True, False], [True, False]])
    _, gradient = BIO.loss(logits, gold, SURE[: len(gold)], annotated)
    for index in np.ndindex(4, 5):
        nudge = np.zeros_like(logits)
        nudge[index] = 1e-2
        up, down = (
            BIO.loss(logits + sign * nudge, gold, SURE[: len(gold)], annotated)[0]
            for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((up - down) / 2e-2, abs=1e-4)


# Spans: one document of two tokens, spans of up to two tokens, one label.

SPANS = build_span_enumerator_v1(noop()).attrs["kind"]
LOGITS = np.array([[[np.log(3)], [-500.0]], [[-np.log(4)], [-np.inf]]], dtype="float32")


@pytest.mark.parametrize(
    ("min_probability", "expected"),
    [
        (0.5, {(0, 1, 0): 0.75}),
        (0.1, {(0, 1, 0): 0.75, (1, 2, 0): 0.2}),
        # None leaves its document.
        (0.0, {(0, 1, 0): 0.75, (0, 2, 0): 0.0, (1, 2, 0): 0.2}),
    ],
)
@pytest.mark.filterwarnings("error")
def test_spans_of_a_minimum_probability(min_probability, expected):
    spans, probabilities = SPANS.decode(LOGITS, np.array([2]), min_probability)
    assert spans.tolist() == list(map(list, expected))
    assert probabilities.tolist() == pytest.approx(list(expected.values()))


@pytest.mark.filterwarnings("error")
def test_the_loss_of_extreme_scores_is_finite():
    gold = np.array([[0, 2, 0], [0, 3, 0]])
    value, gradient = SPANS.loss(LOGITS, gold, SURE[:2], np.ones((2, 1), bool))
    # The second gold mention is too wide. -log(0.25) - log(1e-8) - log(0.8)
    assert value == pytest.approx(np.log(4) + np.log(1e8) + np.log(1.25), rel=1e-5)
    assert gradient[..., 0].tolist() == [pytest.approx([0.75, -1.0]), pytest.approx([0.2, 0.0])]
