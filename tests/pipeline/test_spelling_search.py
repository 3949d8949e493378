"""The n-gram search, compared with brute-force TF-IDF cosines."""

from math import log, sqrt

import pytest

from spacy_bioel.kb import spelling as ngrams
from spacy_bioel.kb.columns import KbColumn
from spacy_bioel.kb.spelling import NgramIndex, build_postings

NAMES = ["renal failure", "renal failures", "heart failure", "aspirin", "asprin", "x", "αβ gamma"]


def grams(name: str) -> set[bytes]:
    """3-grams of UTF-8 bytes within words that are padded with one space on each side."""
    words = [f" {word} ".encode() for word in name.split()]
    return {word[i : i + 3] for word in words for i in range(len(word) - 2)}


def cosine(query: str, name: str) -> float:
    frequency = {g: sum(g in grams(n) for n in NAMES) for n in [query, *NAMES] for g in grams(n)}
    weight = {g: log((1 + len(NAMES)) / (1 + f)) + 1 for g, f in frequency.items()}
    lengths = [sqrt(sum(weight[g] ** 2 for g in grams(n))) for n in (query, name)]
    shared = sum(weight[g] ** 2 for g in grams(query) & grams(name))
    return shared / (lengths[0] * lengths[1])


@pytest.fixture
def index() -> NgramIndex:
    return NgramIndex(*map(KbColumn, build_postings(NAMES)))


@pytest.mark.parametrize(
    "query", ["renal failure", "kidney failure", "aspirine", "x", "αβ", "failure renal", "zzz"]
)
def test_cosines_equal_brute_force(index, query):
    rows, cosines = index.search([query], len(NAMES))
    expected = {i: c for i, name in enumerate(NAMES) if (c := cosine(query, name)) >= 0.3}
    found = {int(i): float(c) for i, c in zip(rows[0], cosines[0], strict=True) if i >= 0}
    assert found == pytest.approx(expected, abs=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_names_with_a_rare_3_gram_are_compared_by_all(index, monkeypatch):
    monkeypatch.setattr(ngrams, "_MAX_SCORED_NAMES", 0)
    (all_rows,), (all_cosines,) = index.search(["renal failure"], 4)
    assert all_rows.tolist() == [0, 1, 2, -1]
    # Three 3-grams, of "renal", are in names 0 and 1 only; those of "failure" propose no more.
    monkeypatch.setattr(ngrams, "_N_POSTINGS", 6)
    (rows,), (cosines,) = index.search(["renal failure"], 4)
    assert rows.tolist() == [0, 1, -1, -1]
    assert cosines[:2] == pytest.approx(all_cosines[:2], abs=1e-6)
    # The same alone as after other queries.
    assert index.search(["aspirine", "renal failure"], 4)[0][1].tolist() == [0, 1, -1, -1]
    monkeypatch.setattr(ngrams, "_N_SCORED", 1)
    assert index.search(["renal failure"], 4)[0].tolist() == [[0, -1, -1, -1]]


@pytest.mark.parametrize("most", [0, 200_000])
def test_literal_results(index, monkeypatch, most):
    monkeypatch.setattr(ngrams, "_MAX_SCORED_NAMES", most)
    rows, cosines = index.search(["renal failure", "aspirine", "zzz", ""], 2)
    assert rows.tolist() == [[0, 1], [3, 4], [-1, -1], [-1, -1]]
    assert cosines[0, 0] == pytest.approx(1.0)
    assert cosines[2:].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_equal_names_come_in_order():
    rows, _ = NgramIndex(*map(KbColumn, build_postings(["cold"] * 9))).search(["cold"], 2)
    assert rows.tolist() == [[0, 1]]


@pytest.mark.parametrize("names", [[], ["z"], ["z", "a"]])
def test_hardly_any_names(names):
    rows, _ = NgramIndex(*map(KbColumn, build_postings(names))).search(["a", "bcd"], 3)
    assert rows[1].tolist() == [-1, -1, -1]
    assert rows[0].max() == (1 if "a" in names else -1)
