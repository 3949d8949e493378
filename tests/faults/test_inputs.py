"""Malformed files and arguments end in a coded error, and take little memory."""

import gzip
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from spacy_bioel.cli import main
from spacy_bioel.cli.console import visible
from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.open import BadRecord, open_binary, skipping_bad
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

MB = 1_000_000
HALF = "caf\udce9"  # what Python makes of an argument in Latin-1
ESCAPES = "\x1b]0;owned\x07\x1b[2Jfever\x9b31m\u202e:id:"


def zipped(*contents: bytes) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.json", content)
    return out.getvalue()


def bioel(folder: Path, *arguments: str | bytes) -> tuple[int, str]:
    """Run a command in a process with 4 GB of address space; return exit status and stderr."""
    limit = "import resource as r; r.setrlimit(r.RLIMIT_AS, (4 << 30,) * 2); "
    run = "from spacy_bioel.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", limit + run, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=120,
    )
    return done.returncode, done.stderr.decode("utf8")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, zipped])
def test_an_archive_of_nothing_but_size_is_refused(tmp_path, pack):
    path = tmp_path / "bomb"
    path.write_bytes(pack(b'{"X:1": [' + b"[],\n" * (25 * MB) + b"[]]}"))
    read = 0
    with pytest.raises(BioelError, match=r"\[B478\] .*67,108,864 bytes, 100 times its size"):
        with open_binary(path) as file:
            while piece := file.read(MB):
                read += len(piece)
    assert 60 * MB < read < 68 * MB


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, zipped])
def test_an_archive_of_text_is_read_to_its_end(tmp_path, pack):
    path = tmp_path / "repeated"
    path.write_bytes(pack(b"the same line\n" * (2 * MB)))
    with open_binary(path) as file:
        assert sum(len(piece) for piece in iter(lambda: file.read(MB), b"")) == 28 * MB


def test_a_zip_of_two_files(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(b"a", b"b"))
    with pytest.raises(BioelError, match=r"\[B477\] .*contains 2 files, expected one"):
        list(read_ontology(tmp_path / "a.zip"))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_table_of_one_line_that_does_not_decode(tmp_path, name):
    (tmp_path / name).write_bytes(b"id\tn\xe9\n")
    noted: list[BadRecord] = []
    with skipping_bad(noted.append), pytest.raises(BioelError, match=r"\[B141\]"):
        list(read_ontology(tmp_path / name, format="table"))
    assert {record.code for record in noted} == {"B103"}


@pytest.mark.parametrize("field", ["names", "types", "definition", "xrefs"])
def test_half_a_character_is_in_no_knowledge_base(tmp_path, field):
    value = HALF if field == "definition" else (HALF,)
    records = [Concept(**{"id": "X:1", "names": ("one",), field: value})]
    with pytest.raises(BioelError, match=r"\[B480\] 'caf\\udce9'"):
        build_kb([*records, Concept("X:2", ("two",))], tmp_path / "kb")
    assert not (tmp_path / "kb").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("kb", "edit", "kb", "X:1", "--add", b"caf\xe9"), "B480"),
        (("kb", "add", "kb", "more.tsv", "--source-name", b"caf\xe9"), "B480"),
        (("kb", "show", "kb", b"caf\xe9"), "B337"),
        (("kb", "retire", "kb", b"caf\xe9"), "B200"),
        (("explain", "kb", b"one caf\xe9"), "B480"),
    ],
)
def test_arguments_that_are_not_utf8(tmp_path, monkeypatch, capsys, arguments, code):
    build_kb([Concept("X:1", ("one",)), Concept("X:2", ("two",))], tmp_path / "kb")
    (tmp_path / "more.tsv").write_text("id\tname\nX:3\tthree\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([os.fsdecode(argument) for argument in arguments])
    assert (ended.value.code, capsys.readouterr().err[:14]) == (2, f"error: [{code}] ")
    assert KnowledgeBase.open(tmp_path / "kb").concept(0).names == ("one",)


def test_control_characters_are_visible():
    assert visible(ESCAPES) == r"\x1b]0;owned\x07\x1b[2Jfever\x9b31m\u202e:id:"
    assert visible("naïve\tα\n\N{ZERO WIDTH JOINER}") == "naïve\tα\n\N{ZERO WIDTH JOINER}"


@pytest.mark.parametrize(
    "arguments",
    [("show", "kb", "X:1"), ("search", "kb", "fever"), ("info", "kb"), ("show", "kb", ESCAPES)],
)
def test_names_do_not_steer_the_terminal(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    concept = Concept("X:1", (ESCAPES, "fever"), (ESCAPES,), definition=ESCAPES, xrefs=(ESCAPES,))
    build_kb([concept], tmp_path / "kb", source=ESCAPES, release=ESCAPES)
    with pytest.raises(SystemExit):
        main(["kb", *arguments])
    shown = "".join(capsys.readouterr())
    assert "owned" in shown and ":id:" in shown
    assert [
        found for found in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e") if found in shown
    ] == []
