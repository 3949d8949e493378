"""Figures of an evaluation, compared with answers by hand."""

from dataclasses import replace

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.evaluation.evaluate import Figure, evaluate_links
from spacy_bioel.scoring.protocols import PROTOCOLS
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

TEXTS = [
    AnnotatedText("1", "x" * 40, (Mention(0, 4, "D", ("A",)), Mention(5, 9, "C", ("OLD",)))),
    AnnotatedText("2", "x" * 40, (Mention(0, 4, "D", ("B",)), Mention(5, 9, "D", ()))),
]
LINKS = [
    [Link(0, 4, "D", ("A",)), Link(5, 9, "C", ("NEW",)), Link(20, 24, "D", ("A",))],
    [Link(0, 4, "D", ("X",))],
]


def renamed(id_: str) -> str:
    return {"OLD": "NEW"}.get(id_, id_)


def value(found: list[Figure], metric: str, label: str = "") -> Figure:
    return next(m for m in found if (m.metric, m.label) == (metric, label))


def one_document(*gold: tuple[str, ...]) -> list[AnnotatedText]:
    """Return a document with mentions at 0-4, 5-9 and so on, with these ids."""
    mentions = (Mention(5 * i, 5 * i + 4, "D", ids) for i, ids in enumerate(gold))
    return [AnnotatedText("1", "x" * 40, tuple(mentions))]


def candidates(*ids: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(id_, 1 - i / 100) for i, id_ in enumerate(ids))


def test_end_to_end_sums_over_documents():
    found = evaluate_links(TEXTS, LINKS, protocols=["end_to_end"], canonical=renamed)
    # right: A, NEW; predicted: 4; gold with an id: 3. P 2/4, R 2/3, F = 2 * 2 / (4 + 3)
    assert value(found, "precision").value == pytest.approx(50.0)
    assert value(found, "recall").value == pytest.approx(200 / 3)
    assert value(found, "f1").value == pytest.approx(400 / 7)
    assert value(found, "f1").n == 3
    assert value(found, "f1").details["nil_gold"] == 1

    # D: right A; predicted A, A at 20, X; gold A, B
    assert value(found, "precision", "D").value == pytest.approx(100 / 3)
    assert value(found, "recall", "D").value == pytest.approx(50.0)
    assert value(found, "f1", "C").value == pytest.approx(100.0)
    alone = evaluate_links(TEXTS, LINKS, protocols=["strict"], per_label=False)
    assert {m.protocol for m in alone} == {"end_to_end"}  # the name that the alias refers to
    assert {m.label for m in alone} == {""}
    uncanonical = evaluate_links(TEXTS, LINKS, protocols=["end_to_end"])
    assert value(uncanonical, "recall").value == pytest.approx(100 / 3)  # only A


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_identical_sets_give_100_and_none_0_over_all_gold(name):
    links = [
        [
            Link(m.start, m.end, m.label, m.ids, tuple(Candidate(i, 1.0) for i in m.ids))
            for m in text.mentions
        ]
        for text in TEXTS
    ]
    found = evaluate_links(TEXTS, links, protocols=[name])
    assert found
    assert {(m.value, m.low, m.high) for m in found} <= {(100.0, 100.0, 100.0)}
    found = evaluate_links(TEXTS, [[], []], protocols=[name], per_label=False)
    assert {m.value for m in found} == {0.0}
    n_with_nil = {"mention": 4, "mention_unlabelled": 4, "end_to_end_with_nil": 4}
    assert found[0].n == n_with_nil.get(name, 3)


def test_gold_mentions_report_what_the_kb_lacks():
    texts = one_document(("A",), ("GONE",), ("A", "GONE"), ())
    links = [[Link(0, 4, "D", ("A",), (Candidate("A", 0.9),)), Link(15, 19, "D", ("A",))]]
    found = evaluate_links(texts, links, protocols=["gold"], in_kb=lambda id_: id_ == "A")
    accuracy = value(found, "accuracy@1")
    assert (accuracy.value, accuracy.n) == (pytest.approx(100 / 3), 3)
    assert accuracy.details["missing_from_kb"] == 1
    assert accuracy.details["partly_missing_from_kb"] == 1
    assert accuracy.details["not_predicted"] == 2
    nil = value(found, "nil_accuracy")
    assert (nil.value, nil.n) == (0.0, 1)


def test_recall_is_over_distinct_concepts():
    texts = one_document(("B",))
    same = tuple(Candidate(f"OLD{i}", 0.9) for i in range(5))
    links = [[Link(0, 4, "D", ("A",), (*same, Candidate("B", 0.1)))]]
    current = {f"OLD{i}": "A" for i in range(5)} | {"B": "B", "A": "A"}
    found = evaluate_links(
        texts, links, protocols=["gold"], max_candidates=5, canonical=current.__getitem__
    )
    # OLD0 to OLD4 are one concept, so B is second and not sixth.
    assert value(found, "recall@5").value == 100.0


RANKED = one_document(("A",), ("B",), ("C",), ("E", "F"), ())
RANKED_LINKS = [
    [
        Link(0, 4, "D", ("A",), candidates("A", "X")),
        Link(5, 9, "D", ("X",), candidates("X", *"123456", "B")),  # eighth
        Link(10, 14, "D", ("X",), candidates("X", "Y")),
        Link(15, 19, "D", ("E",), candidates("E", "X", "F")),
        Link(20, 24, "D", ("A",), candidates("A")),
    ]
]
METRICS = (
    "accuracy@1", "accuracy@1_normalised", "recall@1", "recall@5", "recall@10", "mrr",
    "mrr_normalised",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Ranks 1, 8, none and, for both ids with one other concept before the second, 2.
        ("gold", (1 / 4, 1 / 3, 1 / 4, 2 / 4, 3 / 4, (1 + 1 / 8 + 1 / 2) / 4, (1 + 5 / 8) / 3)),
        # One of the ids is enough: ranks 1, 8, none, 1.
        ("gold_any", (2 / 4, 2 / 3, 2 / 4, 2 / 4, 3 / 4, (1 + 1 / 8 + 1) / 4, (2 + 1 / 8) / 3)),
    ],
)
def test_ranks_of_given_mentions(name, expected):
    found = evaluate_links(RANKED, RANKED_LINKS, protocols=[name], max_candidates=10)
    values = {m.metric: m.value / 100 for m in found if not m.label}
    assert [values[metric] for metric in METRICS] == pytest.approx(expected)
    assert value(found, "mrr").n == 4 and value(found, "mrr_normalised").n == 3


def test_no_normalised_metrics_without_candidates():
    links = [[Link(0, 4, "D", ("X",), candidates("X"))]]
    figures = evaluate_links(one_document(("A",)), links, protocols=["gold"], per_label=False)
    found = {m.metric: m.value for m in figures}
    assert found["mrr"] == 0.0 and "mrr_normalised" not in found


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(1, [1]), (3, [1]), (5, [1, 5]), (9, [1, 5]), (10, [1, 5, 10]), (64, [1, 5, 10])],
)
def test_no_recall_above_the_number_of_candidates(kept, expected):
    found = evaluate_links(RANKED, RANKED_LINKS, protocols=["gold", "mention"], max_candidates=kept)
    recalls = {m.metric for m in found if m.protocol == "gold" and m.metric.startswith("recall")}
    assert recalls == {f"recall@{k}" for k in expected}
    assert {m.candidates for m in found if m.protocol == "gold"} == {kept}
    assert {m.candidates for m in found if m.protocol == "mention"} == {0}


def test_bad_arguments_and_nothing_to_measure():
    with pytest.raises(BioelError, match=r"\[B080\].* 2 gold documents and 1 "):
        evaluate_links(TEXTS, LINKS[:1], protocols=["mention"])
    with pytest.raises(BioelError, match=r"\[B081\].*'f_score'.*end_to_end"):
        evaluate_links(TEXTS, LINKS, protocols=["f_score"])
    assert evaluate_links([], [], protocols=["mention"]) == []
    assert evaluate_links([AnnotatedText("1", "x")], [[]], protocols=["mention", "gold"]) == []


def test_interval_is_seeded_and_by_document():
    # One document all right, one all wrong, 10 mentions each: a resample holds them 2:0, 1:1 or
    # 0:2, so recall is 100, 50 or 0 with probability 1/4, 1/2, 1/4. By mention it would be 28-72.
    mentions = tuple(Mention(i, i + 1, "D", ("A",)) for i in range(10))
    texts = [AnnotatedText("1", "x" * 10, mentions), AnnotatedText("2", "x" * 10, mentions)]
    links = [[Link(m.start, m.end, "D", ("A",)) for m in mentions], []]
    first, second = (
        value(evaluate_links(texts, links, protocols=["end_to_end"], seed=3), "recall")
        for _ in range(2)
    )
    assert (first.value, first.low, first.high) == (50.0, 0.0, 100.0)
    assert first == second


def test_accuracy_with_and_without_the_nil_threshold():
    # Two mentions, both with the right candidate first; only one score is above the NIL threshold.
    best = (Candidate("A", 0.9),), (Candidate("B", 0.2),)
    links = [[Link(0, 4, "D", ("A",), best[0]), Link(5, 9, "D", (), best[1])]]
    found = evaluate_links(one_document(("A",), ("B",)), links, protocols=["gold"])
    for metric in ("accuracy@1", "accuracy@1_tie_optimistic", "accuracy@1_normalised"):
        assert value(found, metric).value == 50.0
    for metric in ("accuracy@1_nil_ignored", "accuracy@1_nil_ignored_normalised"):
        assert value(found, metric).value == 100.0


def test_labels_that_are_not_annotated_do_not_count():
    texts = [replace(text, annotates=("D",)) for text in TEXTS]
    texts[0] = replace(texts[0], mentions=texts[0].mentions[:1])
    links = [LINKS[0], [*LINKS[1], Link(5, 9, "C", ("X",))]]
    found = evaluate_links(texts, links, protocols=["end_to_end"], canonical=renamed)
    # right: A; predicted with the label D: 3; gold with an id: 2.
    assert value(found, "precision").value == pytest.approx(100 / 3)
    assert value(found, "recall").value == pytest.approx(50.0)
