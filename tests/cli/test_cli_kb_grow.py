"""`bioel kb add`, `retire` and `compact`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kb_files import to_old_layout

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.stored import has_vectors, is_encoded
from spacy_bioel.kb.vectors.writing import write_vectors

Run = Callable[..., int]


@pytest.fixture()
def kb(run: Run, tmp_path: Path, concepts_file: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run("kb", "build", tmp_path / "kb", concepts_file) == 0
    capsys.readouterr()
    return tmp_path / "kb"


def encode(kb: Path, fingerprint: str = "f") -> None:
    opened = KnowledgeBase.open(kb)
    write_vectors(opened, lambda names: np.ones((len(names), 2)), fingerprint=fingerprint, dim=2)


def test_add(run: Run, kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, report = tmp_path / "mine.csv", tmp_path / "report.json"
    source.write_text("Code,Label\nD009270,Narcan nasal\nD000900,Gout\nD000001,Nalone\n")
    options = ["--columns", "id=Code,name=Label", "--prefix", "MESH", "--json", report]
    assert run("kb", "add", kb, source, *options) == 0
    counts = json.loads(report.read_text())
    assert (counts["new_concepts"], counts["new_names"]) == (1, 3)
    assert (counts["records"], counts["redirected"], counts["concepts"]) == (3, 1, 4)
    assert counts["vectors_outdated"] is False
    base = KnowledgeBase.open(kb)
    assert base.names.take(base.names_of(base.find("MESH:D009270"))) == [
        "Naloxone", "Narcan", "Narcan nasal", "Nalone",
    ]  # fmt: skip
    assert base.meta["source"] == "concepts.jsonl, mine.csv"
    shown = capsys.readouterr()
    assert "new concepts" in shown.out and shown.err == ""


def test_add_says_what_to_do_about_vectors(
    run: Run, kb: Path, concepts_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(kb)
    assert run("kb", "add", kb, concepts_file) == 0
    assert capsys.readouterr().err == ""  # nothing was new
    concepts_file.write_text('{"id": "MESH:D1", "names": ["gout"], "types": ["C"]}\n')
    assert run("kb", "add", kb, concepts_file, "--types", "D") == 0
    assert capsys.readouterr().err == ""
    assert run("kb", "add", kb, concepts_file) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert f"run bioel kb encode {kb} MODEL; it encodes new names only" in shown
    assert has_vectors(KnowledgeBase.open(kb))


def test_add_of_a_broken_file_leaves_the_old_one(run: Run, kb: Path, tmp_path: Path) -> None:
    before = KnowledgeBase.open(kb).fingerprint
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "X:1", "names": ["x"]}\n{"id": "X:2", "names": \n')
    assert run("kb", "add", kb, broken) == 2
    assert KnowledgeBase.open(kb).fingerprint == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broken.jsonl",
        "concepts.jsonl",
        "kb",
    ]


def test_retire_one(run: Run, kb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode(kb)
    assert run("kb", "retire", kb, "D003000", "--replaced-by", "D009270", "--prefix", "MESH") == 0
    base = KnowledgeBase.open(kb)
    assert base.canonical("MESH:D003000") == "MESH:D009270"
    assert base.find("MESH:D003000") == base.find("MESH:D009270") == 1
    captured = capsys.readouterr()
    assert "run bioel kb encode" in " ".join(captured.err.split())
    assert "gone concepts" in captured.out and "new retired" in captured.out
    assert run("kb", "retire", kb, "MESH:D006973") == 0
    assert list(KnowledgeBase.open(kb).ids) == ["MESH:D009270"]


def test_retire_pairs(run: Run, kb: Path, tmp_path: Path, capsys) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("D003000\tD009270\nD006973\tD009270\nD003000\tD009270\n")
    options = ["--prefix", "MESH", "--json", "-"]
    assert run("kb", "retire", kb, "--pairs", pairs, *options) == 0
    counts = json.loads(capsys.readouterr().out)
    assert (counts["new_concepts"], counts["new_retired"], counts["new_names"]) == (-2, 2, 0)


def test_compact(run: Run, kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode(kb)
    assert run("kb", "retire", kb, "MESH:D003000", "--replaced-by", "MESH:D009270") == 0
    capsys.readouterr()
    assert run("kb", "compact", kb) == 0
    assert "Removed 1 leftover of" in capsys.readouterr().err
    assert not has_vectors(KnowledgeBase.open(kb))
    assert KnowledgeBase.open(kb).find("MESH:D003000") == 1
    encode(kb)
    assert run("kb", "compact", kb, "--forget-retired", "--json", "-") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"leftovers": 0, "megabytes": 0.0, "forgotten": 2}
    assert "Forgot 2 retired ids." in shown.err and f"run bioel kb encode {kb} MODEL" in shown.err
    assert KnowledgeBase.open(kb).find("MESH:D003000") == -1
    assert has_vectors(KnowledgeBase.open(kb))


def test_info_shows_the_vectors_of_each_encoder(
    run: Run, kb: Path, concepts_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("kb", "info", kb) == 0
    assert f"none; run bioel kb encode {kb} MODEL" in " ".join(capsys.readouterr().out.split())
    encode(kb)
    concepts_file.write_text('{"id": "MESH:D1", "names": ["gout"]}\n')
    assert run("kb", "add", kb, concepts_file) == 0
    encode(kb, "g")
    capsys.readouterr()
    assert run("kb", "info", kb, "--verify", "--json", "-") == 0
    vectors = json.loads(capsys.readouterr().out)["vectors"]
    found = [(about["fingerprint"], about["n"], about["current"]) for about in vectors]
    assert found == [("g", 6, True), ("f", 5, False)]
    assert run("kb", "info", kb) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "encoder g; no approximate index" in shown and "what it was before: run bioel" in shown


def test_upgrade(run: Run, kb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode(kb)
    to_old_layout(kb)
    assert run("kb", "upgrade", kb) == 0
    assert f"Converted {kb} to the current layout." in " ".join(capsys.readouterr().err.split())
    assert is_encoded(KnowledgeBase.open(kb), fingerprint="f")
    assert run("kb", "upgrade", kb) == 0
    assert "has the current layout" in " ".join(capsys.readouterr().err.split())


def test_edit(run: Run, kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--rename", "Naloxone hydrochloride", "--add", "Nalone", "--remove", "narcan"]
    report = tmp_path / "report.json"
    assert run("kb", "edit", kb, "D009270", "--prefix", "MESH", *names, "--json", report) == 0
    counts = json.loads(report.read_text())
    assert (counts["new_concepts"], counts["new_names"], counts["records"]) == (0, 1, 1)
    base = KnowledgeBase.open(kb)
    assert base.names.take(base.names_of(base.find("MESH:D009270"))) == [
        "Naloxone hydrochloride", "Naloxone", "Nalone",
    ]  # fmt: skip
    assert "Edited MESH:D009270" in capsys.readouterr().out
    assert run("kb", "edit", kb, "MESH:D009270") == 2
    assert "[B402]" in capsys.readouterr().err
