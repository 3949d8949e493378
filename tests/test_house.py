"""The code does not grow, as `python -m benchmarks.run house` counts it."""

import tomllib

import pytest

from benchmarks import house

pytestmark = pytest.mark.pages


def test_nothing_grows():
    counted = house.counts_of_source(house.ROOT)
    limits = tomllib.loads(house.RATCHET.read_text("utf8"))
    assert limits and limits.keys() <= counted.keys()
    assert {name: counted[name] for name, n in limits.items() if counted[name] > n} == {}
    measured = {*counted, *house.WAYS, "doc_lines", "doc_files"}
    assert house.TO_REACH.keys() <= measured


def test_the_ratchet_only_falls(tmp_path):
    path = tmp_path / "house.toml"
    path.write_text("# Why.\nlines = 30  # a reason\nfiles = 4\n", "utf8")
    house.lower(path, {"lines": 29, "files": 5})
    assert path.read_text("utf8") == "# Why.\nlines = 29  # a reason\nfiles = 4\n"
