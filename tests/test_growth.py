"""The knowledge bases of `benchmarks.growth`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.growth import grow
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import Concept


def test_it_grows_by_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.growth.python", lambda *command: None)
    concepts = [Concept(f"X:{i}", (f"name {i}", f"other {i % 3}"), ("T",)) for i in range(4)]
    build_kb(concepts, tmp_path / "large")
    large = KnowledgeBase.open(tmp_path / "large")
    assert large.n_names == 7
    order = np.array([1, 0, 6, 2])  # "other 0" of two concepts, "name 0", "name 3", "name 1"
    grow(tmp_path / "kb", large, order[:1], is_new=True)
    small = KnowledgeBase.open(tmp_path / "kb")
    assert (list(small.ids), list(small.names)) == (["X:0", "X:3"], ["other 0"])
    grow(tmp_path / "kb", large, order[1:], is_new=False)
    grown = KnowledgeBase.open(tmp_path / "kb")
    assert sorted(grown.names) == ["name 0", "name 1", "name 3", "other 0"]
    assert grown.types_of(0) == ("T",)
