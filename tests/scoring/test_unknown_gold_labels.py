"""Mentions with labels that the documents do not annotate do not lower scores without a warning."""

import warnings

import pytest
from spacy.training import Example
from tiny import blank

from spacy_bioel.evaluation.scorers import make_mention_scorer_v1


@pytest.mark.parametrize(
    ("found", "annotates", "is_warned"),
    [
        (["Disease"], None, False),
        (["Disease", "Chemical"], None, True),
        (["Chemical"], None, True),
        (["Disease", "Chemical"], ["Disease"], False),  # they do not count
        (["Disease"] * 5 + ["Chemical"], None, False),  # few
        ([], None, False),
    ],
)
def test_labels_that_gold_lacks(found, annotates, is_warned):
    nlp = blank()
    reference, predicted = (
        nlp.make_doc("Fever, then more fever, after aspirin.") for _ in range(2)
    )
    reference.spans["bioel_gold"] = [reference.char_span(0, 5, label="Disease")]
    if annotates:
        reference.spans["bioel_gold"].attrs["annotates"] = annotates
    spans = [predicted.char_span(0, 5, label=label) for label in found]
    predicted.spans["bioel"] = spans
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_mention_scorer_v1()([Example(predicted, reference)])
    messages = [str(w.message) for w in caught]
    assert [m.startswith("[W382]") for m in messages] == [True] * is_warned
    assert all("(Chemical; gold: Disease)" in message for message in messages)
