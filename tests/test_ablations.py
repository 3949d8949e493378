"""The benchmark ablations: each rule can be turned off and is then on again, and what it earns."""

import pytest

from benchmarks import ablations, rules
from benchmarks.ablations import Data, off
from spacy_bioel.entities import composites
from spacy_bioel.types import AnnotatedText, Link, Mention


def test_all_rules_can_be_turned_off():
    before = vars(composites).copy()
    for rule in rules.RULES:
        with off(rule):
            pass
    assert vars(composites) == before
    assert len({rule.name for rule in rules.RULES}) == len(rules.RULES)


def test_a_rule_that_is_off_has_left_no_result():
    rule = next(rule for rule in rules.RULES if rule.name == "composites")
    assert composites.split_composite("breast and ovarian cancer")
    with off(rule):
        assert composites.Composites().prepare.__globals__["split_composite"]("a and b") == []
    assert composites.split_composite("breast and ovarian cancer")


class _Pipeline:
    docs = {"a": None, "b": None}


@pytest.mark.parametrize(
    ("ids", "points"),
    [(("G:1",), {}), ((), {"corpus": 33.33, "corpus Gene": 33.33}), (("G:2",), {"corpus": 50.0})],
)
def test_what_a_rule_earns_is_what_is_lost_without_it(ids, points):
    gold = {
        text: AnnotatedText(text, text, (Mention(0, 1, "Gene", ("G:1",)),), ("Gene", "Disease"))
        for text in "ab"
    }
    links = {text: [Link(0, 1, "Gene", ("G:1",))] for text in gold}
    count = ablations.partial(ablations._count_links, "end_to_end", str)
    data = Data("corpus", _Pipeline(), gold, ablations._F1, count, has_ids=False)
    data.counts = data.counted(links)
    earned = dict(data.earned({"a": [Link(0, 1, "Gene", ids)]}))
    assert points.items() <= {name: row["points"] for name, row in earned.items()}.items()
    assert bool(points) == bool(earned)
