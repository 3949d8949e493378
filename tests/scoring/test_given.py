"""Linking of given mentions."""

from __future__ import annotations

import pytest

from spacy_bioel.scoring.counts import count_gold_any, count_gold_strict
from spacy_bioel.types import Candidate, Link, Mention


def gold(start: int, end: int, *ids: str, label: str = "D") -> Mention:
    return Mention(start, end, label, ids)


def link(start: int, end: int, *ids: str, label: str = "D") -> Link:
    return Link(start, end, label, ids)


def ranked(start: int, end: int, ids: tuple[str, ...], *scored: tuple[str, float]) -> Link:
    return Link(start, end, "D", ids, tuple(Candidate(id_, score) for id_, score in scored))


def test_given_mentions_keep_their_denominator() -> None:
    golds = [gold(0, 4, "A"), gold(5, 9, "B"), gold(10, 12, "C"), gold(13, 15), gold(16, 18)]
    links = [
        ranked(0, 4, ("A",), ("A", 0.9), ("B", 0.5)),
        ranked(5, 9, ("A",), ("A", 0.9), ("X", 0.8), ("B", 0.5)),
        ranked(13, 15, (), ("A", 0.1)),
        ranked(16, 18, ("A",), ("A", 0.9)),
    ]
    found = count_gold_strict(golds, links)
    # A right; B wrong but third; C has no prediction. Of two NIL mentions one is left unlinked.
    assert found["gold"] == 3
    assert (found["right"], found["recalled@1"], found["recalled@5"]) == (1, 1, 2)
    assert found["not_predicted"] == 1
    assert (found["nil"], found["right_nil"]) == (2, 1)


def test_ranking_of_given_mentions_does_not_depend_on_the_threshold() -> None:
    found = count_gold_strict([gold(0, 4, "A")], [ranked(0, 4, (), ("A", 0.2))])
    assert (found["right"], found["right_nil_ignored"], found["recalled@1"]) == (0, 1, 1)


def test_given_composites() -> None:
    golds = [gold(0, 4, "A", "B"), gold(5, 9, "A", "B")]
    links = [
        ranked(0, 4, ("A",), ("A", 0.9), ("B", 0.8)),
        ranked(5, 9, ("A", "B"), ("A", 0.9), ("X", 0.8), ("B", 0.7)),
    ]
    strict = count_gold_strict(golds, links)
    # recall@1 of a composite of two looks at two places: A, B there; A, X in the second.
    assert (strict["right"], strict["recalled@1"], strict["recalled@5"]) == (1, 1, 2)
    lenient = count_gold_any(golds, links)
    assert (lenient["right"], lenient["recalled@1"], lenient["recalled@5"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        ([("A", 0.9), ("B", 0.9)], (1, 1, 0)),  # a toss-up that went well
        ([("B", 0.9), ("A", 0.9)], (0, 1, 0)),  # and one that did not
        ([("B", 0.9), ("C", 0.9)], (0, 0, 0)),
        ([("A", 0.9), ("B", 0.8)], (1, 1, 1)),  # no tie
    ],
)
def test_ties(scored: list[tuple[str, float]], expected: tuple[int, int, int]) -> None:
    found = count_gold_strict([gold(0, 4, "A")], [ranked(0, 4, (scored[0][0],), *scored)])
    assert (found["right"], found["right_at_best"], found["right_at_worst"]) == expected


def test_widened_mention_finds_the_link_that_covers_it() -> None:
    golds = [gold(0, 10, "A"), gold(22, 25, "B")]
    links = [link(0, 10, "A"), link(20, 25, "B"), link(20, 25, "X", label="C")]
    found = count_gold_strict(golds, links)
    assert (found["right"], found["widened"], found["not_predicted"]) == (2, 1, 0)


def test_a_covering_link_of_another_gold_mention_is_not_borrowed() -> None:
    found = count_gold_strict([gold(0, 10, "A"), gold(2, 5, "A")], [link(0, 10, "A")])
    assert (found["right"], found["not_predicted"]) == (1, 1)


def test_equal_offsets_are_told_apart_by_label() -> None:
    golds = [gold(0, 4, "A", label="C"), gold(0, 4, "B", label="D")]
    links = [link(0, 4, "B", label="D"), link(0, 4, "A", label="C")]
    assert count_gold_strict(golds, links)["right"] == 2


@pytest.mark.parametrize(
    ("ids", "ranking", "strict", "lenient"),
    [
        (("A",), "AXY", 1.0, 1.0),
        (("A",), "XYA", 1 / 3, 1 / 3),
        (("A",), "XYZ", 0.0, 0.0),
        (("A", "B"), "BAX", 1.0, 1.0),  # the ids in any order, and nothing else before the last
        (("A", "B"), "AXB", 1 / 2, 1.0),
        (("A", "B"), "XAYB", 1 / 3, 1 / 2),
        (("A", "B"), "XYB", 0.0, 1 / 3),
        (("A", "B", "C"), "CBXXA", 1 / 3, 1.0),
    ],
)
def test_reciprocal_ranks(
    ids: tuple[str, ...], ranking: str, strict: float, lenient: float
) -> None:
    links = [ranked(0, 4, ("X",), *((id_, 0.5) for id_ in ranking))]
    golds = [gold(0, 4, *ids)]
    for count, expected in ((count_gold_strict, strict), (count_gold_any, lenient)):
        found = count(golds, links)
        assert found["reciprocal_ranks"] == pytest.approx(expected)
        assert found["among_candidates"] == (expected > 0)
        # Rank one is what recall@1 asks for.
        assert found["recalled@1"] == (expected == 1.0)


def test_what_was_linked_was_a_candidate() -> None:
    found = count_gold_strict([gold(0, 4, "A", "B")], [ranked(0, 4, ("A", "B"), ("C", 0.5))])
    assert (found["right"], found["among_candidates"]) == (1, 1)
    assert (found["reciprocal_ranks"], found["recalled@10"]) == (0.0, 0)
