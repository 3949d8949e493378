"""The name that a generative linker is taught to write: the likest one of the right concept."""

from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.contextual.weighing import nearest_names
from spacy_bioel.types import Concept


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    concepts = [
        Concept("X:1", ("Kidney Diseases", "Renal failure", "Failure, Renal", "ARF"), ()),
        Concept("X:2", ("Heart attack", "Myocardial infarction"), ()),
        Concept("X:3", ("Headache",), ()),
    ]
    folder = tmp_path_factory.mktemp("targets") / "kb"
    build_kb(concepts, folder)
    return KnowledgeBase.open(folder)


def nearest(kb: KnowledgeBase, *pairs: tuple[str, str]) -> list[str]:
    strings, ids = zip(*pairs, strict=True)
    return kb.names.take(nearest_names(kb, strings, kb.find_all(list(ids))))


def test_likest_name_of_each_concept(kb: KnowledgeBase) -> None:
    assert nearest(
        kb,
        ("renal failures", "X:1"),
        ("diseased kidneys", "X:1"),
        ("arf", "X:1"),
        ("infarction", "X:2"),
        ("attack of the heart", "X:2"),
        ("renal failure", "X:3"),
    ) == [
        "Renal failure",
        "Kidney Diseases",
        "ARF",
        "Myocardial infarction",
        "Heart attack",
        "Headache",
    ]


def test_preferred_name_where_none_is_like(kb: KnowledgeBase) -> None:
    assert nearest(kb, ("qqq", "X:1"), ("", "X:2")) == ["Kidney Diseases", "Heart attack"]


def test_cosines_are_those_of_the_spelling_search(kb: KnowledgeBase) -> None:
    """The spelling search compares by the same vectors, and finds the same name."""
    strings = ["renal failing", "a heart that was attacked", "headaches", "myocardial"]
    rows, _ = kb.ngrams.search(strings, 1)
    owners = kb.concepts_of_names(rows[:, 0])[1]
    assert nearest_names(kb, strings, owners).tolist() == rows[:, 0].tolist()


def test_nothing(kb: KnowledgeBase) -> None:
    assert nearest_names(kb, [], np.zeros(0, np.int64)).tolist() == []
