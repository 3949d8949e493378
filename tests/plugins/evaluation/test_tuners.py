"""Tuning chooses what is best by hand, and measures it on documents that it did not see."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import linking_nlp

from spacy_bioel.batch import Batch, Query
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking.evidence import FEATURES, default_fusion
from spacy_bioel.plugins.evaluation.evaluate import percent_of
from spacy_bioel.plugins.evaluation.fit import (
    choose_setting,
    document_folds,
)
from spacy_bioel.plugins.evaluation.run import predict_links
from spacy_bioel.plugins.evaluation.tune import (
    Choice,
    Prepared,
    TuningReport,
    cross_fit,
    dictionary_step,
    nil_step,
    tune_pipeline,
    weights_step,
)
from spacy_bioel.scoring.protocols import Counts
from spacy_bioel.types import AnnotatedText, Candidate, Concept, Link, Mention

DEFAULTS = {"threshold": 0.5, "document_smoothing": 0.0, "allow_overlap": True}
CONCEPTS = [
    Concept("X:A", ("alpha fever",), types=("D",)),
    Concept("X:B", ("beta fever",), types=("D",)),
    Concept("X:C", ("gamma ache",), types=("D",)),
    Concept("X:OLD", (), replaced_by="X:C"),
]


@pytest.fixture(scope="session")
def kb_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    build_kb(CONCEPTS, folder)
    return folder


@pytest.fixture()
def make_linker(kb_folder) -> Callable[..., Language]:
    """Make a pipeline with only a linker, which finds and links the names of the knowledge base."""
    settings = {"mentions": "dictionary", "evidence": {"dense": False}, "model": {"dim": 16}}
    return lambda kb=kb_folder, **others: linking_nlp(kb, **(settings | others))


@pytest.fixture()
def answering(monkeypatch) -> Callable[..., Any]:
    """Make a detector return these spans, or a linker these candidates, by text."""

    def patch(pipe: Any, answers: Mapping[str, Sequence[Any]]) -> Any:
        def scored(docs: Sequence[Doc], **_: Any) -> list[list[Any]]:
            return [list(answers[doc.text]) for doc in docs]

        def find(docs: Sequence[Doc]) -> Batch:
            links = [(i, link) for i, doc in enumerate(docs) for link in answers[doc.text]]
            spans = [docs[i].char_span(link.start, link.end, link.label) for i, link in links]
            candidates = [link.candidates for _, link in links]
            queries, owners = [Query("")] * len(links), [i for i, _ in links]
            return Batch(docs, spans, queries, owners, candidates=candidates)

        is_linker = hasattr(pipe, "link")
        monkeypatch.setattr(pipe, *(("find", find) if is_linker else ("score_spans", scored)))
        return pipe

    return patch


@pytest.fixture()
def detecting() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions", name="detector")
    return nlp


def linked(start: int, end: int, *scored: tuple[str, float], label: str = "D") -> Link:
    """A link to the first candidate."""
    candidates = tuple(Candidate(id_, score) for id_, score in scored)
    return Link(start, end, label, (candidates[0].id,), candidates)


def text(words: str, *gold: tuple[Any, ...]) -> AnnotatedText:
    return AnnotatedText("1", words, tuple(Mention(*mention) for mention in gold))


def figures(report: TuningReport) -> list[tuple[float, float | None]]:
    """The fitted and the cross-fitted figure of each step."""
    return [(one.fitted, one.cross_fitted and one.cross_fitted.value) for one in report.tuned]


def apply(step: Choice, texts: list[AnnotatedText]) -> Any:
    return step.choose(range(len(texts)))


def test_threshold_of_the_detector(detecting, answering):
    texts = [text("aa bb", (0, 2, "D"), (3, 5, "D")), text("cc dd", (0, 2, "D"))]
    found = {
        "aa bb": [(0, 1, "D", 0.9), (1, 2, "D", 0.3)],
        "cc dd": [(0, 1, "D", 0.9), (1, 2, "D", 0.2)],
    }
    detector = answering(detecting.get_pipe("detector"), found)
    report = tune_pipeline(detecting, texts)
    (tuned,) = report.tuned
    # At 0.25 and 0.3 all three are right and nothing else; 0.3 is closer to the default.
    assert tuned.chosen == DEFAULTS | {"threshold": 0.3}
    assert {key: detector.cfg[key] for key in DEFAULTS} == tuned.chosen
    assert (tuned.what, tuned.protocol, tuned.metric) == ("detector", "mention", "f1")
    # The second document with the 0.3 of the first: 1 of 1. The first with the 0.5 of the second:
    # 1 of 2. 2 right, 2 predicted, 3 gold.
    assert figures(report) == [(pytest.approx(100.0), pytest.approx(80.0))]
    written = tuned.to_json()
    assert (written["fitted"], written["cross_fitted"]) == (100.0, 80.0)  # rounded
    assert written["low"] <= 80.0 <= written["high"]


@pytest.mark.parametrize(
    ("words", "found", "gold", "chosen"),
    [
        # The second "aa" rises from 0.1 to 0.5, half the way to 0.9, and passes "xx".
        (
            "aa xx aa",
            [(0, 1, "D", 0.9), (1, 2, "D", 0.45), (2, 3, "D", 0.1)],
            [(0, 2, "D"), (6, 8, "D")],
            {"document_smoothing": 0.5},
        ),
        ("aa bb", [(0, 2, "D", 0.9), (0, 1, "D", 0.6)], [(0, 5, "D")], {"allow_overlap": False}),
    ],
)
def test_document_smoothing_and_overlap(detecting, answering, words, found, gold, chosen):
    answering(detecting.get_pipe("detector"), {words: found})
    report = tune_pipeline(detecting, [text(words, *gold)])
    assert report.tuned[0].chosen == DEFAULTS | chosen
    assert figures(report) == [(pytest.approx(100.0), None)]


def test_nil_threshold(make_linker, answering):
    nlp = make_linker()
    # The second gold id is retired; the link has another label, which is not compared.
    texts = [text("aa bb", (0, 2, "D", ("X:A",))), text("cc", (0, 2, "D", ("X:OLD",)))]
    found = {
        "aa bb": [linked(0, 2, ("X:A", 0.9)), linked(3, 5, ("X:B", 0.3))],
        "cc": [linked(0, 2, ("X:C", 0.6), label="Other")],
    }
    linker = answering(nlp.get_pipe("bioel_linker"), found)
    prepared = Prepared(nlp, texts)
    step = nil_step(prepared)
    # The first document with the 0.25 of the second: 1 right of 2; the second with 0.35: 1 of 1.
    # 2 right, 3 predicted, 2 gold.
    (figure,) = (one for (_, metric), one in cross_fit(prepared, [step]).items() if metric == "f1")
    assert (figure.protocol, figure.value) == ("end_to_end", pytest.approx(80.0))
    assert linker.cfg["nil_threshold"] == 0.25  # as before
    # From 0.35 to 0.6 both are right, and nothing else is linked.
    assert apply(step, texts) == {"nil_threshold": 0.35} and linker.cfg["nil_threshold"] == 0.35


def test_nothing_found_changes_nothing(make_linker, answering):
    nlp = make_linker()
    linker = answering(nlp.get_pipe("bioel_linker"), {"aa": []})
    linker.cfg["nil_threshold"] = 0.6
    texts = [text("aa", (0, 2, "D", ("X:A",)))]
    assert apply(nil_step(Prepared(nlp, texts)), texts) is None
    assert linker.cfg["nil_threshold"] == 0.6


def right(number: int) -> AnnotatedText:
    return AnnotatedText(str(number), "No alpha fever.", (Mention(3, 14, "D", ("X:A",)),))


def untouched(number: int) -> AnnotatedText:
    """Beta fever is not annotated, as in a corpus whose guidelines exclude a concept."""
    return AnnotatedText(str(number), "Beta fevers are a group.", ())


def found(nlp: Language, text: str) -> list[str]:
    doc = nlp(text)
    return [span.text for span in doc.spans["bioel"]]


def test_names_that_a_corpus_does_not_annotate_are_left_out_and_saved(make_linker, tmp_path):
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    assert found(nlp, "Beta fevers are a group.") == ["Beta fevers"]
    texts = [make(i) for i in range(10) for make in (right, untouched)]
    report = tune_pipeline(nlp, texts)
    assert report.tuned[1].chosen == {"left_out": 3, "threshold": 0.5}
    assert figures(report) == [(100.0, 100.0)] * 3
    assert linker.cfg["dictionary"]["exclude"] == ["beta fever"]
    nlp.to_disk(tmp_path / "saved")
    for once_more in (nlp, spacy.load(tmp_path / "saved")):
        assert found(once_more, "Beta fevers are a group.") == []
        assert found(once_more, "No alpha fever.") == ["alpha fever"]


def test_a_dictionary_without_a_gain_is_unchanged(make_linker):
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    texts = [right(i) for i in range(4)]
    chosen = apply(dictionary_step(Prepared(nlp, texts)), texts)
    assert chosen == {"left_out": 0, "threshold": 0.5}
    assert linker.cfg["dictionary"]["exclude"] == []
    # No name is found.
    texts = [text("None.", (0, 4, "D", ("X:A",)))] * 3
    assert apply(dictionary_step(Prepared(nlp, texts)), texts) is None
    report = tune_pipeline(nlp, texts)
    assert "the dictionary is unchanged: no name that it finds is correct" in report.remarks


CORPUS = [
    AnnotatedText("1", "alpha fever.", (Mention(0, 11, "D", ("X:A",)),)),
    AnnotatedText("2", "No beta-fever.", (Mention(3, 13, "D", ("X:B",)), Mention(0, 2, "D"))),
    AnnotatedText("3", "gamma ache", (Mention(0, 10, "D", ("X:OLD",)),)),
]


def test_weights(make_linker):
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    step = weights_step(Prepared(nlp, CORPUS))
    assert apply(step, CORPUS) == {"weights": "fusion", "mentions": 4}
    assert (step.protocol, step.metric) == ("gold", "accuracy@1_nil_ignored")
    assert linker.state.fusion is linker.fusion
    saved = linker.fusion.to_json(FEATURES)
    assert saved["direct"] == linker.fusion.direct.tolist()  # rounded as in the saved file


TEXTS = [
    AnnotatedText("1", "alpha fever", (Mention(0, 11, "D", ("X:A",)),)),
    AnnotatedText("2", "beta fever", (Mention(0, 10, "D", ("X:B",)),)),
]
SPANS = {text.text: [(0, 2, "D", 0.9)] for text in TEXTS}


def test_both_pipes_in_order(make_linker, answering):
    nlp = make_linker(mentions="auto")
    nlp.add_pipe("bioel_mentions", first=True)
    answering(nlp.get_pipe("bioel_mentions"), SPANS)
    report = tune_pipeline(nlp, TEXTS)
    assert [(one.what, one.protocol) for one in report.tuned] == [
        ("bioel_linker", "gold"),
        ("bioel_mentions", "mention"),
        ("bioel_linker", "end_to_end"),
    ]
    assert figures(report) == [(pytest.approx(100.0), pytest.approx(100.0))] * 3
    assert (report.documents, report.mentions, report.folds, report.remarks) == (2, 2, 2, ())
    written = json.loads(json.dumps(nlp.meta))["bioel"]["tuning"]
    assert written == report.to_json()
    assert written["tuned"][2]["chosen"] == {"nil_threshold": 0.25}


def test_nothing_to_tune_on(make_linker):
    evidence = dict.fromkeys(("exact", "alias_table", "ngram", "dense"), False) | {"prior": True}
    nlp = make_linker(mentions="ents", nil_threshold=0.4, evidence=evidence)
    with pytest.warns(UserWarning, match=r"\[W323\]"):
        report = tune_pipeline(nlp, TEXTS)
    assert report.tuned == ()
    assert report.remarks == (
        "the weights are unchanged: there is no string evidence",
        "the NIL threshold is unchanged: no mentions are found in plain text",
    )
    assert nlp.get_pipe("bioel_linker").cfg["nil_threshold"] == 0.4  # type: ignore[attr-defined]


def test_one_document_is_not_cross_fitted(make_linker):
    nlp = make_linker()
    nlp.meta["training_steps"] = 100
    report = tune_pipeline(nlp, TEXTS[:1])
    assert report.folds == 0
    assert [cross_fitted for _, cross_fitted in figures(report)] == [None, None]
    assert [one["cross_fitted"] for one in report.to_json()["tuned"]] == [None, None]
    assert len(report.remarks) == 2
    assert "optimistic if `spacy train` chose" in " ".join(report.remarks)
    assert "there is only one document: nothing is cross-fitted" in report.remarks


def test_mentions_without_ids_leave_the_linker_alone(make_linker, answering):
    nlp = make_linker()
    linker = answering(nlp.get_pipe("bioel_linker"), {"aa": [linked(0, 2, ("X:A", 0.9))]})
    report = tune_pipeline(nlp, [text("aa", (0, 2, "D"))] * 2)
    assert (report.tuned, linker.fusion) == ((), None)
    assert report.remarks == ("the linker is unchanged: no gold mention has an id",)


WORDS = "asthma gout rickets scurvy measles mumps rabies tetanus cholera typhus anthrax leprosy"


def test_settings_that_help_only_the_documents_they_were_chosen_on(make_linker, tmp_path):
    """Wrong names in one document each, and in two: excluding all of them looks perfect."""
    words = WORDS.split()
    once, twice = words[:8], words[8:]
    build_kb(
        [Concept(f"X:{name[:5]}", (name,)) for name in ("alpha fever", *words)], tmp_path / "kb"
    )
    nlp = make_linker(tmp_path / "kb")
    texts = [
        AnnotatedText(
            str(i),
            f"No alpha fever. Not {name}, and not {twice[i % 4]}.",
            (Mention(3, 14, "D", ("X:alpha",)),),
        )
        for i, name in enumerate(once)
    ]
    report = tune_pipeline(nlp, texts)
    linker: Any = nlp.get_pipe("bioel_linker")
    assert linker.cfg["dictionary"]["exclude"] == sorted(words)
    # On other documents, each has at least one wrong name: 8 right of 16, and 8 gold.
    for fitted, cross_fitted in figures(report)[1:]:
        assert fitted == 100.0
        assert cross_fitted is not None and cross_fitted <= 200 / 3 + 1e-6


def test_no_choice_sees_the_documents_on_which_it_is_measured(make_linker, monkeypatch):
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    prepared, before = Prepared(nlp, CORPUS), dict(linker.cfg)
    seen: list[Any] = []

    def choose(documents: Any) -> dict[str, Any]:
        assert linker.cfg == before and linker.fusion is None
        linker.cfg["nil_threshold"], linker.fusion = 0.9, default_fusion()
        seen.append([CORPUS[i].id for i in documents])
        return {}

    def predict(_: Any, texts: Any, *rest: Any) -> Any:
        assert linker.cfg["nil_threshold"] == 0.9 and linker.fusion is not None
        seen[-1].append([text.id for text in texts])
        return predict_links(_, texts, *rest)

    monkeypatch.setattr("spacy_bioel.plugins.evaluation.tune.predict_links", predict)
    figures = cross_fit(prepared, [Choice("linker", "end_to_end", "f1", choose)])
    assert {metric for _, metric in figures} == {"precision", "recall", "f1"}
    assert linker.cfg == before and linker.fusion is None
    assert sorted(held_out for *_, held_out in seen) == [["1"], ["2"], ["3"]]
    for *fitting, (held_out,) in seen:
        assert sorted([*fitting, held_out]) == ["1", "2", "3"]


# Choices by grid search.


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
    first, second = [counted(1, 2, 2)] * 3, [counted(2, 2, 2)] * 3
    # What is best everywhere is chosen; of equal settings, the first.
    assert choose_setting([FIRST, SECOND], [first, second], protocol="mention") == SECOND
    assert choose_setting([FIRST, SECOND], [first, first], protocol="mention") == FIRST


def test_percent_of_a_sum():
    # 3 of 4 right, 3 of 6 found: 2 * 0.75 * 0.5 / 1.25
    assert percent_of([counted(1, 2, 2), counted(2, 2, 4)], "mention", "f1") == pytest.approx(60.0)
    assert percent_of([counted(0, 0, 0)], "mention", "f1") == 0.0
