"""The n-gram searches of `benchmarks.spelling` on six names; rows are in this order."""

import pytest
from kb_files import made_kb

from benchmarks.spelling import create_bm25_v1, create_tfidf_v1
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Renal failure", "Kidney failure")),  # rows 0 and 1
    Concept("X:2", ("Heart failure",)),
    Concept("X:3", ("Heart attack",)),
    Concept("X:4", ("Aspirin", "Aspirins")),
)


@pytest.fixture
def kb(tmp_path) -> KnowledgeBase:
    return made_kb(tmp_path / "kb", CONCEPTS, source="made up", release="2026", licence="CC0")


@pytest.mark.parametrize(
    ("make", "rows", "scores"),
    [
        (
            create_tfidf_v1(),
            [[1, 2], [2, 3], [4, 5]],
            [[1, 0.4232], [0.7075, 0.5993], [0.8952, 0.8177]],
        ),
        (create_bm25_v1(), [[1, 0], [2, 3], [-1, -1]], [[1, 0.3103], [0.7731, 0.7731], [0, 0]]),
    ],
    ids=["tfidf", "bm25"],
)
def test_literal_results(kb, make, rows, scores):
    found, values = make(kb).search(["kidney failure", "heart", "aspirine"], 2)
    assert found.tolist() == rows
    assert values.tolist() == [pytest.approx(row, abs=1e-4) for row in scores]
    assert (found.dtype, values.dtype) == ("int64", "float32")
