"""The benchmark without training is scored by the protocols of `bioel evaluate`."""

import pytest

from benchmarks.no_labels import scores_of

GOLD = [{(0, 3, "A"), (0, 3, "B"), (5, 9, "C")}, {(0, 2, "")}]  # a composite, and one without id
FOUND = [{(0, 3, "A"), (5, 8, "C")}, {(0, 2, "D")}]


@pytest.mark.parametrize(
    "corpus, expected",
    [
        # Right, found and gold: spans 2, 3, 3; spans with ids 1, 3, 4; ids of documents 2, 3, 4.
        ("bc5cdr", {"mention": (2, 3, 3), "end_to_end": (1, 3, 4), "document": (2, 3, 4)}),
        ("hpo_dev", {"mention": (1, 3, 4), "document": (2, 3, 4)}),
        ("clinical", {"mention": (1, 3, 4), "overlap": (2, 3, 4), "document": (2, 3, 4)}),
        ("case_reports", {"document": (2, 3, 4)}),
    ],
)
def test_each_id_of_a_composite_counts_separately(corpus, expected):
    found = dict(scores_of(corpus, GOLD, FOUND))
    assert found.keys() == expected.keys()
    for protocol, (right, n_found, n) in expected.items():
        row = found[protocol]
        assert (row["precision"], row["n"]) == (round(100 * right / n_found, 2), n)
        assert row["recall"] == round(100 * right / n, 2)
        assert row["value"] == round(200 * right / (n_found + n), 2)


def test_nothing_found_is_zero():
    rows = dict(scores_of("hpo_dev", GOLD, [set(), set()]))
    assert {row["value"] for row in rows.values()} == {0.0}
