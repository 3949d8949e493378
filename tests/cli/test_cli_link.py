"""`bioel link` reads bare texts from annotated files and from folders, as they stand there."""

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from tiny import needs


@pytest.fixture()
def notes(tmp_path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("Narcan was given.\n\nNothing here.\nclonidine and Narcan\n")
    return path


def found_in(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(link["text"], link["id"]) for link in row["links"]]


def test_gold_in_the_file_changes_no_prediction(bioel, model, corpus, tmp_path):
    bare = tmp_path / "bare.txt"
    lines = corpus.read_text("utf8").splitlines(keepends=True)
    bare.write_text("".join(line for line in lines if "\t" not in line), encoding="utf8")
    assert (len(lines), bare.read_text("utf8").count("\n")) == (11, 5)
    found = bioel("link", model, corpus)
    assert found.out.count("MESH:D009270") == 6  # id, ids and candidate, twice
    assert bioel("link", model, bare).out == found.out
    # Nor is it an error if it is wrong.
    corpus.write_text(corpus.read_text().replace("1\t0\t8\tNaloxone", "1\t1\t900\tNalorphine"))
    assert bioel("link", model, corpus).out == found.out


@needs("clinical")
def test_a_folder_of_texts(bioel, model, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"Narcan\r\nwas given.\n")
    (folder / "a.txt").write_text("\ufeffNothing here.", encoding="utf8")
    (folder / "c.txt").write_bytes(b"caf\xe9")
    (folder / "d.txt").write_text("")
    (folder / "a.ann").write_text("no line of BRAT")
    (folder / "e.txt.gz").write_bytes(gzip.compress(b"He took\r\nNarcan."))
    rows = bioel("link", model, folder, status=1).rows
    assert [row["error"] and row["error"]["code"] for row in rows] == [
        None,
        None,
        "B251",
        None,
        None,
    ]
    assert [(row["id"], row["text"], found_in(row)) for row in rows if not row["error"]] == [
        ("a", "Nothing here.", []),
        ("b", "Narcan\r\nwas given.\n", [("Narcan", "MESH:D009270")]),
        ("d", "", []),
        ("e", "He took\r\nNarcan.", [("Narcan", "MESH:D009270")]),
    ]
    (folder / "E.txt").write_text("Another document.")
    assert len(bioel("link", model, folder, status=1).rows) == 6
    for name in ("a.TXT", "a.txt.gz"):
        (folder / name).write_bytes(gzip.compress(b"Narcan"))
        refused = bioel("link", model, folder, status=2)
        assert "[B513]" in refused.err and name in refused.err and "a.txt" in refused.err
        (folder / name).unlink()
    (folder / "E.txt").unlink()
    (folder / "F.TXT").write_bytes("Narcan".encode("utf-16"))
    (folder / "sub").mkdir()
    (folder / "sub" / "g.txt").write_text("Narcan")
    done = bioel("link", model, folder, status=1)
    assert f"[W304] {folder}: files left out: 2." in " ".join(done.err.split())
    messages = {row["id"]: row["error"]["message"] for row in done.rows if row["error"]}
    assert messages == {
        "F": "Character 0 of the text is byte 0xff, which is not UTF-8. Convert the file, "
        "for example: iconv -f utf-16 -t utf8 FILE > OUT, or leave the document out.",
        "c": "Character 3 of the text is byte 0xe9, which is not UTF-8. Convert the file, "
        "for example: iconv -f windows-1252 -t utf8 FILE > OUT, or leave the document out.",
    }
    one = bioel("link", model, folder / "e.txt.gz", "--preset", "clinical").json
    assert (one["id"], found_in(one)) == ("e", [("Narcan", "MESH:D009270")])


def test_json_lines_and_tables_are_not_read_from_stdin_as_text(bioel, model, monkeypatch):
    json, table = b'{"id": "a", "text": "Narcan was given."}\n', b"id,text\na,Narcan was given.\n"
    for lines, options, status in (
        (json, [], 2), (json, ["--format", "jsonl"], 2), (table, [], 2),
        (json, ["--format", "text"], 0), (b"Narcan, text\n", [], 0),
    ):  # fmt: skip
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
        result = bioel("link", model, "-", *options, status=status)
        assert ("[B345] Standard input is read as plain text" in result.err) == bool(status)
