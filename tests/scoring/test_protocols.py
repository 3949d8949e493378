from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.scoring.measure import Measurement, bootstrap_sums
from spacy_bioel.scoring.protocols import PROTOCOLS, evaluate
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


def value(found: list[Measurement], metric: str, label: str = "") -> Measurement:
    return next(m for m in found if (m.metric, m.label) == (metric, label))


def test_end_to_end_sums_over_documents() -> None:
    found = evaluate(TEXTS, LINKS, protocols=["end_to_end"], canonical=renamed)
    # right: A, NEW; predicted: 4; gold with an id: 3. P 2/4, R 2/3, F = 2 * 2 / (4 + 3)
    assert value(found, "precision").value == pytest.approx(50.0)
    assert value(found, "recall").value == pytest.approx(200 / 3)
    assert value(found, "f1").value == pytest.approx(400 / 7)
    assert value(found, "f1").n == 3
    assert value(found, "f1").details["nil_gold"] == 1


def test_ids_are_compared_after_the_canonicaliser() -> None:
    found = evaluate(TEXTS, LINKS, protocols=["end_to_end"])
    assert value(found, "recall").value == pytest.approx(100 / 3)  # only A


def test_rows_per_label() -> None:
    found = evaluate(TEXTS, LINKS, protocols=["end_to_end"], canonical=renamed)
    # D: right A; predicted A, A at 20, X; gold A, B
    assert value(found, "precision", "D").value == pytest.approx(100 / 3)
    assert value(found, "recall", "D").value == pytest.approx(50.0)
    assert value(found, "f1", "C").value == pytest.approx(100.0)
    alone = evaluate(TEXTS, LINKS, protocols=["end_to_end"], per_label=False)
    assert {m.label for m in alone} == {""}


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_identical_sets_give_100(name: str) -> None:
    links = [
        [
            Link(m.start, m.end, m.label, m.ids, tuple(Candidate(i, 1.0) for i in m.ids))
            for m in text.mentions
        ]
        for text in TEXTS
    ]
    found = evaluate(TEXTS, links, protocols=[name])
    assert found
    assert {(m.value, m.low, m.high) for m in found} <= {(100.0, 100.0, 100.0)}


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_no_predictions_give_0_and_keep_the_denominator(name: str) -> None:
    found = evaluate(TEXTS, [[], []], protocols=[name], per_label=False)
    assert {m.value for m in found} == {0.0}
    mentions, linked, with_id = 4, 3, 3
    expected = {"mention": mentions, "mention_unlabelled": mentions, "end_to_end_with_nil": 4}
    assert found[0].n == expected.get(name, linked if "gold" not in name else with_id)


def test_gold_mentions_report_what_the_kb_lacks() -> None:
    texts = [
        AnnotatedText(
            "1",
            "x" * 40,
            (
                Mention(0, 4, "D", ("A",)),
                Mention(5, 9, "D", ("GONE",)),
                Mention(10, 14, "D", ("A", "GONE")),
                Mention(15, 19, "D", ()),
            ),
        )
    ]
    links = [[Link(0, 4, "D", ("A",), (Candidate("A", 0.9),)), Link(15, 19, "D", ("A",))]]
    found = evaluate(texts, links, protocols=["gold"], in_kb=lambda id_: id_ == "A")
    accuracy = value(found, "accuracy@1")
    assert (accuracy.value, accuracy.n) == (pytest.approx(100 / 3), 3)
    assert accuracy.details["missing_from_kb"] == 1
    assert accuracy.details["partly_missing_from_kb"] == 1
    assert accuracy.details["not_predicted"] == 2
    nil = value(found, "nil_accuracy")
    assert (nil.value, nil.n) == (0.0, 1)


def test_recall_is_over_distinct_concepts() -> None:
    texts = [AnnotatedText("1", "x" * 9, (Mention(0, 4, "D", ("B",)),))]
    same = tuple(Candidate(f"OLD{i}", 0.9) for i in range(5))
    links = [[Link(0, 4, "D", ("A",), (*same, Candidate("B", 0.1)))]]
    found = evaluate(
        texts, links, protocols=["gold"], canonical=lambda i: "A" if i.startswith("OLD") else i
    )
    # OLD0 to OLD4 are one concept, so B is second and not sixth.
    assert value(found, "recall@5").value == 100.0


def test_alias_is_reported_by_its_proper_name() -> None:
    assert {m.protocol for m in evaluate(TEXTS, LINKS, protocols=["strict"])} == {"end_to_end"}


def test_bad_arguments() -> None:
    with pytest.raises(BioelError, match=r"\[B080\].* 2 gold documents and 1 "):
        evaluate(TEXTS, LINKS[:1], protocols=["mention"])
    with pytest.raises(BioelError, match=r"\[B081\].*'f_score'.*end_to_end"):
        evaluate(TEXTS, LINKS, protocols=["f_score"])


def test_nothing_to_measure() -> None:
    assert evaluate([], [], protocols=["mention"]) == []
    assert evaluate([AnnotatedText("1", "x")], [[]], protocols=["mention", "gold"]) == []


def test_interval_is_seeded_and_by_document() -> None:
    # One document all right, one all wrong, 10 mentions each: a resample holds them 2:0, 1:1 or
    # 0:2, so recall is 100, 50 or 0 with probability 1/4, 1/2, 1/4. By mention it would be 28-72.
    mentions = tuple(Mention(i, i + 1, "D", ("A",)) for i in range(10))
    texts = [AnnotatedText("1", "x" * 10, mentions), AnnotatedText("2", "x" * 10, mentions)]
    links = [[Link(m.start, m.end, "D", ("A",)) for m in mentions], []]
    first, second = (
        value(evaluate(texts, links, protocols=["end_to_end"], seed=3), "recall") for _ in range(2)
    )
    assert (first.value, first.low, first.high) == (50.0, 0.0, 100.0)
    assert first == second


def test_bootstrap_sums_draw_as_many_documents_as_there_are() -> None:
    sums = bootstrap_sums(np.array([[1.0, 5.0], [1.0, 7.0], [1.0, 9.0]]), n_resamples=120, seed=1)
    assert sums.shape == (120, 2)
    assert set(sums[:, 0]) == {3.0}
    assert sums[:, 1].min() >= 15.0 and sums[:, 1].max() <= 27.0
    assert len(set(sums[:, 1])) > 3


def test_accuracy_ranks_and_accuracy_with_nil_decides() -> None:
    # Two mentions, both with the right candidate first; the linker was sure of one.
    texts = [AnnotatedText("1", "x" * 9, (Mention(0, 4, "D", ("A",)), Mention(5, 9, "D", ("B",))))]
    best = (Candidate("A", 0.9),), (Candidate("B", 0.2),)
    links = [[Link(0, 4, "D", ("A",), best[0]), Link(5, 9, "D", (), best[1])]]
    found = evaluate(texts, links, protocols=["gold"])
    assert value(found, "accuracy@1").value == 100.0
    assert value(found, "accuracy@1_with_nil").value == 50.0
