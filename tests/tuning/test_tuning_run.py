"""Everything that is tuned, of pipelines with either pipe or both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import spacy
from by_hand import linked
from spacy.language import Language

from spacy_bioel.errors import BioelError
from spacy_bioel.tuning.run import tune
from spacy_bioel.types import AnnotatedText, Mention

Answering = Callable[..., Any]
MakeLinker = Callable[..., Language]
TEXTS = [
    AnnotatedText("1", "alpha fever", (Mention(0, 11, "D", ("X:A",)),)),
    AnnotatedText("2", "beta fever", (Mention(0, 10, "D", ("X:B",)),)),
]
SPANS = {text.text: [(0, 2, "D", 0.9)] for text in TEXTS}


def test_both_pipes_in_order(make_linker: MakeLinker, answering: Answering) -> None:
    nlp = make_linker(mentions="auto")
    nlp.add_pipe("bioel_mentions", first=True)
    answering(nlp.get_pipe("bioel_mentions"), SPANS)
    report = tune(nlp, TEXTS)
    assert [(one.what, one.protocol) for one in report.tuned] == [
        ("bioel_linker", "gold"),
        ("bioel_mentions", "mention"),
        ("bioel_linker", "end_to_end"),
    ]
    assert [one.fitted for one in report.tuned] == pytest.approx([100.0, 100.0, 100.0])
    assert [one.cross_fitted for one in report.tuned] == pytest.approx([100.0, 100.0, 100.0])
    assert (report.documents, report.mentions, report.folds, report.notes) == (2, 2, 2, ())
    written = json.loads(json.dumps(nlp.meta))["bioel"]["tuning"]
    assert written == report.to_json()
    assert written["tuned"][2]["chosen"] == {"nil_threshold": 0.25}


def test_a_detector_alone(answering: Answering) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions")
    answering(nlp.get_pipe("bioel_mentions"), SPANS)
    report = tune(nlp, TEXTS)
    assert [one.what for one in report.tuned] == ["bioel_mentions"]
    assert report.notes == ()


def test_a_linker_that_is_given_its_mentions(make_linker: MakeLinker) -> None:
    nlp = make_linker(mentions="ents", nil_threshold=0.4)
    report = tune(nlp, TEXTS)
    assert [one.protocol for one in report.tuned] == ["gold"]
    assert report.notes == ("the NIL threshold is unchanged: no mention is found in bare text",)
    assert nlp.get_pipe("bioel_linker").cfg["nil_threshold"] == 0.4  # type: ignore[attr-defined]


def test_one_document_is_not_cross_fitted(make_linker: MakeLinker) -> None:
    report = tune(make_linker(), TEXTS[:1])
    assert report.folds == 0
    assert [one.cross_fitted for one in report.tuned] == [None, None]
    assert report.notes == ("there is one document: nothing is cross-fitted",)


def test_mentions_without_ids_leave_the_linker_alone(
    make_linker: MakeLinker, answering: Answering
) -> None:
    nlp = make_linker()
    linker = answering(nlp.get_pipe("bioel_linker"), {"aa": [linked(0, 2, ("X:A", 0.9))]})
    report = tune(nlp, [AnnotatedText("1", "aa", (Mention(0, 2, "D"),))] * 2)
    assert (report.tuned, linker.fusion) == ((), None)
    assert report.notes == ("the linker is unchanged: no gold mention has an id",)


def test_ids_that_the_kb_does_not_know(make_linker: MakeLinker) -> None:
    # `bioel tune` refuses that, [B077]; here the figures say it.
    texts = [AnnotatedText("1", "alpha fever", (Mention(0, 11, "D", ("Y:1",)),))] * 2
    report = tune(make_linker(), texts)
    assert [one.fitted for one in report.tuned] == [0.0, 0.0]


def test_evidence_of_strings_may_be_off(make_linker: MakeLinker) -> None:
    evidence = dict.fromkeys(("exact", "memory", "sparse", "dense"), False) | {"prior": True}
    report = tune(make_linker(evidence=evidence), TEXTS)
    assert report.notes[0] == "the weights are unchanged: there is no evidence of strings"


def test_nothing_to_tune() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(BioelError, match=r"\[B232\].*found sentencizer"):
        tune(nlp, TEXTS)
