"""How reliable scores are, and what a threshold does, compared with answers by hand."""

import math

import pytest

from spacy_bioel.plugins.evaluation.calibration import Bin, curves_over_scores, reliability
from spacy_bioel.plugins.evaluation.evaluate import evaluate_links
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

GOLD = Mention(0, 4, "D", ("A",))


def canonical(id: str) -> str:
    return {"old": "A"}.get(id, id)


def test_reliability():
    def scored(start: int, score: float, id: str, *ids: str) -> Link:
        candidates = Candidate(id, score), Candidate(canonical(id), 0.1)  # of the same concept
        return Link(start, start + 4, "D", ids, candidates)

    text = AnnotatedText("1", "cold cold cold cold", (GOLD, Mention(5, 9, "D", ("A",))))
    links = [
        scored(0, 0.92, "old", "old"),  # right: the current id of "old" is A
        scored(5, 0.96, "B", "B"),
        scored(10, 0.3, "A"),  # NIL, and there is no gold mention
        scored(15, 1.0, "A", "A", "B"),  # has several ids
        Link(15, 19, "D"),  # without candidates
    ]
    of_all = reliability([text], [links], canonical=canonical)
    assert of_all.bins == (
        Bin(0.3, 0.0, 1, 0.3, 0.4),
        Bin(pytest.approx(0.94), 0.5, 2, 0.9, 1.0),
    )
    # (1 * |0.3 - 0| + 2 * |0.94 - 0.5|) / 3
    assert of_all.n == 3 and of_all.calibration_error == pytest.approx(1.18 / 3)
    on_borders = reliability([text], [links], canonical=canonical, on_gold_borders=True)
    assert [one.n for one in on_borders.bins] == [2]
    assert reliability([text], [[]]).calibration_error == 0.0
    (last,) = reliability([text], [[scored(0, 1.0, "A", "A")]]).bins
    assert (last.low, last.high) == (0.9, 1.0)


def linked(start: int, *scored: tuple[str, float]) -> Link:
    candidates = tuple(Candidate(id, score) for id, score in scored)
    return Link(start, start + 4, "D", tuple(id for id, _ in scored), candidates)


def test_scores_over_a_threshold():
    mentions = (GOLD, Mention(5, 9, "D", ("A", "B")), Mention(10, 14, "D"), Mention(15, 19, "D"))
    text = AnnotatedText("1", "cold cold cold cold", mentions)
    links = [
        linked(0, ("old", 0.6)),  # right
        linked(5, ("A", 0.9), ("B", 0.4)),  # right, with the score of B
        linked(10, ("C", 0.5)),  # wrong
        Link(15, 19, "D", ("C",)),  # wrong, and always kept
    ]
    settings = {"protocol": "end_to_end", "canonical": canonical}
    curves = curves_over_scores([text], [links], [0.7, 0.0, 0.5], **settings)
    f1 = curves.pop("f1")
    assert curves == {
        "precision": [(0.0, 50.0), (0.5, pytest.approx(100 / 3)), (0.7, 0.0)],
        "recall": [(0.0, 100.0), (0.5, 50.0), (0.7, 0.0)],
    }
    # The first point is the score of the evaluation.
    figures = evaluate_links([text], [links], protocols=["end_to_end"], canonical=canonical)
    assert f1[0] == (0.0, pytest.approx(200 / 3))
    of_all = {f.metric: f.value for f in figures if not f.label}
    assert {name: points[0][1] for name, points in curves.items()}.items() <= of_all.items()


def test_precision_is_undefined_if_nothing_is_linked():
    text, links = AnnotatedText("1", "cold", (GOLD,)), [linked(0, ("A", 0.6))]
    curves = curves_over_scores([text], [links], [0, 0.7], protocol="end_to_end")
    assert curves["recall"][1] == (0.7, 0.0)
    assert [math.isnan(value) for _, value in curves["precision"]] == [False, True]


def test_mentions_that_were_given():
    text = AnnotatedText("1", "cold cold", (GOLD, Mention(5, 9, "D")))
    links = [linked(0, ("A", 0.6)), linked(5, ("C", 0.5))]
    curves = curves_over_scores([text], [links], [0, 0.55, 1], protocol="gold")
    assert curves["accuracy@1"] == [(0, 100.0), (0.55, 100.0), (1, 0.0)]
    assert curves["nil_accuracy"] == [(0, 0.0), (0.55, 100.0), (1, 100.0)]
