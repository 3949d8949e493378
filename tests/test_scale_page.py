"""The tables of docs/scale.md."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from benchmarks.scale import Figures, names_table, pubmed_table


def figures(**measured: float | None) -> Figures:
    nothing: dict[str, Any] = dict.fromkeys(
        ("document", "start", "worker", "written", "different", "encode", "transformer")
    )
    return cast(Figures, SimpleNamespace(**(nothing | {"build": 6e-5, "disk": 200.0} | measured)))


def last_cells(text: str) -> list[str]:
    return [line.rsplit(" | ", 1)[1].removesuffix(" |") for line in text.splitlines()[2:]]


def test_what_was_not_measured_is_a_dash() -> None:
    assert last_cells(pubmed_table(figures())) == ["–"] * 6
    assert last_cells(names_table(figures())) == ["10", "–", "6.6", "6.6"]


def test_arithmetic() -> None:
    found = figures(document=0.01, start=4.5, worker=500.0, written=10_000.0, transformer=4.0)
    expected = ["100", "0.6", "400", "8.0", "360", "0.2"]
    assert last_cells(pubmed_table(found)) == expected
