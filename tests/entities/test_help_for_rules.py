"""What the contract of entities has to help rules of users."""

import pytest
from tiny import blank

from spacy_bioel.entities import EntityRules, Query, RuleSet, add_spans
from spacy_bioel.explanation import Trace

TEXT = "Stain of Abcam ab7260 and sc-8017."
ALL, NUMBER, OTHER = (9, 21), (15, 21), (26, 33)


@pytest.mark.parametrize(
    ("places", "given", "found"),
    [
        ([NUMBER, ALL], [], ["Abcam ab7260"]),  # the longest
        ([(16, 20)], [], ["ab7260"]),  # as whole tokens
        ([ALL], [("Gene", 0.9)], ["Abcam ab7260"]),
        ([ALL], [("Gene", 1)], ["ab7260"]),  # a user has forced it
        ([ALL], [("Antibody", 1)], ["Abcam ab7260"]),
        ([OTHER], [("Gene", 0.9)], ["ab7260", "sc-8017"]),
    ],
)
def test_spans_are_added_in_the_place_of_others(places, given, found):
    doc = blank().make_doc(TEXT)
    token = doc.char_span(*NUMBER)
    before = [(token.start, token.end, *one) for one in given]
    after = add_spans(doc, before, places, "Antibody")
    assert [doc[start:end].text for start, end, *_ in after] == found


def test_a_query_is_normalised():
    query = Query.of("Abcam AB-7260")
    assert (query.whole, query.text) == ("abcam ab 7260", "Abcam AB-7260")


class Silent(EntityRules):
    def find(self, docs, spans, traces):
        return [
            add_spans(doc, of, [OTHER], "Antibody") for doc, of in zip(docs, spans, strict=True)
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
def test_a_trace_has_the_name_of_rules_that_do_not_say_why(rules, reason):
    doc = blank().make_doc(TEXT)
    trace, place = Trace(doc), doc.char_span(*OTHER)
    before = [(place.start, place.end, "Gene", 0.5)]
    (after,) = RuleSet({"mine": rules}).find([doc], [before], [trace])
    found = [(one.label, one.is_mention, one.reason) for one in trace.considered(after)]
    assert found == [("Antibody", True, reason), ("Gene", False, reason)]
