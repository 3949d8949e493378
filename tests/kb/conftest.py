"""A knowledge base of four concepts that exercises every column."""

from pathlib import Path

import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:3", ("Heart Attack", "cold"), ("Disease",), ("X:1",), "An infarct."),
    Concept("X:1", ("Disease", "Illness"), ("Disease",)),
    Concept("X:2", ("Cold", "common  cold"), ("Disease", "Infection"), ("X:1", "X:9")),
    Concept("X:4", ("β-Estradiol", "beta estradiol"), ("Chemical",)),
    Concept("X:8", (), replaced_by="X:3"),
)


@pytest.fixture
def folder(tmp_path) -> Path:
    build_kb(CONCEPTS, tmp_path / "kb", source="made up", release="2026", licence="CC0")
    return tmp_path / "kb"


@pytest.fixture
def kb(folder) -> KnowledgeBase:
    return KnowledgeBase.open(folder)
