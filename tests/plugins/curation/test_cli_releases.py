"""`bioel kb diff` lists changes, and `bioel migrate` carries annotations to a new release."""

import csv
import gzip
import json

import pytest
import zstandard
from tables import cases, concepts_of

from spacy_bioel.kb.build import Branches, build_kb
from spacy_bioel.kb.edit import NameEdit, edit_names

OLD = concepts_of(cases(__file__, "old"))
NEW = concepts_of(cases(__file__, "new"))


@pytest.fixture()
def kbs(tmp_path):
    for name, concepts in (("old", OLD), ("new", NEW)):
        build_kb(concepts, tmp_path / name)
    return str(tmp_path / "old"), str(tmp_path / "new")


def test_changes_as_a_table(kbs, bioel):
    table, notes = bioel("kb", "diff", *kbs)
    assert "X:4 common cold" in table and "renamed" in table
    assert notes == "4 changes: 1 renamed, 1 replaced, 1 consider, 1 added.\n"


def test_several_reports(kbs, tmp_path, bioel):
    outs = [tmp_path / f"out.{suffix}" for suffix in ("jsonl", "csv", "html")]
    shown = bioel("kb", "diff", *kbs, *(word for out in outs for word in ("-o", out)))
    assert "renamed" not in shown.out  # no table
    lines, table, page = (out.read_text("utf8") for out in outs)
    assert lines.count("X:3") == table.count("X:3") == 1 and "X:3" in page
    first = json.loads(lines.splitlines()[0])
    assert (first["kind"], first["id"], first["new_name"]) == ("renamed", "X:1", "pyrexia")
    rows = list(csv.reader(outs[1].open(newline="")))
    assert rows[0] == ["change", "id", "name", "now"]
    assert ["consider", "X:3", "'=1+ague", "X:1 pyrexia\nX:4 common cold"] in rows
    assert "<h1>Changes from " in page
    for other, code in (("a.csv", "B555"), ("a.pdf", "B198")):
        reports = "-o", tmp_path / "a.csv", "-o", tmp_path / other
        assert code in bioel("kb", "diff", *kbs, *reports, status=2).err
    assert not (tmp_path / "a.csv").exists()  # checked before the first is written


def test_only_what_a_file_uses(kbs, tmp_path, bioel):
    (tmp_path / "used.csv").write_text("id\nX:2\n")
    shown = bioel("kb", "diff", *kbs, "--annotations", tmp_path / "used.csv")
    assert shown.err == "1 change: 1 replaced.\n"


def test_a_migrated_file_and_the_rest(kbs, tmp_path, bioel):
    (tmp_path / "a.csv").write_text("text,id\nfever,X:1\ncold,X:2\nague,X:3\n")
    out, rest = tmp_path / "b.csv", tmp_path / "rest.csv"
    shown = bioel("migrate", tmp_path / "a.csv", *kbs, "-o", out, "--rest", rest)
    assert out.read_text() == "text,id\nfever,X:1\ncold,X:4\nague,X:3\n"
    assert [row[:2] for row in csv.reader(rest.open(newline=""))][1:] == [["needs a person", "X:3"]]
    assert shown.err == "3 ids: 1 unchanged, 1 moved, 1 needs a person; 3 written.\n"


def test_ids_of_another_vocabulary(kbs, tmp_path, bioel):
    (tmp_path / "a.csv").write_text("text,id\nfever,X:1\na,UMLS:C1\nb,UMLS:C2\na,UMLS:C1\n")
    arguments = "migrate", tmp_path / "a.csv", *kbs, "-o", tmp_path / "b.csv"
    notes = bioel(*arguments, "--rest", tmp_path / "rest.csv", "--all").err
    assert notes.startswith("4 ids: 1 unchanged, 3 not in OLD; 4 written.\n")
    assert "W410" in notes and ": 3 (UMLS:C1, UMLS:C2)." in " ".join(notes.split())
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    rest = (tmp_path / "rest.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rest[1:]] == [
        ["not in OLD", id] for id in ("UMLS:C1", "UMLS:C2", "UMLS:C1")
    ]
    assert "UMLS" not in bioel(*arguments).out  # it would hide those that need a person


@pytest.mark.parametrize(("before", "options", "after", "shown"), cases(__file__, "migrations"))
def test_what_is_said_of_a_migration(kbs, tmp_path, bioel, before, options, after, shown):
    (tmp_path / "a.csv").write_text(before)
    table, notes = bioel("migrate", tmp_path / "a.csv", *kbs, "-o", tmp_path / "b.csv", *options)
    assert (tmp_path / "b.csv").read_text() == (after or before)
    found = f"{table}\n{' '.join(notes.split())}"
    for words in shown:
        assert words in found
    assert ("W410" in notes) == ("W410" in shown) and "X:4" not in table


def test_several_reports_of_a_check(kbs, tmp_path, bioel):
    (tmp_path / "a.csv").write_text("id,name\nX:1,ague\n")
    outs = tmp_path / "out.jsonl", tmp_path / "out.tsv"
    bioel("check", tmp_path / "a.csv", "--kb", kbs[0], "-o", outs[0], "-o", outs[1], status=1)
    assert [len(out.read_text("utf8").splitlines()) for out in outs] == [1, 2]
    assert "other concept" in outs[0].read_text() and "other concept" in outs[1].read_text()


def test_a_folder(kbs, tmp_path, bioel):
    folder = tmp_path / "brat"
    folder.mkdir()
    (folder / "a.txt").write_text("A cold.")
    (folder / "b.ann").touch()
    (folder / "a.ann").write_text("T1\tDisease 2 6\tcold\nN1\tReference T1 X:2\tcold\n")
    table, notes = bioel("migrate", folder, *kbs, "-o", tmp_path / "out", "--all")
    assert "Reference T1 X:4" in (tmp_path / "out" / "a.ann").read_text()
    assert (tmp_path / "out" / "b.ann").read_text() == ""
    assert (tmp_path / "out" / "a.txt").read_text() == "A cold."
    assert "moved" in table and "W482" not in notes


def test_everything_in_a_folder_is_in_the_copy(kbs, tmp_path, bioel):
    folder, out = tmp_path / "in", tmp_path / "out"
    for name in ("sub/deep", "empty", ".git"):
        (folder / name).mkdir(parents=True)
    files = {".git/a.ann": b"X:2", ".hidden": b"X:2", "sub/b.png": b"\x89PNG\0", "sub/c.txt": b""}
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
    (folder / "sub/deep/a.csv").write_text("id\nX:2\n")
    notes = bioel("migrate", folder, *kbs, "-o", out).err
    inside = [{path.relative_to(top) for path in top.rglob("*")} for top in (folder, out)]
    assert inside[0] == inside[1]
    assert {name: (out / name).read_bytes() for name in files} == files
    assert (out / "sub/deep/a.csv").read_text() == "id\nX:4\n"
    assert "W482" in notes and ": 3 (" in notes
    (folder / "d.ann").write_bytes("Fièvre".encode("latin1"))  # perhaps annotations: no copy
    bioel("migrate", folder, *kbs, "-o", tmp_path / "other", status=2)
    assert not (tmp_path / "other").exists()


def test_a_compressed_copy(kbs, tmp_path, bioel):
    (tmp_path / "a.jsonl").write_text('{"ids": ["X:2"]}\n')
    first, again = tmp_path / "b.jsonl.gz", tmp_path / "c.jsonl.gz"
    bioel("migrate", tmp_path / "a.jsonl", *kbs, "-o", first)
    bioel("migrate", first, *kbs, "-o", again)  # nothing changes any more
    with gzip.open(again, "rt") as file:
        assert file.read() == '{"ids": ["X:4"]}\n'
    assert first.read_bytes() == again.read_bytes()


def test_an_archive_is_not_written(kbs, tmp_path, bioel):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/a.csv.zst"
    path.write_bytes(zstandard.compress(b"id\nX:2\n"))
    assert "B198" in bioel("migrate", path, *kbs, "-o", tmp_path / "b.zst", status=2).err
    bioel("migrate", path, *kbs, "-o", tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "id\nX:4\n"
    shown = bioel("migrate", tmp_path / "in", *kbs, "-o", tmp_path / "out")
    assert (tmp_path / "out/a.csv.zst").read_bytes() == path.read_bytes()
    assert "W482" in shown.err


BRANCHES = concepts_of(cases(__file__, "branches"))


@pytest.mark.parametrize("branches, n", [(Branches(["X:1"]), 3), (Branches(exclude=["X:3"]), 2)])
def test_ids_of_a_branch_that_a_release_left_out(tmp_path, bioel, branches, n):
    whole, part = tmp_path / "whole", tmp_path / "part"
    build_kb(BRANCHES, whole)
    build_kb([*BRANCHES[:2], *BRANCHES[3:]], part, branches=branches)
    edit_names(part, {"X:1": NameEdit(add=["sign"])})  # which keeps the branches
    table, notes = bioel("kb", "diff", whole, part)
    assert "it was built with --" in table
    assert f"{n} not in NEW" in notes and "1 gone" in notes
    notes = bioel("kb", "diff", part, whole).err
    assert f"{n} not in OLD" in notes and "1 added" in notes
    (tmp_path / "a.csv").write_text("id\nX:4\nX:2\nX:1\n")
    table, notes = bioel("migrate", tmp_path / "a.csv", whole, part, "-o", tmp_path / "b.csv")
    assert "it was built with --" in table
    assert notes == "3 ids: 1 not in NEW, 1 gone, 1 unchanged; 3 written.\n"
    shown = bioel("migrate", tmp_path / "a.csv", part, whole, "-o", tmp_path / "b.csv")
    assert "part (it was built with --" in shown.err
