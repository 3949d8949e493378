"""`bioel link` without a model: the pipeline of the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]
TEXT = "The BRAF V600E mutation is common in melanoma.\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(TEXT, encoding="utf8")
    return path


def test_the_texts_alone(run: Run, notes: Path, capsys: Capture) -> None:
    assert run("link", notes) == 0
    alone = capsys.readouterr().out
    (row,) = map(json.loads, alone.splitlines())
    assert [(x["text"], x["id"], x.get("hgvs")) for x in row["links"]] == [
        ("BRAF", "NCBIGene:673", None),
        ("V600E", None, "p.Val600Glu"),
        ("melanoma", "MESH:D008545", None),
    ]
    assert run("link", "starter", notes) == 0
    assert capsys.readouterr().out == alone


def test_gold_is_measured_by_its_name(run: Run, tmp_path: Path, capsys: Capture) -> None:
    gold = tmp_path / "gold.jsonl"
    mention = {"start": 4, "end": 8, "label": "Gene", "ids": ["NCBIGene:673"]}
    gold.write_text(json.dumps({"text": TEXT, "mentions": [mention], "annotates": ["Gene"]}))
    assert run("evaluate", "starter", gold, "--protocol", "end_to_end", "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["value"] for r in rows if r["metric"] == "f1" and r["label"] == ""] == [100.0]
