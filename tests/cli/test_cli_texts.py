from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import spacy
from kb_files import columns_of
from spacy.tokens import DocBin

from spacy_bioel.corpus import read_texts

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


def test_convert_to_spacy_and_back(run: Run, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "new" / "gold.spacy"
    assert run("convert", corpus, out, "--prefix", "MESH", "--json", "-") == 0
    captured = capsys.readouterr()
    expected = {"documents": 2, "mentions": 6, "widened": 0, "lost": []}
    assert json.loads(captured.out) == expected
    assert "6 mentions: 0 widened to tokens, 0 lost." in captured.err
    doc = next(DocBin().from_disk(out).get_docs(spacy.blank("en").vocab))
    spans = [(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel_gold"]]
    assert spans[0] == ("Naloxone", "Chemical", "MESH:D000001")
    from_spacy = list(read_texts(out, format=None, prefix=""))
    assert from_spacy == list(read_texts(corpus, format=None, prefix="MESH"))


def test_convert_counts_what_tokens_cannot_represent(
    run: Run, tmp_path: Path, capsys: Capture
) -> None:
    source = tmp_path / "texts.jsonl"
    mention = {"start": 0, "end": 4, "label": "D", "ids": ["X:1"]}
    source.write_text(json.dumps({"id": "7", "text": "cancerous", "mentions": [mention]}) + "\n")
    out = tmp_path / "out.spacy"
    assert run("convert", source, out) == 0
    shown = capsys.readouterr().err
    assert "1 mention: 1 widened to tokens, 0 lost." in shown
    assert f"{source}: 1 document to {out}." in shown
    assert run("convert", source, out, "--no-widen") == 0
    shown = capsys.readouterr().err
    assert "0 widened to tokens, 1 lost" in shown and "lost: 7:0-4 'canc'" in shown


def test_convert_to_jsonl(run: Run, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "gold.jsonl"
    assert run("convert", corpus, out, "--prefix", "MESH", "--json", "-") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"documents": 2, "mentions": 6}
    assert "6 mentions." in captured.err
    first = json.loads(out.read_text().splitlines()[0])
    assert first["mentions"][1] == {
        "start": 13,
        "end": 22,
        "label": "Chemical",
        "ids": ["MESH:D003000"],
    }


def test_link_plain_text(run: Run, model: Path, tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "notes.txt"
    source.write_text("Narcan was given.\n\nNothing here.\n")
    out, page = tmp_path / "out.jsonl", tmp_path / "out.html"
    assert run("link", model, source, "-o", out, "--html", page) == 0
    assert "2 documents, 1 mention, 0 of them NIL." in capsys.readouterr().err
    first, second = map(json.loads, out.read_text().splitlines())
    assert (second["id"], second["links"]) == ("3", [])
    (link,) = first["links"]
    assert [link[key] for key in ("start", "end", "text", "id", "ids")] == [
        0,
        6,
        "Narcan",
        "MESH:D009270",
        ["MESH:D009270"],
    ]
    assert sorted(link["candidates"][0]) == ["evidence", "id", "name", "score"]
    assert "MESH:D009270" in page.read_text() and "Nothing here." in page.read_text()


def test_link_reads_tables_of_texts(run: Run, model: Path, tmp_path: Path) -> None:
    table = tmp_path / "notes.csv"
    table.write_text('text,id,year\n"Gout, and\nfever.",A,2020\nNaloxone,,2021\n')
    assert run("link", model, table, "-o", tmp_path / "out.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["text"], row["error"]) for row in rows] == [
        ("A", "Gout, and\nfever.", None),
        ("2", "Naloxone", None),
    ]


def test_link_reads_stdin_and_writes_stdout(
    run: Run,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"clonidine\n")))
    assert run("link", model, "-") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["id"], record["links"][0]["id"]) == ("1", "MESH:D003000")


def test_gold_in_the_file_changes_no_prediction(
    run: Run, model: Path, corpus: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.txt"
    lines = corpus.read_text("utf8").splitlines(keepends=True)
    bare.write_text("".join(line for line in lines if "\t" not in line), encoding="utf8")
    assert (len(lines), bare.read_text("utf8").count("\n")) == (11, 5)
    found = {}
    for path in (corpus, bare):
        assert run("link", model, path, "-o", tmp_path / "out.jsonl") == 0
        found[path] = (tmp_path / "out.jsonl").read_bytes()
    assert found[corpus].count(b"MESH:D009270") == 6  # id, ids and candidate, twice
    assert found[bare] == found[corpus]


def test_link_reads_texts_whose_annotations_are_wrong(
    run: Run, model: Path, corpus: Path, capsys: Capture
) -> None:
    corpus.write_text(corpus.read_text().replace("1\t0\t8\tNaloxone", "1\t1\t900\tNalorphine"))
    assert run("link", model, corpus) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out.splitlines()[0])["links"][0]["text"] == "Naloxone"
    assert "2 documents, 4 mentions, 0 of them NIL." in captured.err


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_link_without_any_text(
    content: str,
    run: Run,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert run("link", model, "-", "-o", out) == 2
    assert "[B142] stdin has no text, expected" in capsys.readouterr().err
    assert not out.exists()


def test_link_keeps_a_record_without_a_text(run: Run, model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "some.jsonl", tmp_path / "out.jsonl"
    wrong = {"pmid": 8, "text": "Naloxone", "mentions": [{"start": 5, "end": 99}]}
    source.write_text(f'{{"id": "7", "text": null}}\n{json.dumps(wrong)}\n{{"title": "x"}}\n')
    assert run("link", model, source, "--format", "jsonl", "-o", out) == 1
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    codes = [row["error"] and row["error"]["code"] for row in rows]
    assert [(row["id"], code) for row, code in zip(rows, codes, strict=True)] == [
        ("7", "B190"),
        ("8", None),
        ("3", "B190"),
    ]


def test_link_says_at_once_what_is_wrong_with_a_knowledge_base(
    run: Run, concepts_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    kb = tmp_path / "kb"
    assert run("kb", "build", kb, concepts_file) == 0
    (columns_of(kb) / "names.txt").write_bytes(b"cut")
    (tmp_path / "a.txt").write_text("Naloxone\n")
    assert run("link", kb, tmp_path / "a.txt", "-o", tmp_path / "out.jsonl") == 2
    assert "[B023]" in capsys.readouterr().err
    (columns_of(kb) / "ids.txt").unlink()
    assert run("link", kb, tmp_path / "a.txt", "-o", tmp_path / "out.jsonl") == 2
    assert "[B023]" in capsys.readouterr().err and not (tmp_path / "out.jsonl").exists()


def test_link_reads_a_brat_folder(run: Run, model: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("Clonidine helps.")
    (tmp_path / "notes" / "a.ann").write_text("")
    assert run("link", model, tmp_path / "notes") == 0
    [record] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (record["text"], record["links"][0]["id"]) == ("Clonidine helps.", "MESH:D003000")


def test_link_reads_a_folder_of_texts(run: Run, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"Narcan\r\nwas given.\n")
    (folder / "a.txt").write_text("\ufeffNothing here.", encoding="utf8")
    (folder / "c.txt").write_bytes(b"caf\xe9")
    (folder / "d.txt").write_text("")
    (folder / "a.ann").write_text("no line of BRAT")
    assert run("link", model, folder, "-o", tmp_path / "out.jsonl") == 1
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = [(row["id"], row["text"], [link["text"] for link in row["links"]]) for row in rows]
    assert [row["error"] and row["error"]["code"] for row in rows] == [None, None, "B251", None]
    assert [*found[:2], found[3]] == [
        ("a", "Nothing here.", []),
        ("b", "Narcan\r\nwas given.\n", ["Narcan"]),
        ("d", "", []),
    ]


def test_link_reads_a_file_as_one_document(
    run: Run, model: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Nothing here.\n\nNarcan was given.\n")
    assert run("link", model, note, "--format", "whole") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["id"], row["text"], row["links"][0]["start"]) == ("note", note.read_text(), 15)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(note.read_bytes())))
    assert run("link", model, "-", "--format", "whole") == 0
    assert json.loads(capsys.readouterr().out)["text"] == note.read_text()
