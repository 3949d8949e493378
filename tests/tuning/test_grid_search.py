"""Choices by grid search, compared with answers by hand."""

import pytest

from spacy_bioel.evaluation.evaluate import Figure
from spacy_bioel.evaluation.fit import choose_setting, document_folds, percent_of
from spacy_bioel.evaluation.protocols import Counts
from spacy_bioel.evaluation.tune import Tuned


def counted(right: int, predicted: int, gold: int) -> Counts:
    return {"right_predicted": right, "right_gold": right, "predicted": predicted, "gold": gold}


def test_folds_are_of_documents_and_the_same_each_time():
    folds = document_folds(12)
    assert len(folds) == 5
    assert sorted(i for fold in folds for i in fold.held_out.tolist()) == list(range(12))
    for fold, again in zip(folds, document_folds(12), strict=True):
        assert sorted([*fold.fitting.tolist(), *fold.held_out.tolist()]) == list(range(12))
        assert fold.held_out.tolist() == again.held_out.tolist()
    assert [len(fold.held_out) for fold in document_folds(3)] == [1, 1, 1]
    assert document_folds(1) == document_folds(0) == []


FIRST, SECOND = {"chosen": "first"}, {"chosen": "second"}


def test_what_is_best_by_chance_is_not_chosen():
    # Counts of three documents under two settings.
    first = [counted(2, 2, 2), counted(0, 1, 2), counted(0, 1, 2)]
    second = [counted(0, 2, 2), counted(2, 2, 2), counted(1, 2, 2)]
    # On all: 2 * 2 / (4 + 6) against 2 * 3 / (6 + 6).
    # Without the first document: 0 against 3 right of 4; it is measured with "second": 0, 2, 2.
    # Without the second: 2 right of 3 predicted and 4 gold (57) against 1 of 4 and 4 (25): 0, 1, 2.
    # Without the third: 2 of 3 and 4 (57) against 2 of 4 and 4 (50): 0, 1, 2. In sum none right.
    assert choose_setting([FIRST, SECOND], [first, second], protocol="mention") == FIRST


def test_what_is_best_everywhere_is_chosen():
    first, second = [counted(1, 2, 2)] * 3, [counted(2, 2, 2)] * 3
    assert choose_setting([FIRST, SECOND], [first, second], protocol="mention") == SECOND


def test_the_first_of_equal_settings_is_chosen():
    same = [counted(1, 2, 2)]
    assert choose_setting([FIRST, SECOND], [same, same], protocol="mention") == FIRST


def test_percent_of_a_sum():
    # 3 of 4 right, 3 of 6 found: 2 * 0.75 * 0.5 / 1.25
    assert percent_of([counted(1, 2, 2), counted(2, 2, 4)], "mention", "f1") == pytest.approx(60.0)
    assert percent_of([counted(0, 0, 0)], "mention", "f1") == 0.0


def test_json_of_what_was_tuned():
    figure = Figure("end_to_end", "f1", 75.4567, 20, low=70.009, high=80.0)
    goal = {"protocol": "end_to_end", "metric": "f1"}
    for cross_fitted, expected in (
        (figure, {"cross_fitted": 75.46, "low": 70.01, "high": 80.0}),
        (None, {"cross_fitted": None}),
    ):
        tuned = Tuned("linker", {"nil_threshold": 0.35}, *goal.values(), 81.8888, cross_fitted)
        chosen = {"what": "linker", "chosen": {"nil_threshold": 0.35}}
        assert tuned.to_json() == {**chosen, **goal, "fitted": 81.89, **expected}
