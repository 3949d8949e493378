"""The selection of mentions among scored spans."""

import random
from itertools import combinations
from math import log

import pytest
from cases import table
from tiny import blank

from spacy_bioel.found import FoundSpans
from spacy_bioel.mentions.find import (
    add_defined_forms,
    add_words,
    drop_overlaps,
    drop_words,
    smooth_over_document,
)
from spacy_bioel.text.normalize import has_whole_brackets
from spacy_bioel.types import ScoredSpan

DOC = blank().make_doc("")  # for functions that read no text


@table("overlaps")
def test_drop_overlaps(threshold, mentions, kept):
    mentions = [*map(tuple, mentions)]
    for order in (mentions, mentions[::-1]):
        assert drop_overlaps(DOC, order, threshold=threshold) == [mentions[i] for i in kept]


def brute_force(mentions: list[ScoredSpan], threshold: float) -> tuple[float, int]:
    """Return the greatest sum of log-odds above the threshold of all subsets without overlaps, and
    the most tokens of the subsets with this sum."""
    floor = log(threshold / (1 - threshold))
    best = (0.0, 0)
    for size in range(1, len(mentions) + 1):
        for subset in combinations(mentions, size):
            tokens = [token for start, end, *_ in subset for token in range(start, end)]
            if len(tokens) == len(set(tokens)):
                weight = sum(log(p / (1 - p)) - floor for *_, p in subset)
                best = max(best, (round(weight, 6), len(tokens)))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_no_subset_is_better(seed):
    rng = random.Random(seed)
    threshold = rng.choice([0.1, 0.5, 0.8])
    places = [(start, start + rng.randint(1, 4)) for start in rng.choices(range(8), k=9)]
    # Few different probabilities, so that there are ties.
    mentions = [(*place, rng.choice("AB"), rng.choice([0.8, 0.9, 0.95])) for place in places]
    kept = drop_overlaps(DOC, mentions, threshold=threshold)
    tokens = [token for start, end, *_ in kept for token in range(start, end)]
    assert len(tokens) == len(set(tokens)) and set(kept) <= set(mentions)
    assert kept == sorted(kept)
    floor = log(threshold / (1 - threshold))
    weight = sum(log(p / (1 - p)) - floor for *_, p in kept)
    expected, n_tokens = brute_force(mentions, threshold)
    assert weight == pytest.approx(expected, abs=1e-5)
    assert len(tokens) == n_tokens
    shuffled = rng.sample(mentions, len(mentions))
    assert drop_overlaps(DOC, shuffled, threshold=threshold) == kept


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(0.0, [0.9, 0.1, 0.2, 0.3]), (0.5, [0.9, 0.5, 0.2, 0.3]), (1.0, [0.9, 0.9, 0.2, 0.3])],
)
def test_probabilities_of_the_same_words_are_smoothed(weight, expected):
    doc = blank().make_doc("Aspirin, aspirin and morphine")
    spans = [(0, 1, "Drug", 0.9), (2, 3, "Drug", 0.1), (2, 3, "Sign", 0.2), (4, 5, "Drug", 0.3)]
    smoothed = smooth_over_document(doc, spans, weight=weight)
    assert [p for *_, p in smoothed] == pytest.approx(expected)
    assert [span[:3] for span in smoothed] == [span[:3] for span in spans]


def test_brackets():
    texts = {"[3H](+)-A": True, "IGF-I) receptor": False, "disease (COPD": False, ")(": False}
    assert {text: has_whole_brackets(text) for text in texts} == texts


def test_included_and_excluded_words():
    doc = blank()("Patients with renal failure in 2015, outpatients too")
    spans = [(0, 4, "Disease", 0.9), (2, 4, "Disease", 0.8), (5, 6, "Gene", 0.7)]
    include = {"Species": ["patients", "renal"], "Drug": ["nowhere"], "Gene": []}
    included = [(0, 1, "Species", 1.0), (2, 3, "Species", 1.0)]
    assert drop_words(doc, add_words(doc, spans, include=include), words={"2015"}) == included
    assert drop_words(doc, spans, words={"renal failure"}) == [spans[0], spans[2]]
    # A name may continue on the next line, but not after a blank line.
    doc = blank().make_doc("breast\ncancer, heart \n attack, breast\n\ncancer")
    heart = [(4, 7, "Disease", 0.9)]
    (found,) = add_words(doc, [], include={"X": ["Breast cancer"]})
    assert (doc[found[0] : found[1]].text, found[2]) == ("breast\ncancer", "X")
    assert drop_words(doc, heart, words={"heart attack"}) == []


def test_short_forms_of_mentions_are_mentions():
    doc = blank()("Acute kidney injury (AKI) and AKI, AKI care, tumor necrosis factor (TNF).")
    injury, taken, longer = (0, 3, "Disease", 0.9), (7, 8, "Gene", 0.6), (9, 11, "Other", 0.5)
    texts = [doc[start:end].text for start, end, *_ in (injury, taken, longer)]
    assert texts == ["Acute kidney injury", "AKI", "AKI care"]
    short = [(4, 5, "Disease", 0.9), (7, 8, "Disease", 0.9)]
    found, empty = FoundSpans(doc, [injury, taken, longer]), FoundSpans(doc)
    add_defined_forms(found)
    add_defined_forms(empty)
    assert (found.spans, empty.spans) == ([injury, *short, longer], [])
    excluding = FoundSpans(doc, [injury, longer], excluded={"aki"})
    add_defined_forms(excluding)
    assert excluding.spans == [injury, longer]
