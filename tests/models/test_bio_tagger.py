"""Tags: gold tags of overlapping mentions, the loss, and the mentions that tags decode to."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from thinc.api import noop

from spacy_bioel.models.bio_tagger import build_bio_tagger_v1
from spacy_bioel.models.detector import DetectorKind

TAGS = ["O", "B-X", "B-Y", "I-X", "I-Y"]


@pytest.fixture(scope="module")
def kind() -> DetectorKind:
    return build_bio_tagger_v1(noop()).attrs["kind"]


def logits_of(*tags: str, sure: float | list[float] = 0.9) -> NDArray[np.float32]:
    """Logits under which these are the tags, each of its probability, the others alike."""
    probabilities = np.broadcast_to(np.asarray(sure), len(tags))
    p = np.repeat((1 - probabilities)[:, None] / 4, 5, axis=1)
    p[np.arange(len(tags)), [TAGS.index(tag) for tag in tags]] = probabilities
    return np.log(p).astype("float32")


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", []),
        ("B-X I-X O", [(0, 2, "X")]),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")]),
        ("O I-X I-X", [(1, 3, "X")]),  # I after O opens a mention
        ("I-Y O", [(0, 1, "Y")]),
        ("B-X I-Y I-Y", [(0, 1, "X"), (1, 3, "Y")]),  # and so does I of another label
        ("I-X B-X I-X O I-Y", [(0, 1, "X"), (1, 3, "X"), (4, 5, "Y")]),
        ("B-Y I-Y I-Y I-Y", [(0, 4, "Y")]),
    ],
)
def test_tags_to_mentions(kind: DetectorKind, tags: str, found: list) -> None:
    logits = logits_of(*tags.split())
    spans, _ = kind.decode(logits, np.array([len(logits)]), 0.0)
    assert [(start, end, "XY"[label]) for start, end, label in spans] == found


def test_a_mention_ends_with_its_document(kind: DetectorKind) -> None:
    logits = logits_of("B-X", "I-X", "I-X", "I-X")
    for lengths, found in (
        ([4], [[0, 4, 0]]),
        ([0, 2, 0, 2], [[0, 2, 0], [2, 4, 0]]),
        ([1, 3, 0], [[0, 1, 0], [1, 4, 0]]),
    ):
        assert kind.decode(logits, np.array(lengths), 0.0)[0].tolist() == found


def test_a_mention_is_as_sure_as_its_least_sure_token(kind: DetectorKind) -> None:
    logits = logits_of("B-X", "I-X", "O", "B-Y", sure=[0.9, 0.6, 0.99, 0.8])
    spans, probabilities = kind.decode(logits, np.array([4]), 0.0)
    assert spans.tolist() == [[0, 2, 0], [3, 4, 1]]
    assert probabilities.tolist() == pytest.approx([0.6, 0.8], abs=1e-6)
    spans, probabilities = kind.decode(logits, np.array([4]), 0.7)
    assert spans.tolist() == [[3, 4, 1]] and len(probabilities) == 1
    spans, probabilities = kind.decode(logits, np.array([4]), 0.95)
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
def test_the_least_loss_is_that_of_these_tags(kind: DetectorKind, gold: list, tags: str) -> None:
    spans = np.array(gold, dtype=np.int64).reshape(-1, 3)
    # The gradient points away from the gold tag of each token alone.
    known = np.ones((5, 2), dtype=bool)
    loss, gradient = kind.loss(np.zeros((5, 5), dtype="float32"), spans, known)
    assert [TAGS[i] for i in gradient.argmin(axis=1)] == tags.split()
    assert loss == pytest.approx(np.log(5))
    sure = logits_of(*tags.split(), sure=0.9)
    assert kind.loss(sure, spans, known)[0] == pytest.approx(-np.log(0.9))


def test_outside_may_be_any_label_that_was_not_looked_for(kind: DetectorKind) -> None:
    known = np.array([[True, False]] * 3)
    spans = np.array([[1, 2, 0]])
    loss, gradient = kind.loss(np.zeros((3, 5), dtype="float32"), spans, known)
    # Tokens 0 and 2 are O, B-Y or I-Y, of five tags; token 1 is B-X.
    assert loss == pytest.approx((2 * np.log(5 / 3) + np.log(5)) / 3)
    assert (np.sign(gradient[0]) == [-1, 1, -1, 1, -1]).all()
    assert (np.sign(gradient[1]) == [1, -1, 1, 1, 1]).all()


def test_the_gradient_is_that_of_finite_differences(kind: DetectorKind) -> None:
    logits = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    gold = np.array([[1, 3, 1]])
    known = np.array([[True, True], [True, False], [True, False], [True, False]])
    _, gradient = kind.loss(logits, gold, known)
    for place in np.ndindex(4, 5):
        nudge = np.zeros_like(logits)
        nudge[place] = 1e-2
        up, down = (kind.loss(logits + sign * nudge, gold, known)[0] for sign in (1, -1))
        assert gradient[place] == pytest.approx((up - down) / 2e-2, abs=1e-4)
