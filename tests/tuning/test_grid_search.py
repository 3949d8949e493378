"""Grid search: the chosen settings and both figures, compared with answers by hand."""

import pytest

from spacy_bioel.evaluation.fit import Tuned, document_folds, grid_search, percent_of
from spacy_bioel.evaluation.protocols import Counts


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


def test_the_best_setting_with_both_figures():
    # Counts of three documents under two settings.
    first = [counted(2, 2, 2), counted(0, 1, 2), counted(0, 1, 2)]
    second = [counted(0, 2, 2), counted(2, 2, 2), counted(1, 2, 2)]
    settings = [{"chosen": "first"}, {"chosen": "second"}]
    folds = document_folds(3)
    choice = grid_search("pipe", settings, [first, second], protocol="mention", folds=folds)
    # On all: 2 * 2 / (4 + 6) against 2 * 3 / (6 + 6); but cross-fitted, nothing is right.
    assert choice == Tuned("pipe", settings[0], "mention", "f1", pytest.approx(40.0), 40.0)
    # Without the first document: 0 against 3 right of 4; it is measured with "second": 0, 2, 2.
    # Without the second: 2 right of 3 predicted and 4 gold (57) against 1 of 4 and 4 (25): 0, 1, 2.
    # Without the third: 2 of 3 and 4 (57) against 2 of 4 and 4 (50): 0, 1, 2. In sum none right.


def test_the_first_of_equal_settings_is_chosen():
    same, settings = [counted(1, 2, 2)], [{"chosen": "a"}, {"chosen": "b"}]
    choice = grid_search("pipe", settings, [same, same], protocol="mention", folds=[])
    assert choice == Tuned("pipe", {"chosen": "a"}, "mention", "f1", pytest.approx(50.0), None)


def test_percent_of_a_sum():
    # 3 of 4 right, 3 of 6 found: 2 * 0.75 * 0.5 / 1.25
    assert percent_of([counted(1, 2, 2), counted(2, 2, 4)], "mention", "f1") == pytest.approx(60.0)
    assert percent_of([counted(0, 0, 0)], "mention", "f1") == 0.0


def test_json_of_what_was_tuned():
    tuned = Tuned("bioel_linker", {"nil_threshold": 0.35}, "end_to_end", "f1", 81.8888, None)
    assert tuned.to_json() == {
        "what": "bioel_linker",
        "chosen": {"nil_threshold": 0.35},
        "protocol": "end_to_end",
        "metric": "f1",
        "fitted": 81.89,
        "cross_fitted": None,
    }
