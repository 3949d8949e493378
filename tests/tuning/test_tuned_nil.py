"""The NIL threshold by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from by_hand import linked
from spacy.language import Language

from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.run import tune_nil
from spacy_bioel.types import AnnotatedText, Mention

Answering = Callable[..., Any]
MakeLinker = Callable[..., Language]


@pytest.fixture()
def nlp(make_linker: MakeLinker) -> Language:
    return make_linker()


def text(words: str, *gold: Mention) -> AnnotatedText:
    return AnnotatedText("1", words, gold)


def test_threshold_by_hand(nlp: Language, answering: Answering) -> None:
    # The second gold id is retired; the link has another label, which is not compared.
    texts = [
        text("aa bb", Mention(0, 2, "D", ("X:A",))),
        text("cc", Mention(0, 2, "D", ("X:OLD",))),
    ]
    found = {
        "aa bb": [linked(0, 2, ("X:A", 0.9)), linked(3, 5, ("X:B", 0.3))],
        "cc": [linked(0, 2, ("X:C", 0.6), label="Other")],
    }
    linker = answering(nlp.get_pipe("bioel_linker"), found)
    tuned = tune_nil(nlp, texts, folds=document_folds(2))
    assert tuned is not None
    # From 0.35 to 0.6 both are right, and nothing else is linked.
    assert tuned.chosen == {"nil_threshold": 0.35} and linker.cfg["nil_threshold"] == 0.35
    assert (tuned.protocol, tuned.metric) == ("end_to_end", "f1")
    # The first document with the 0.25 of the second: 1 right of 2; the second with 0.35: 1 of 1.
    # 2 right, 3 predicted, 2 gold.
    assert (tuned.fitted, tuned.cross_fitted) == (pytest.approx(100.0), pytest.approx(80.0))


def test_composites_are_right_with_exactly_their_ids(nlp: Language, answering: Answering) -> None:
    # Two parts of 0.9 and 0.5: as likely as 0.5 squared, and they have to exceed the threshold.
    composite = linked(0, 5, ("X:B", 0.9), ("X:A", 0.5), n=2)
    linker = answering(nlp.get_pipe("bioel_linker"), {"aa bb": [composite]})
    tuned = tune_nil(nlp, [text("aa bb", Mention(0, 5, "D", ("X:A", "X:B")))], folds=[])
    assert tuned is not None and linker.cfg["nil_threshold"] == 0.2
    assert (tuned.fitted, tuned.cross_fitted) == (pytest.approx(100.0), None)


def test_nothing_found_changes_nothing(nlp: Language, answering: Answering) -> None:
    linker = answering(nlp.get_pipe("bioel_linker"), {"aa": []})
    linker.cfg["nil_threshold"] = 0.6
    assert tune_nil(nlp, [text("aa", Mention(0, 2, "D", ("X:A",)))], folds=[]) is None
    assert linker.cfg["nil_threshold"] == 0.6
