"""Each protocol counts as its definition says, compared with answers by hand."""

import pytest

from spacy_bioel.scoring.protocols import PROTOCOLS
from spacy_bioel.types import Candidate, Link, Mention


def spans(text: str) -> list[Mention]:
    """Return mentions written as "0-4=A|B/C": the ids A and B and the label C, by default D."""
    found = []
    for one in text.split():
        place, _, label = one.partition("/")
        offsets, _, ids = place.partition("=")
        start, end = map(int, offsets.split("-"))
        found.append(Mention(start, end, label or "D", tuple(filter(None, ids.split("|")))))
    return found


def count(protocol: str, gold: str, links: str) -> dict[str, float]:
    linked = [Link(m.start, m.end, m.label, m.ids) for m in spans(links)]
    return PROTOCOLS[protocol].count(spans(gold), linked)


@pytest.mark.parametrize(
    ("protocol", "gold", "links", "right_predicted", "predicted", "right_gold", "n_gold"),
    [
        # Right; right offsets with the wrong label; an end off by one.
        ("mention", "0-4 5-9/C 10-12", "0-4=X 5-9 10-13", 1, 3, 1, 3),
        ("mention_unlabelled", "0-4 5-9/C 10-12", "0-4=X 5-9 10-13", 2, 3, 2, 3),
        # Gold: A, B; predicted: A, Z, A at 30; right: the first A. NIL is left out.
        ("end_to_end", "0-4=A 5-9=B 10-12", "0-4=A 5-9=Z 10-12 20-22 30-31=A", 1, 3, 1, 2),
        # With NIL: gold 3, predicted 5, and the NIL at 10-12 is right too.
        ("end_to_end_with_nil", "0-4=A 5-9=B 10-12", "0-4=A 5-9=Z 10-12 20-22 30-31=A", 2, 5, 2, 3),
        # Duplicates collapse, and labels do not matter.
        ("end_to_end", "0-4=A 0-4=A/C", "0-4=A/X 0-4=A", 1, 1, 1, 1),
        # Of composites, all ids, or any.
        ("end_to_end", "0-9=A|B 10-12=C|D 20-22=E", "0-9=A|B 10-12=C 20-22=F", 1, 3, 1, 3),
        ("end_to_end_any", "0-9=A|B 10-12=C|D 20-22=E", "0-9=A|B 10-12=C 20-22=F", 2, 3, 2, 3),
        # Two predictions agree with one gold mention: both are right, and 1 of 1 gold is found.
        ("end_to_end_any", "0-4=A|B", "0-4=A 0-4=B", 2, 2, 1, 1),
        ("end_to_end_any", "0-4=A 0-4=C", "0-4=A 0-4=C", 2, 2, 2, 2),
        # Pairs are one to one, the longest overlap first: (0-10, 3-9), (9-12, 8-12). 0-2 finds
        # gold 0-10 taken.
        ("partial_binary", "0-10=A 9-12=A 20-25=B", "0-2=A 3-9=A 8-12=A 20-25=C", 2, 4, 2, 3),
        ("partial_binary", "0-5=A", "5-8=A", 0, 1, 0, 1),
        ("partial_binary", "0-9=A", "0-5=A 0-5=A", 1, 1, 1, 1),  # duplicates collapse
        # Fractional: all pairs, only with equal ids. systems.md: system [1,10], [2,2] against gold
        # [1,3], [8,10] (inclusive), one id. Predicted: 3/10 (either gold) + 1/1 + 0; gold: 3/3 +
        # 3/3, the second by [1,10].
        ("partial_fractional", "1-4=A 8-11=A", "1-11=A 2-3=A 1-4=B", 1.3, 3, 2.0, 2),
        # Predicted: 5/10 twice, 0; NIL left out. Gold: 5/10, 0.
        ("partial_fractional", "0-10=A 20-30=B 40-50", "5-15=A 5-15=A 20-30=A 40-50", 1, 3, 0.5, 2),
        # Of a document, gold {A, B}, predicted {A, C}.
        ("document", "0-4=A|B 9-12=A 20-22", "50-54=A 60-64=A 70-71=C", 1, 2, 1, 2),
    ],
)
def test_counts(protocol, gold, links, right_predicted, predicted, right_gold, n_gold):
    found = count(protocol, gold, links)
    assert found["right_predicted"] == pytest.approx(right_predicted)
    assert found["right_gold"] == pytest.approx(right_gold)
    assert (found["predicted"], found["gold"]) == (predicted, n_gold)


def test_mentions_without_ids_are_counted_apart():
    found = count("end_to_end", "0-4=A 10-12", "0-4=A 10-12 20-22")
    assert (found["nil_gold"], found["nil_predicted"]) == (1, 2)


@pytest.mark.parametrize(
    ("gold", "links", "right", "widened", "not_predicted"),
    [
        ("0-10=A 22-25=B", "0-10=A 20-25=B 20-25=X/C", 2, 1, 0),  # covered by a wider link
        ("22-25=B", "18-25=X 20-25=B", 1, 1, 0),  # by the shortest of them
        ("0-10=A 2-5=A", "0-10=A", 1, 0, 1),  # the link of another gold mention is not reused
        ("0-4=A/C 0-4=B/D", "0-4=B/D 0-4=A/C", 2, 0, 0),  # equal offsets, told apart by label
    ],
)
def test_given_mentions_find_their_links(gold, links, right, widened, not_predicted):
    found = count("gold", gold, links)
    counted = (found["right"], found["widened"], found["not_predicted"])
    assert counted == (right, widened, not_predicted)


def ranked(ids: str, candidates: str, scores: list[float] | None = None) -> Link:
    scores = scores or [0.5] * len(candidates)
    found = tuple(Candidate(id, score) for id, score in zip(candidates, scores, strict=True))
    return Link(0, 4, "D", tuple(ids), found)


@pytest.mark.parametrize(
    ("candidates", "scores", "expected"),
    [
        ("AB", [0.9, 0.9], (1, 1, 0)),  # a tie, decided in favour of the gold id
        ("BA", [0.9, 0.9], (0, 1, 0)),  # a tie, decided against it
        ("BC", [0.9, 0.9], (0, 0, 0)),
        ("AB", [0.9, 0.8], (1, 1, 1)),  # no tie
    ],
)
def test_ties(candidates, scores, expected):
    link = ranked(candidates[0], candidates, scores)
    found = PROTOCOLS["gold"].count(spans("0-4=A"), [link])
    assert (found["right"], found["right_at_best"], found["right_at_worst"]) == expected


@pytest.mark.parametrize(
    ("ids", "ranking", "strict", "lenient"),
    [
        ("A", "AXY", 1.0, 1.0),
        ("A", "XYA", 1 / 3, 1 / 3),
        ("A", "XYZ", 0.0, 0.0),
        ("A|B", "BAX", 1.0, 1.0),  # the ids in any order, and nothing else before the last
        ("A|B", "AXB", 1 / 2, 1.0),
        ("A|B", "XAYB", 1 / 3, 1 / 2),
        ("A|B", "XYB", 0.0, 1 / 3),
        ("A|B|C", "CBXXA", 1 / 3, 1.0),
    ],
)
def test_reciprocal_ranks(ids, ranking, strict, lenient):
    for protocol, expected in (("gold", strict), ("gold_any", lenient)):
        found = PROTOCOLS[protocol].count(spans(f"0-4={ids}"), [ranked("X", ranking)])
        assert found["reciprocal_ranks"] == pytest.approx(expected)
        assert found["among_candidates"] == (expected > 0)
        # recall@1 requires rank 1.
        assert found["recalled@1"] == (expected == 1.0)


def test_linked_ids_count_as_candidates():
    found = PROTOCOLS["gold"].count(spans("0-4=A|B"), [ranked("AB", "C")])
    assert (found["right"], found["among_candidates"]) == (1, 1)
    assert (found["reciprocal_ranks"], found["recalled@10"]) == (0.0, 0)
