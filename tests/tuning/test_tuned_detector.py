"""Threshold, consistency and overlap of the detector, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import spacy
from spacy.language import Language

from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.run import tune_detector
from spacy_bioel.types import AnnotatedText, Link, Mention

Answering = Callable[..., Any]
DEFAULTS = {"threshold": 0.5, "consistency": 0.0, "allow_overlap": True}


@pytest.fixture()
def nlp() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions", name="finder")
    return nlp


def text(words: str, *gold: tuple[int, int, str]) -> AnnotatedText:
    return AnnotatedText("1", words, tuple(Mention(*place) for place in gold))


def test_threshold_by_hand(nlp: Language, answering: Answering) -> None:
    texts = [text("aa bb", (0, 2, "D"), (3, 5, "D")), text("cc dd", (0, 2, "D"))]
    found = {
        "aa bb": [(0, 1, "D", 0.9), (1, 2, "D", 0.3)],
        "cc dd": [(0, 1, "D", 0.9), (1, 2, "D", 0.2)],
    }
    detector = answering(nlp.get_pipe("finder"), found)
    tuned = tune_detector(nlp, texts, folds=document_folds(2))
    # At 0.25 and 0.3 all three are right and nothing else; 0.3 is nearer to the default.
    assert tuned.chosen == DEFAULTS | {"threshold": 0.3}
    assert {key: detector.cfg[key] for key in DEFAULTS} == tuned.chosen
    assert (tuned.what, tuned.protocol, tuned.metric) == ("finder", "mention", "f1")
    # The second document with the 0.3 of the first: 1 of 1. The first with the 0.5 of the second:
    # 1 of 2. 2 right, 2 predicted, 3 gold.
    assert (tuned.fitted, tuned.cross_fitted) == (pytest.approx(100.0), pytest.approx(80.0))


def test_consistency_by_hand(nlp: Language, answering: Answering) -> None:
    # The second "aa" rises from 0.1 to 0.5, half the way to 0.9, and passes "xx".
    found = {"aa xx aa": [(0, 1, "D", 0.9), (1, 2, "D", 0.45), (2, 3, "D", 0.1)]}
    answering(nlp.get_pipe("finder"), found)
    tuned = tune_detector(nlp, [text("aa xx aa", (0, 2, "D"), (6, 8, "D"))], folds=[])
    assert tuned.chosen == DEFAULTS | {"consistency": 0.5}
    assert (tuned.fitted, tuned.cross_fitted) == (pytest.approx(100.0), None)


def test_overlap_by_hand(nlp: Language, answering: Answering) -> None:
    found = {"aa bb": [(0, 2, "D", 0.9), (0, 1, "D", 0.6)]}
    answering(nlp.get_pipe("finder"), found)
    tuned = tune_detector(nlp, [text("aa bb", (0, 5, "D"))], folds=[])
    assert tuned.chosen == DEFAULTS | {"allow_overlap": False}
    assert tuned.fitted == pytest.approx(100.0)


def test_labels_count_as_in_the_protocol(nlp: Language, answering: Answering) -> None:
    answering(nlp.get_pipe("finder"), {"aa": [(0, 1, "C", 0.9)]})
    tuned = tune_detector(nlp, [text("aa", (0, 2, "D"))], folds=[])
    assert (tuned.fitted, tuned.chosen) == (0.0, DEFAULTS)


def test_the_figure_is_that_of_evaluate(nlp: Language, answering: Answering) -> None:
    # A gold mention inside a token stays in the denominator, and a duplicate counts once.
    texts = [text("aabb cc", (0, 2, "D"), (5, 7, "D"), (5, 7, "D"))]
    answering(nlp.get_pipe("finder"), {"aabb cc": [(1, 2, "D", 0.9)]})
    tuned = tune_detector(nlp, texts, folds=[])
    (f1,) = (
        row.value
        for row in evaluate(texts, [[Link(5, 7, "D")]], protocols=["mention"], per_label=False)
        if row.metric == "f1"
    )
    assert tuned.fitted == pytest.approx(f1) == pytest.approx(200 / 3)  # 1 right, 1 + 2


def test_documents_without_gold_change_nothing(nlp: Language, answering: Answering) -> None:
    answering(nlp.get_pipe("finder"), {"aa": [(0, 1, "D", 0.9)]})
    tuned = tune_detector(nlp, [text("aa")], folds=[])
    assert (tuned.fitted, tuned.chosen) == (0.0, DEFAULTS)
