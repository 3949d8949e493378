import pytest

from spacy_bioel.evaluation.protocols import PROTOCOLS
from spacy_bioel.types import Candidate, Link, Mention


def gold(start: int, end: int, *ids: str, label: str = "D") -> Mention:
    return Mention(start, end, label, ids)


def link(start: int, end: int, *ids: str, label: str = "D") -> Link:
    return Link(start, end, label, ids)


def count(protocol: str, golds: list[Mention], links: list[Link]) -> dict[str, float]:
    return PROTOCOLS[protocol].count(golds, links)


def right(found: dict[str, float]) -> tuple[float, float, float, float]:
    return (found["right_predicted"], found["predicted"], found["right_gold"], found["gold"])


def test_mentions_need_equal_offsets_and_label():
    golds = [gold(0, 4), gold(5, 9, label="C"), gold(10, 12)]
    # right; right offsets with the wrong label; an end off by one
    links = [link(0, 4, "X"), link(5, 9), link(10, 13)]
    assert right(count("mention", golds, links)) == (1, 3, 1, 3)
    assert right(count("mention_unlabelled", golds, links)) == (2, 3, 2, 3)


def test_strict_excludes_nil_gold_and_nil_predictions():
    golds = [gold(0, 4, "A"), gold(5, 9, "B"), gold(10, 12)]
    links = [link(0, 4, "A"), link(5, 9, "Z"), link(10, 12), link(20, 22), link(30, 31, "A")]
    # gold: A, B; predicted: A, Z, A at 30; right: the first A
    found = count("end_to_end", golds, links)
    assert right(found) == (1, 3, 1, 2)
    assert (found["nil_gold"], found["nil_predicted"]) == (1, 2)
    # with NIL: gold 3, predicted 5, and the NIL at 10-12 is right too
    assert right(count("end_to_end_with_nil", golds, links)) == (2, 5, 2, 3)


def test_strict_collapses_duplicates_and_ignores_labels():
    golds = [gold(0, 4, "A"), gold(0, 4, "A", label="C")]
    links = [link(0, 4, "A", label="X"), link(0, 4, "A")]
    assert right(count("end_to_end", golds, links)) == (1, 1, 1, 1)


def test_composites_strict_and_any():
    golds = [gold(0, 9, "A", "B"), gold(10, 12, "C", "D"), gold(20, 22, "E")]
    links = [link(0, 9, "A", "B"), link(10, 12, "C"), link(20, 22, "F")]
    assert right(count("end_to_end", golds, links)) == (1, 3, 1, 3)
    assert right(count("end_to_end_any", golds, links)) == (2, 3, 2, 3)


def test_any_id_counts_each_side_separately():
    # Two predictions agree with one gold mention: both are right, and 1 of 1 gold is found.
    found = count("end_to_end_any", [gold(0, 4, "A", "B")], [link(0, 4, "A"), link(0, 4, "B")])
    assert right(found) == (2, 2, 1, 1)


def test_partial_binary_pairs_one_to_one_by_longest_overlap():
    # Gold 0-10 overlaps 0-2 (2), 3-9 (6); gold 9-12 overlaps only 8-12 (3).
    golds = [gold(0, 10, "A"), gold(9, 12, "A"), gold(20, 25, "B")]
    links = [link(0, 2, "A"), link(3, 9, "A"), link(8, 12, "A"), link(20, 25, "C")]
    # Pairs, longest first: (0-10, 3-9), (9-12, 8-12). 0-2 finds gold 0-10 taken.
    assert right(count("partial_binary", golds, links)) == (2, 4, 2, 3)
    assert right(count("partial_binary", [gold(0, 5, "A")], [link(5, 8, "A")])) == (0, 1, 0, 1)


def test_fractional_compares_all_pairs_and_only_equal_ids():
    # systems.md: system [1,10], [2,2] against gold [1,3], [8,10] (inclusive), one id.
    golds = [gold(1, 4, "A"), gold(8, 11, "A")]
    links = [link(1, 11, "A"), link(2, 3, "A"), link(1, 4, "B")]
    found = count("partial_fractional", golds, links)
    # predicted: 3/10 (either gold) + 1/1 + 0; gold: 3/3 + 3/3, the second by [1,10]
    assert right(found) == (pytest.approx(1.3), 3, 2.0, 2)


def test_fractional_counts_duplicates_and_unmatched_mentions():
    golds = [gold(0, 10, "A"), gold(20, 30, "B"), gold(40, 50)]
    links = [link(5, 15, "A"), link(5, 15, "A"), link(20, 30, "A"), link(40, 50)]
    # predicted: 5/10 twice, 0; NIL left out. gold: 5/10, 0.
    assert right(count("partial_fractional", golds, links)) == (1.0, 3, 0.5, 2)


def test_document_ids_are_a_set():
    golds = [gold(0, 4, "A", "B"), gold(9, 12, "A"), gold(20, 22)]
    links = [link(50, 54, "A"), link(60, 64, "A"), link(70, 71, "C")]
    # gold {A, B}, predicted {A, C}
    assert right(count("document", golds, links)) == (1, 2, 1, 2)


def ranked(start: int, end: int, ids: tuple[str, ...], *scored: tuple[str, float]) -> Link:
    return Link(start, end, "D", ids, tuple(Candidate(id_, score) for id_, score in scored))


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        ([("A", 0.9), ("B", 0.9)], (1, 1, 0)),  # a tie, decided in favour of the gold id
        ([("B", 0.9), ("A", 0.9)], (0, 1, 0)),  # a tie, decided against it
        ([("B", 0.9), ("C", 0.9)], (0, 0, 0)),
        ([("A", 0.9), ("B", 0.8)], (1, 1, 1)),  # no tie
    ],
)
def test_ties(scored, expected):
    found = count("gold", [gold(0, 4, "A")], [ranked(0, 4, (scored[0][0],), *scored)])
    assert (found["right"], found["right_at_best"], found["right_at_worst"]) == expected


def test_widened_mention_finds_the_link_that_covers_it():
    golds = [gold(0, 10, "A"), gold(22, 25, "B")]
    links = [link(0, 10, "A"), link(20, 25, "B"), link(20, 25, "X", label="C")]
    found = count("gold", golds, links)
    assert (found["right"], found["widened"], found["not_predicted"]) == (2, 1, 0)
    # The link of another gold mention is not reused.
    found = count("gold", [gold(0, 10, "A"), gold(2, 5, "A")], [link(0, 10, "A")])
    assert (found["right"], found["not_predicted"]) == (1, 1)


def test_equal_offsets_are_told_apart_by_label():
    golds = [gold(0, 4, "A", label="C"), gold(0, 4, "B", label="D")]
    links = [link(0, 4, "B", label="D"), link(0, 4, "A", label="C")]
    assert count("gold", golds, links)["right"] == 2


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
def test_reciprocal_ranks(ids, ranking, strict, lenient):
    links = [ranked(0, 4, ("X",), *((id_, 0.5) for id_ in ranking))]
    golds = [gold(0, 4, *ids)]
    for protocol, expected in (("gold", strict), ("gold_any", lenient)):
        found = count(protocol, golds, links)
        assert found["reciprocal_ranks"] == pytest.approx(expected)
        assert found["among_candidates"] == (expected > 0)
        # recall@1 requires rank 1.
        assert found["recalled@1"] == (expected == 1.0)


def test_linked_ids_count_as_candidates():
    found = count("gold", [gold(0, 4, "A", "B")], [ranked(0, 4, ("A", "B"), ("C", 0.5))])
    assert (found["right"], found["among_candidates"]) == (1, 1)
    assert (found["reciprocal_ranks"], found["recalled@10"]) == (0.0, 0)
