"""`bioel check` finds ids that mean something else, and corrects what is certain."""

import csv
import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from tables import cases, concepts_of

from spacy_bioel.cli import main
from spacy_bioel.kb.build import build_kb

CONCEPTS = concepts_of(cases(__file__, "findings"))


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kb") / "hp"
    build_kb(CONCEPTS, folder)
    return folder


@pytest.fixture()
def check(kb, capsys):
    """Run `bioel check` and return its exit status, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit:
            main(["check", "--kb", str(kb), *map(str, arguments)])
        return int(exit.value.code or 0), *capsys.readouterr()

    return run


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf8"))
    return path


@pytest.mark.parametrize(
    ("name", "text", "options", "status", "shown", "said"), cases(__file__, "checks")
)
def test_what_a_check_shows(check, tmp_path, monkeypatch, name, text, options, status, shown, said):
    monkeypatch.chdir(tmp_path)  # the table would wrap a long path
    found, table, notes = check(written(Path(name), text), *options)
    assert found == status
    assert all(words in table for words in shown) and bool(table) == bool(shown)
    assert all(words in notes for words in said)
    assert notes.count("[W400]") == sum("prefix" in words for words in said)


def test_ids_to_consider_have_no_score(check, tmp_path):
    check(written(tmp_path / "a.txt", "HP:0009998\n"), "-o", tmp_path / "a.csv")
    _, row = csv.reader((tmp_path / "a.csv").open(newline=""))
    assert row[2:5] == ["retired", "no replacement: ask a person", "HP:0001251 Ataxia"]


def test_tables_without_ids(check, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    path = written(folder / "a.csv", "code,finding\n0001250,Ataxia\n")
    status, _, notes = check(path)
    assert status == 0 and notes.startswith("[W416] ") and str(path) in notes
    assert "--columns" in notes and "--prefix" in notes
    assert "W416" not in check(path, "--columns", "id=code", "--prefix", "HP")[2]
    written(folder / "b.json", '{"code": "0001250"}')
    written(folder / "c.md", "no ids")
    written(folder / "d.yaml", "hpo_id: HP:0001250")
    notes = check(folder)[2]
    assert notes.count("[W416]") == 1 and "found: 2 (" in notes


def test_json_lines(check, tmp_path):
    path = written(tmp_path / "a.csv", "id,name\nHP:0001250,Ataxia\nHP:0009999,Fit\n")
    out = tmp_path / "out.jsonl"
    assert check(path, "-o", out)[0] == 1
    first, second = map(json.loads, out.read_text("utf8").splitlines())
    first["proposals"] = (*first["proposals"],)
    assert first == {"file": str(path)} | cases(__file__, "finding_in_json")
    found = second["verdict"], second["found"]["id"], second["certain"]
    assert found == ("retired", "HP:0001250", False)


def test_csv_and_html(check, tmp_path):
    path = written(tmp_path / "a.jsonl", '{"id": "HP:0001250", "label": "=1+<b>Ataxia"}\n')
    for name in ("o.csv", "o.html"):
        assert check(path, "-o", tmp_path / name)[0] == 1
    header, row = csv.reader((tmp_path / "o.csv").open(newline=""))
    assert row[0] == "'=1+<b>Ataxia" and header[1] == "id"
    page = (tmp_path / "o.html").read_text("utf8")
    assert "<summary>Knowledge bases</summary><ul><li>" in page
    assert "&lt;b&gt;Ataxia" in page and "http://purl.obolibrary.org/obo/HP_0001251" in page


def test_folders_and_stdin(check, tmp_path, monkeypatch):
    written(tmp_path / "a.md", "Ataxia (HP:0001250)\n")
    written(tmp_path / "b.yaml", "id: HP:0001250\nlabel: Ataxia\n")
    assert check(tmp_path)[2] == "2 ids: 2 other concept.\n"
    with (tmp_path / "a.md").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        status, table, _ = check("-")
    assert status == 1 and "stdin, line 1" in table


def test_a_file_that_cannot_be_read_does_not_hide_the_others(check, tmp_path):
    bad = written(tmp_path / "a.json", '{"id": ')
    good = written(tmp_path / "b.md", "Ataxia (HP:0001250)\n")
    status, table, notes = check(bad, good)
    assert status == 2 and "B601" in notes and "Ataxia" in table


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\xff\xfe"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"


def test_only_texts_in_a_folder_are_read(check, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    written(folder / "a.md", "Ataxia (HP:0001250)\n")
    files = {"b.png": PNG, "c.csv": b"", "d.jpg": JPEG, "e.dat": b"x\n\x00"}
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
    with ZipFile(folder / "f.docx", "w") as archive:
        archive.writestr("a.xml", "<a/>")
        archive.writestr("b.xml", "<b/>")
    status, table, notes = check(folder)
    assert status == 1 and table.count("HP:0001250") == 2
    assert notes.startswith("[W411] ") and "not text: 5 (" in notes and notes.count("\n") == 2
    # A file that is named is an error, as is a text in another encoding.
    for name in (*files, "f.docx"):
        code = {"c.csv": "B102", "f.docx": "B477"}.get(name, "B600")
        status, _, notes = check(folder / name)
        assert status == 2 and code in notes
    assert check(folder, folder / "b.png")[0] == 2
    for encoding in ("latin1", "utf16"):
        (folder / "g.txt").write_bytes("Ménière (HP:0001250)".encode(encoding))
        status, _, notes = check(folder)
        assert status == 2 and "B103" in notes
    (tmp_path / "other").mkdir()
    (tmp_path / "other/b.png").write_bytes(PNG)
    assert check(tmp_path / "other")[0] == 0


def test_a_baseline_accepts_what_was_wrong_before(check, tmp_path):
    path = written(tmp_path / "a.md", "Ataxia (HP:0001250)\n")
    base = tmp_path / "base.jsonl"
    assert check(path, "-o", base)[0] == 1
    assert check(path, "--baseline", base)[:2] == (0, "")
    written(path, "\n\nAtaxia (HP:0001250)\nSeizure (HP:0001251)\n")
    status, table, _ = check(path, "--baseline", base)
    assert status == 1 and table.count("other concept") == 1
    written(base, "no findings\n")
    assert check(path, "--baseline", base)[0] == 2


FIXES = cases(__file__, "fixes")


@pytest.mark.parametrize("name", FIXES)
def test_only_what_is_certain_is_corrected(check, tmp_path, name):
    before, after = FIXES[name]
    path, out = written(tmp_path / name, before), tmp_path / f"out-{name}"
    _, diff, _ = check(path, "--fix", out)
    assert out.read_bytes().decode("utf8") == after
    assert path.read_bytes().decode("utf8") == before
    assert "@@ -" in diff and "\n+" in diff


LABELS = cases(__file__, "labels")


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_replaced_in_the_style_of_the_file(check, tmp_path, name):
    before, after = LABELS[name]
    path, out = written(tmp_path / name, before), tmp_path / f"out-{name}"
    check(path, "--fix", out, "--labels")
    assert out.read_bytes().decode("utf8") == after


def test_the_exit_status_counts_what_is_left(check, tmp_path):
    path = written(tmp_path / "a.md", "HP:0009999")
    assert check(path)[0] == 1
    assert check(path, "--fix", tmp_path / "b.md")[0] == 0
    written(path, "HP:0009999 HP:0004321")
    status, _, notes = check(path, "--fix", tmp_path / "b.md")
    assert status == 1 and notes.endswith("1 not corrected: 1 unknown id.\n")
    written(tmp_path / "a.json", '{"id": "HP:0001250", "name": "Epileptic\\u0020fit"}')
    arguments = tmp_path / "a.json", "--fix", tmp_path / "b.json", "--labels"
    assert check(*arguments)[2].endswith("1 not corrected: 1 written in another way.\n")


def test_files_that_cannot_be_corrected(check, tmp_path):
    pytest.importorskip("openpyxl")
    path = written(tmp_path / "a.md", "HP:0009999")
    for sources in ([path, path], ["-"], [tmp_path / "a.xlsx"]):
        assert "B604" in check(*sources, "--fix", tmp_path / "out")[2]
    assert "B493" in check(path, "--fix", path)[2]
    assert "B198" in check(path, "-o", tmp_path / "a.pdf")[2]
