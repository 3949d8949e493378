"""Spelling searches on six names; rows are in this order."""

from __future__ import annotations

import pickle
from math import log
from pathlib import Path

import pytest
import spacy

from benchmarks import spelling
from benchmarks.spelling import create_bm25_v1, create_tfidf_v1
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.searches import MakeSearch, create_ngrams_v1
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Renal failure", "Kidney failure")),  # rows 0 and 1
    Concept("X:2", ("Heart failure",)),
    Concept("X:3", ("Heart attack",)),
    Concept("X:4", ("Aspirin", "Aspirins")),
)
ALL = [
    create_ngrams_v1(),
    create_tfidf_v1(),
    create_tfidf_v1(1, 2, "char"),
    create_bm25_v1(),
]
NAMES = ["ngrams", "tfidf", "biosyn", "bm25"]


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    build_kb(CONCEPTS, tmp_path / "kb", source="made up", release="2026", licence="CC0")
    return KnowledgeBase.open(tmp_path / "kb")


@pytest.mark.parametrize(
    ("make", "rows", "scores"),
    [
        (ALL[0], [[1, 2], [2, 3], [4, 5]], [[1, 0.4232], [0.7075, 0.5993], [0.6586, 0.6015]]),
        # As before, but that a 3-gram of no name does not make the query longer.
        (ALL[1], [[1, 2], [2, 3], [4, 5]], [[1, 0.4232], [0.7075, 0.5993], [0.8952, 0.8177]]),
        (ALL[2], [[1, 0], [2, 3], [4, 5]], [[1, 0.5628], [0.6984, 0.6596], [0.9173, 0.8418]]),
        (ALL[3], [[1, 0], [2, 3], [-1, -1]], [[1, 0.3103], [0.7731, 0.7731], [0, 0]]),
    ],
    ids=NAMES,
)
def test_literal_results(
    kb: KnowledgeBase, make: MakeSearch, rows: list[list[int]], scores: list[list[float]]
) -> None:
    found, values = make(kb).search(["kidney failure", "heart", "aspirine"], 2)
    assert found.tolist() == rows
    assert values.tolist() == [pytest.approx(row, abs=1e-4) for row in scores]
    assert (found.dtype, values.dtype) == ("int64", "float32")


def test_bm25_by_hand(kb: KnowledgeBase) -> None:
    # Of 6 names 3 have "failure", 1 has "kidney"; they are as long as the query, so that the
    # share of a word is that of its inverse document frequency.
    failure, kidney, unknown = log(1 + 3.5 / 3.5), log(1 + 5.5 / 1.5), log(1 + 6.5 / 0.5)
    rows, scores = create_bm25_v1()(kb).search(["kidney failure", "kidney zzz"], 4)
    assert rows.tolist() == [[1, 0, 2, -1], [1, -1, -1, -1]]
    share = failure / (kidney + failure)
    assert scores[0].tolist() == pytest.approx([1, share, share, 0], abs=1e-6)
    assert scores[1, 0] == pytest.approx(kidney / (kidney + unknown), abs=1e-6)


def test_bm25_repeated_words(kb: KnowledgeBase) -> None:
    # With b = 0 and k1 = 1 a word that the query has twice, and the name once, gets 2 * 1 / 2 of
    # what it gets in a name that has it twice, 2 * 2 / 3.
    rows, scores = create_bm25_v1(k1=1.0, b=0.0)(kb).search(["heart heart"], 2)
    assert rows.tolist() == [[2, 3]]
    assert scores[0].tolist() == pytest.approx([0.75, 0.75], abs=1e-6)


@pytest.mark.parametrize("make", ALL, ids=NAMES)
def test_nothing_found(kb: KnowledgeBase, make: MakeSearch) -> None:
    rows, scores = make(kb).search(["zzz", "", "aspirin"], 8)
    assert rows[:2].tolist() == [[-1] * 8] * 2
    assert scores[:2].tolist() == [[0.0] * 8] * 2
    assert rows[2, 0] == 4
    assert scores[2, 0] == pytest.approx(1.0)
    rows, scores = make(kb).search([], 3)
    assert (rows.shape, scores.shape) == ((0, 3), (0, 3))


@pytest.mark.parametrize("make", ALL, ids=NAMES)
def test_blocks_and_pickles_change_nothing(
    kb: KnowledgeBase, make: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ["heart failure", "renal heart", "aspirin", "zzz", "attack"]
    rows, scores = make(kb).search(queries, 3)
    monkeypatch.setattr(spelling, "_BLOCK", 13)  # two queries a block
    again = pickle.loads(pickle.dumps(make))(kb).search(queries, 3)
    assert again[0].tolist() == rows.tolist()
    assert again[1].tolist() == scores.tolist()


def test_ngrams_are_those_of_the_knowledge_base(kb: KnowledgeBase) -> None:
    assert create_ngrams_v1()(kb) is kb.ngrams


def test_configs_make_them(kb: KnowledgeBase) -> None:
    config = {
        "a": {"@misc": "spacy-bioel.Ngrams.v1"},
        "b": {"@misc": "spacy-bioel.Tfidf.v1", "ngram_min": 1, "ngram_max": 2, "analyzer": "char"},
        "c": {"@misc": "spacy-bioel.BM25.v1", "k1": 2.0},
    }
    made = spacy.registry.resolve(config)
    assert made["a"](kb) is kb.ngrams
    assert made["b"](kb).ngram_range == (1, 2)
    assert (made["c"](kb).k1, made["c"](kb).b) == (2.0, 0.75)
