from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import spacy
from spacy.training import Example

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.grow import add_concepts
from spacy_bioel.types import Concept

Run = Callable[..., int]

TINY_ENCODER = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    "dim": 8,
    "blocks": 1,
    "filters": 4,
    "widths": [1],
    "pooling": "max",
    "dropout": 0.0,
    "max_tokens": 8,
}


def test_encode_writes_vectors_of_the_pipelines_encoder(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, model = tmp_path / "kb", tmp_path / "model"
    build_kb([Concept("X:1", ("naloxone", "narcan")), Concept("X:2", ("clonidine",))], base)
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("bioel_linker", config={"kb": str(base), "model": TINY_ENCODER})
    reference = nlp.make_doc("naloxone")
    reference.spans["bioel_gold"] = [reference.char_span(0, 8, "D", kb_id="X:1")]
    examples = [Example(nlp.make_doc("naloxone"), reference)]
    linker.initialize(lambda: examples, vocabulary=100, width=8)
    nlp.to_disk(model)

    assert run("kb", "encode", base, model) == 0
    assert f"Encoded 3 names of {base}" in capsys.readouterr().err
    assert run("kb", "info", base, "--verify", "--json", "-") == 0
    [vectors] = json.loads(capsys.readouterr().out)["vectors"]
    assert (vectors["n"], vectors["dim"]) == (3, 8)
    assert vectors["fingerprint"] == linker.fingerprint
    assert run("kb", "encode", base, model) == 0
    assert f"Encoded 0 names of {base}" in (shown := capsys.readouterr().err)
    assert "3 were there" in shown
    assert run("kb", "info", base) == 0
    assert "no approximate index" in capsys.readouterr().out
    add_concepts(base, [Concept("X:9", ("ibuprofen",))])
    assert run("kb", "info", base, "--verify", "--json", "-") == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["counts"]["names"], about["verified"]) == (4, True)
    assert [(v["n"], v["current"]) for v in about["vectors"]] == [(3, False)]
    assert run("kb", "info", base) == 0
    assert "of what it was before" in capsys.readouterr().out


def test_encode_needs_a_trained_linker(
    run: Run, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_kb([Concept("X:1", ("naloxone",))], tmp_path / "kb")
    before = sorted(path.name for path in (tmp_path / "kb").iterdir())
    assert run("kb", "encode", tmp_path / "kb", model) == 2
    assert "[B053]" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "kb").iterdir()) == before
