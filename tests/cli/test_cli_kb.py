from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.stored import has_vectors
from spacy_bioel.kb.vectors.writing import write_vectors

Run = Callable[..., int]


def test_build_and_info(run: Run, tmp_path: Path, concepts_file: Path, capsys) -> None:
    out = tmp_path / "made" / "kb"
    report = tmp_path / "report.json"
    assert run("kb", "build", out, concepts_file, "--release", "2024", "--json", report) == 0
    counts = json.loads(report.read_text())
    assert (counts["concepts"], counts["names"], counts["retired"]) == (3, 5, 1)
    base = KnowledgeBase.open(out)
    assert base.canonical("MESH:D000001") == "MESH:D009270"
    assert (base.meta["source"], base.meta["release"]) == ("concepts.jsonl", "2024")
    capsys.readouterr()
    assert run("kb", "info", out, "--verify", "--json", "-") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["fingerprint"] == counts["fingerprint"]
    assert about["types"] == {"D": 2, "C": 1}
    assert (about["vectors"], about["verified"]) == ([], True)
    assert run("kb", "info", out) == 0
    shown = capsys.readouterr().out
    assert "2024" in shown and "D 2, C 1" in shown


def test_a_new_build_says_that_vectors_are_gone(
    run: Run, tmp_path: Path, concepts_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kb"
    assert run("kb", "build", out, concepts_file) == 0
    assert "vectors" not in capsys.readouterr().err
    write_vectors(
        KnowledgeBase.open(out), lambda names: np.ones((len(names), 2)), fingerprint="f", dim=2
    )
    assert run("kb", "build", out, concepts_file) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert f"vectors of the names before are gone: run bioel kb encode {out} MODEL" in shown
    assert not has_vectors(KnowledgeBase.open(out))


def test_version(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == "0.1.0\n"


OBO = """\
format-version: 1.2

[Term]
id: X:1
name: Abnormality

[Term]
id: X:2
name: Hypertension
is_a: X:1

[Term]
id: X:3
name: Pulmonary hypertension
is_a: X:2

[Term]
id: X:4
name: Onset
"""


def test_branches_of_an_ontology_are_linked(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ontology, notes, out = tmp_path / "my.obo", tmp_path / "notes.txt", tmp_path / "kb"
    ontology.write_text(OBO)
    notes.write_text("HTN, onset of pulmonary hypertenison in May")
    assert run("kb", "build", out, ontology, "--under", "X:1", "--exclude", "X:3") == 0
    assert list(KnowledgeBase.open(out).ids) == ["X:1", "X:2"]
    assert run("kb", "build", out, ontology, "--under", "X:1") == 0
    capsys.readouterr()
    assert run("link", out, notes) == 0
    record = json.loads(capsys.readouterr().out)
    found = [(link["text"], link["ids"]) for link in record["links"]]
    assert found == [("HTN", ["X:2"]), ("pulmonary hypertenison", ["X:3"])]
    assert run("kb", "build", out, ontology, "--under", "X:8") == 2
    assert "[B310]" in capsys.readouterr().err


def test_build_from_tables_with_retired_ids(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "a.tsv", tmp_path / "b.tsv"
    first.write_text("D1\tfever\tC\nD2\taspirin\tD\n")
    second.write_text("D1\tpyrexia\tC\n")
    retired = tmp_path / "retired.tsv"
    retired.write_text("D9\tD1\n")
    out = tmp_path / "kb"
    columns = ["--columns", "id=1,name=2,types=3", "--prefix", "MESH"]
    assert run("kb", "build", out, first, second, *columns, "--retired", retired) == 0
    base = KnowledgeBase.open(out)
    assert list(base.ids) == ["MESH:D1", "MESH:D2"]
    assert list(base.names) == ["fever", "pyrexia", "aspirin"]
    assert base.canonical("MESH:D9") == "MESH:D1"
    assert run("kb", "build", out, first, *columns, "--types", "D, X") == 0
    assert list(KnowledgeBase.open(out).ids) == ["MESH:D2"]


def test_release_and_licence_come_from_the_obo_header(run: Run, tmp_path: Path) -> None:
    source, other = tmp_path / "x.obo", tmp_path / "y.jsonl"
    source.write_text(
        "format-version: 1.2\ndata-version: x/2025-01-16\n"
        "property_value: terms:license https://x.org/a\n\n[Term]\nid: X:1\nname: flu\n"
    )
    other.write_text('{"id": "Y:1", "names": ["gout"]}\n')
    out = tmp_path / "kb"
    assert run("kb", "build", out, source, other) == 0
    meta = KnowledgeBase.open(out).meta
    assert (meta["release"], meta["licence"]) == ("x/2025-01-16", "https://x.org/a")
    assert run("kb", "build", out, source, "--release", "mine") == 0
    meta = KnowledgeBase.open(out).meta
    assert (meta["release"], meta["licence"]) == ("mine", "https://x.org/a")


def test_a_failed_build_leaves_the_old_one(run: Run, tmp_path: Path, concepts_file: Path) -> None:
    out = tmp_path / "kb"
    assert run("kb", "build", out, concepts_file) == 0
    before = KnowledgeBase.open(out).fingerprint
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "X:1", "names": ["x"]}\n{"id": "X:2", "names": \n')
    assert run("kb", "build", out, concepts_file, broken) == 2
    assert KnowledgeBase.open(out).fingerprint == before
    assert run("kb", "build", tmp_path / "other", broken) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.jsonl", "concepts.jsonl", "kb"]


def test_help_names_the_commands_and_needs_no_spacy() -> None:
    code = (
        "import sys\nfrom spacy_bioel.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as e:\n    print(e.code, 'spacy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False False"
    for name in ("convert", "link", "evaluate", "kb"):
        assert name in done.stdout


def test_an_unexpected_failure_is_not_hidden(
    tmp_path: Path, concepts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spacy_bioel.cli import main

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("spacy_bioel.cli.kb_build.build_kb", fail)
    with pytest.raises(RuntimeError, match="a bug"):  # Python exits with status 1
        main(["kb", "build", str(tmp_path / "kb"), str(concepts_file)])


def test_bad_records_are_skipped_and_reported(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, report = tmp_path / "mine.csv", tmp_path / "bad.tsv"
    source.write_bytes(b"id,name\nX:1,Gout\nX:2\nX 3,Rash\nX:4,M\xe9ni\xe8re\n")
    assert run("kb", "build", tmp_path / "kb", source) == 2
    assert not report.exists() and not (tmp_path / "kb").exists()
    capsys.readouterr()
    assert run("kb", "build", tmp_path / "kb", source, "--skip-bad", report) == 0
    assert list(KnowledgeBase.open(tmp_path / "kb").ids) == ["X:1"]
    rows = [line.split("\t") for line in report.read_text().splitlines()]
    assert [row[:3] for row in rows] == [
        ["file", "line", "code"],
        [str(source), "3", "B129"],
        [str(source), "4", "B026"],
        [str(source), "5", "B103"],
    ]
    assert rows[1][3].startswith(f"{source}, line 3: expected an id, and a name")
    assert f"3 bad records left out, see {report}" in capsys.readouterr().err


def test_only_bad_records_are_refused_and_reported(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, report = tmp_path / "mine.jsonl", tmp_path / "bad.tsv"
    source.write_text('{"id": 1, "names": []}\n{"id": 2, "names": []}\n')
    assert run("kb", "build", tmp_path / "kb", source, "--skip-bad", report) == 2
    said = capsys.readouterr().err
    assert "is good, 2 are bad, so" in said and "The first: [B132]" in said
    assert not (tmp_path / "kb").exists()
    assert len(report.read_text().splitlines()) == 3


def test_a_knowledge_base_of_the_package_by_its_name(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("kb", "info", "starter:cells", "--json", "-") == 0
    about = json.loads(capsys.readouterr().out)
    assert "Cellosaurus" in about["source"]
    (tmp_path / "notes.txt").write_text("HeLa cells were used.\n")
    assert run("link", "starter:cells", tmp_path / "notes.txt") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(link["text"], link["id"]) for link in row["links"]] == [("HeLa", "CVCL_0030")]
