from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.growth import memory
from spacy_bioel.kb.columns.files import give_back, map_folder, read_array


def test_pages_that_are_given_back_are_read_again(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(4))
    mapped = read_array(map_folder(tmp_path, ["numbers.npy"])["numbers.npy"])
    in_memory = np.arange(3)
    give_back(mapped, in_memory, mapped[1:])
    assert (mapped.tolist(), in_memory.tolist()) == ([0, 1, 2, 3], [0, 1, 2])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_gets_smaller(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.ones(1 << 22))  # 33.6 MB
    mapped = read_array(map_folder(tmp_path, ["numbers.npy"])["numbers.npy"])
    assert mapped.sum() == 1 << 22
    before = memory()["RssFile"]
    give_back(mapped)
    assert before - memory()["RssFile"] > 30
