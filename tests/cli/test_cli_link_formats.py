"""`bioel link -o` in the formats of other programs, and `--mentions given`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spacy_bioel.io.formats import read_corpus

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


@pytest.fixture()
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("Narcan was given.\nNothing here.\nclonidine and Narcan\n")
    return path


def test_one_run_writes_several_formats(
    run: Run, model: Path, notes: Path, tmp_path: Path, capsys: Capture
) -> None:
    names = ["a.pubtator", "a.bioc.xml", "a.bioc.json", "a.jsonl", "a.ann"]
    outputs = [part for name in [*names, "a.csv", "a.html"] for part in ("-o", tmp_path / name)]
    assert run("link", model, notes, *outputs) == 0
    assert "3 documents, 3 mentions, 0 of them NIL." in capsys.readouterr().err
    for name in names:
        found = [
            (text.id, [(m.start, m.end, m.label, m.ids) for m in text.mentions])
            for text in read_corpus(tmp_path / name)
        ]
        assert found == [
            ("1", [(0, 6, "D", ("MESH:D009270",))]),
            ("2", []),
            ("3", [(0, 9, "D", ("MESH:D003000",)), (14, 20, "D", ("MESH:D009270",))]),
        ]
    line = (tmp_path / "a.csv").read_text().splitlines()[1]
    assert line.startswith("1,0,6,Narcan,D,MESH:D009270,Naloxone,Narcan,0.99")
    assert "Naloxone (matched: Narcan)" in (tmp_path / "a.html").read_text()


def test_json_is_an_array(run: Run, model: Path, notes: Path, tmp_path: Path) -> None:
    assert run("link", model, notes, "-o", tmp_path / "pred.json", "--xrefs") == 0
    rows = json.loads((tmp_path / "pred.json").read_text())
    assert [len(row["links"]) for row in rows] == [1, 0, 2]
    assert rows[0]["links"][0]["candidates"][0]["xrefs"] == []


def test_an_output_that_fails_leaves_none_behind(
    run: Run, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "1", "text": "Narcan"}\n{"id": "a|b", "text": "Narcan"}\n')
    outputs = ("-o", tmp_path / "a.ann", "-o", tmp_path / "a.csv", "-o", tmp_path / "a.pubtator")
    assert run("link", model, source, *outputs) == 2
    assert "[B342] PubTator cannot hold the document id 'a|b'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


def test_documents_that_a_format_leaves_out_are_named(
    run: Run, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "1", "text": "Narcan"}\n{"id": "2", "text": null}\n')
    assert run("link", model, source, "-o", tmp_path / "a.csv") == 1
    shown = capsys.readouterr().err
    assert "Document 2 failed: [B190] The document has a text of the type NoneType" in shown
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2


def test_an_annotation_file_is_never_replaced(
    run: Run, model: Path, notes: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "notes.ann").write_text("mine")
    source = ("--format", "text", "-o", tmp_path / "notes.ann")
    assert run("link", model, notes, *source) == 2
    assert "[B341]" in capsys.readouterr().err
    assert (tmp_path / "notes.ann").read_text() == "mine"


@pytest.mark.parametrize("n_process", [1, 2])
def test_given_mentions(
    run: Run, model: Path, corpus: Path, tmp_path: Path, n_process: int, capsys: Capture
) -> None:
    out = tmp_path / "out.pubtator"
    argv = ("--mentions", "given", "-o", out, "--n-process", n_process, "--batch-size", 1)
    assert run("link", model, corpus, *argv) == 0
    assert out.read_text() == (
        "1|t|Naloxone and clonidine.\n"
        "1|a|Narcan raises it.\n"
        "1\t0\t8\tNaloxone\tChemical\tMESH:D009270\n"
        "1\t13\t22\tclonidine\tChemical\tMESH:D003000\n"
        "1\t24\t30\tNarcan\tChemical\tMESH:D009270\n"
        "\n"
        "2|t|Hypertension.\n"
        "2|a|Or pressure disease of rats.\n"
        "2\t0\t12\tHypertension\tDisease\tMESH:D006973\n"
        "2\t17\t33\tpressure disease\tDisease\t-\n"
        "2\t37\t41\trats\tSpecies\t-\n"
        "\n"
    )


def test_given_mentions_without_any(run: Run, model: Path, tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "Narcan"}\n')
    assert run("link", model, source, "--mentions", "given") == 0
    assert "[W302]" in capsys.readouterr().err
