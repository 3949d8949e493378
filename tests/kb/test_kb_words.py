from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.kb.words.bags import word_overlap

QUERIES = ["kidney failures", "", "heart heart attack"]
NAMES = ["failure of kidney", "attack", "aspirin", "", "attacks heart"]
PAIRS = {
    # kidney + failure are 6 + 7 letters, "of" is 2 more.
    (0, 0): (2 * 13 / (13 + 15), 13 / 13),
    (0, 2): (0.0, 0.0),
    (0, 3): (0.0, 0.0),
    (1, 0): (0.0, 0.0),
    (1, 3): (0.0, 0.0),
    # A word counts once however often it is there: heart + attack are 5 + 6 letters.
    (2, 1): (2 * 6 / (11 + 6), 6 / 11),
    (2, 4): (1.0, 1.0),
}


def test_by_hand() -> None:
    query, name = (np.array(numbers) for numbers in zip(*PAIRS, strict=True))
    dice, covered = word_overlap(QUERIES, NAMES, query, name)
    assert dice.dtype == covered.dtype == np.float32
    assert dice.tolist() == pytest.approx([expected for expected, _ in PAIRS.values()])
    assert covered.tolist() == pytest.approx([expected for _, expected in PAIRS.values()])


def test_no_pairs() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    dice, covered = word_overlap([], [], nothing, nothing)
    assert dice.tolist() == covered.tolist() == []
    dice, covered = word_overlap(["a"], ["a"], nothing, nothing)
    assert dice.tolist() == covered.tolist() == []


def test_only_empty_strings() -> None:
    zero = np.zeros(1, dtype=np.int64)
    dice, covered = word_overlap([""], [""], zero, zero)
    assert dice.tolist() == covered.tolist() == [0.0]
