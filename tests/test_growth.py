"""Parts of `benchmarks.growth` that need no large knowledge base."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.growth import are_nearest, edit, grow, memory
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import Concept


def test_edits_change_one_letter() -> None:
    rng = np.random.default_rng(0)
    edits = {edit("Gout", rng) for _ in range(200)}
    assert edits == {
        "out", "gut", "got", "gou",
        "ggout", "goout", "gouut", "goutt",
        "ogut", "guot", "gotu", "gout",  # the last: the end has no next letter
    }  # fmt: skip
    assert {edit("A", rng) for _ in range(50)} == {"a", "aa"}


def test_exact_search_block_by_block() -> None:
    names = np.array([[1, 0], [0, 1], [0.6, 0.8], [1, 0]], np.float32)
    queries = names[[0, 1, 2, 0, 0]]
    found = np.array([3, 1, 1, 2, -1])
    assert are_nearest(queries, found, names.__getitem__, 4, block=2).tolist() == [
        *(True, True, False, False, False)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_in_megabytes() -> None:
    found = memory()
    assert 10 < found["VmRSS"] <= found["VmHWM"] < 100_000
    assert 0 < found["RssAnon"] < found["VmRSS"]


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
