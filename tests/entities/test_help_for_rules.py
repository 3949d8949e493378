"""Functions that help users to write rules: `add_spans`, `Query.of`, and traces."""

import pytest
from tiny import blank

from spacy_bioel.entities import EntityRules, Query, add_spans
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.explanation import Trace

TEXT = "Stain of Abcam ab7260 and sc-8017."
ALL, NUMBER, OTHER = (9, 21), (15, 21), (26, 33)


@pytest.mark.parametrize(
    ("places", "given", "expected"),
    [
        ([NUMBER, ALL], [], ["Abcam ab7260"]),  # the longest wins
        ([(16, 20)], [], ["ab7260"]),  # widened to whole tokens
        ([ALL], [("Gene", 0.9)], ["Abcam ab7260"]),
        ([ALL], [("Gene", 1)], ["ab7260"]),  # forced by a user
        ([ALL], [("Antibody", 1)], ["Abcam ab7260"]),
        ([OTHER], [("Gene", 0.9)], ["ab7260", "sc-8017"]),
    ],
)
def test_added_spans_replace_others(places, given, expected):
    doc = blank().make_doc(TEXT)
    token = doc.char_span(*NUMBER)
    before = [(token.start, token.end, *label_and_score) for label_and_score in given]
    after = add_spans(doc, before, places, "Antibody")
    assert [doc[start:end].text for start, end, *_ in after] == expected


def test_a_query_is_normalised():
    query = Query.of("Abcam AB-7260")
    assert (query.whole, query.text) == ("abcam ab 7260", "Abcam AB-7260")


class Silent(EntityRules):
    def find(self, docs, spans, traces):
        return [
            add_spans(doc, doc_spans, [OTHER], "Antibody")
            for doc, doc_spans in zip(docs, spans, strict=True)
        ]


class Talking(Silent):
    def find(self, docs, spans, traces):
        found = super().find(docs, spans, traces)
        for trace, before, after in zip(traces, spans, found, strict=True):
            trace.changed(before, after, "a number")
        return found


@pytest.mark.parametrize(
    ("rules", "reason"), [(Silent(), "by the rules mine"), (Talking(), "a number")]
)
def test_a_trace_names_rules_that_do_not_give_a_reason(rules, reason):
    doc = blank().make_doc(TEXT)
    trace, place = Trace(doc), doc.char_span(*OTHER)
    before = [(place.start, place.end, "Gene", 0.5)]
    (after,) = RuleSet({"mine": rules}).find([doc], [before], [trace])
    considered = [(c.label, c.is_mention, c.reason) for c in trace.considered(after)]
    assert considered == [("Antibody", True, reason), ("Gene", False, reason)]
