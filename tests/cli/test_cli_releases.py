"""`bioel kb diff` lists changes, and `bioel migrate` carries annotations to a new release."""

import csv
import json

import pytest

from spacy_bioel.cli import main
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

OLD = [Concept("X:1", ("fever",)), Concept("X:2", ("cold",)), Concept("X:3", ("=1+ague",))]
NEW = [
    Concept("X:1", ("pyrexia", "fever")),
    Concept("X:4", ("common cold",)),
    Concept("X:2", (), replaced_by="X:4"),
    Concept("X:3", (), consider=("X:1", "X:4")),
]


@pytest.fixture()
def kbs(tmp_path):
    for name, concepts in (("old", OLD), ("new", NEW)):
        build_kb(concepts, tmp_path / name)
    return str(tmp_path / "old"), str(tmp_path / "new")


def run(*arguments):
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_changes_as_a_table(kbs, capsys):
    assert run("kb", "diff", *kbs) == 0
    table, notes = capsys.readouterr()
    assert "X:4 common cold" in table and "renamed" in table
    assert notes == "4 changes: 1 renamed, 1 replaced, 1 consider, 1 added.\n"


def test_changes_in_files(kbs, tmp_path):
    for suffix in ("jsonl", "csv", "html"):
        assert run("kb", "diff", *kbs, "-o", tmp_path / f"out.{suffix}") == 0
    first = json.loads((tmp_path / "out.jsonl").read_text("utf8").splitlines()[0])
    assert (first["kind"], first["id"], first["new_name"]) == ("renamed", "X:1", "pyrexia")
    rows = list(csv.reader((tmp_path / "out.csv").open(newline="")))
    assert rows[0] == ["change", "id", "name", "now"]
    assert ["consider", "X:3", "'=1+ague", "X:1 pyrexia\nX:4 common cold"] in rows
    assert "<h1>Changes</h1>" in (tmp_path / "out.html").read_text("utf8")


def test_only_what_a_file_uses(kbs, tmp_path, capsys):
    (tmp_path / "used.csv").write_text("id\nX:2\n")
    assert run("kb", "diff", *kbs, "--annotations", tmp_path / "used.csv") == 0
    assert capsys.readouterr().err == "1 change: 1 replaced.\n"


def test_a_migrated_file_and_the_rest(kbs, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text,id\nfever,X:1\ncold,X:2\nague,X:3\n")
    out, rest = tmp_path / "b.csv", tmp_path / "rest.csv"
    assert run("migrate", tmp_path / "a.csv", *kbs, "-o", out, "--rest", rest) == 0
    assert out.read_text() == "text,id\nfever,X:1\ncold,X:4\nague,X:3\n"
    assert [row[:2] for row in csv.reader(rest.open(newline=""))][1:] == [["needs a person", "X:3"]]
    assert capsys.readouterr().err == "3 ids: 1 unchanged, 1 moved, 1 needs a person.\n"


def test_a_folder(kbs, tmp_path, capsys):
    folder = tmp_path / "brat"
    folder.mkdir()
    (folder / "a.txt").write_text("A cold.")
    (folder / "b.ann").touch()
    (folder / "a.ann").write_text("T1\tDisease 2 6\tcold\nN1\tReference T1 X:2\tcold\n")
    assert run("migrate", folder, *kbs, "-o", tmp_path / "out", "--all") == 0
    assert "Reference T1 X:4" in (tmp_path / "out" / "a.ann").read_text()
    assert (tmp_path / "out" / "b.ann").read_text() == ""
    assert (tmp_path / "out" / "a.txt").read_text() == "A cold."
    assert "moved" in capsys.readouterr().out
