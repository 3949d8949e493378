"""Our scores in `spacy evaluate`: what it prints, and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import srsly
from spacy.cli.evaluate import evaluate

from spacy_bioel.cli.convert import convert

Capture = pytest.CaptureFixture[str]


@pytest.fixture()
def dev(corpus: Path, tmp_path: Path) -> Path:
    convert(corpus, tmp_path / "dev.spacy", prefix="MESH")
    return tmp_path / "dev.spacy"


def test_links_are_the_spans_of_the_key_bioel_link(
    model: Path, dev: Path, tmp_path: Path, capsys: Capture
) -> None:
    evaluate(str(model), dev, silent=False, spans_key="bioel_link", output=tmp_path / "out.json")
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    # Four of five linked gold mentions, as `bioel evaluate` counts them.
    assert ["SPAN", "P", "100.00"] in printed
    assert ["SPAN", "R", "80.00"] in printed
    assert ["SPAN", "F", "88.89"] in printed
    # Names of the knowledge base have its types as labels.
    assert ["Chemical", "0.00", "0.00", "0.00"] in printed
    assert srsly.read_json(tmp_path / "out.json")["spans_bioel_link_r"] == pytest.approx(0.8)


def test_all_scores_are_in_the_file_by_component(model: Path, dev: Path, tmp_path: Path) -> None:
    evaluate(str(model), dev, output=tmp_path / "out.json", per_component=True)
    scores = srsly.read_json(tmp_path / "out.json")["bioel_linker"]
    assert scores["bioel_link_r"] == pytest.approx(0.8)
    assert scores["bioel_link_acc"] == 1.0
