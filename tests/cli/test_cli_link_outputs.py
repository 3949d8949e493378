"""Outputs of the commands, and texts that no file can hold."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="devices, FIFOs, permissions")


@pytest.fixture()
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notes") / "notes.txt"
    path.write_text("Narcan was given.\nNothing here.\n")
    return path


@contextmanager
def full_disk() -> Iterator[None]:
    """A file can have 100 bytes, and no more."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def rows(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("option", "name"),
    [("-o", "out.jsonl"), ("-o", "out.parquet"), ("-o", "out.bioc.xml"), ("--html", "out.html")],
)
def test_nothing_half_written_is_left(
    run: Run, model: Path, notes: Path, tmp_path: Path, option: str, name: str, capsys: Capture
) -> None:
    if name == "out.parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / name
    with full_disk():
        assert run("link", model, notes, option, out) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: [B252] {out} cannot be read or written: File too large.")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_stays_when_the_disk_is_full(
    run: Run, model: Path, notes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with full_disk():
        assert run("link", model, notes, "-o", out) == 2
    assert out.read_text() == "before" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("argv", [("-o",), ("--html",), ("-o", "-", "--html")])
def test_a_path_below_a_file(
    run: Run, model: Path, notes: Path, tmp_path: Path, argv: tuple[str, ...], capsys: Capture
) -> None:
    (tmp_path / "file").touch()
    assert run("link", model, notes, *argv, tmp_path / "file" / "out.jsonl") == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(f"error: [B252] {tmp_path / 'file'}")
    assert found.err.count("\n") == 1


def test_a_folder_that_is_missing_is_made(
    run: Run, model: Path, notes: Path, tmp_path: Path
) -> None:
    out, page = tmp_path / "a" / "b" / "out.jsonl", tmp_path / "c" / "out.html"
    assert run("link", model, notes, "-o", out, "--html", page) == 0
    assert len(rows(out.read_text())) == 2 and page.read_text().endswith("</html>\n")


def test_a_device_stays_a_device(run: Run, model: Path, notes: Path) -> None:
    before = os.stat("/dev/null")
    assert run("link", model, notes, "-o", "/dev/null", "--html", "/dev/null") == 0
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and after.st_ino == before.st_ino


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_a_named_pipe_is_written_to(
    run: Run, model: Path, notes: Path, tmp_path: Path, option: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        assert run("link", model, notes, option, pipe) == 0
        found = reader.communicate(timeout=60)[0]
    assert "MESH:D009270" in found and "Nothing here." in found
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_permissions_and_links_are_kept(run: Run, model: Path, notes: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.touch(mode=0o600)
    link.symlink_to(real)
    assert run("link", model, notes, "-o", link) == 0
    assert link.is_symlink() and len(rows(real.read_text())) == 2
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.parametrize("n_process", [1, 2])
@pytest.mark.parametrize("source", ["-", "notes.txt"])
def test_a_byte_that_is_no_utf8_is_the_error_of_its_document(
    run: Run,
    model: Path,
    tmp_path: Path,
    source: str,
    n_process: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    text = b"Narcan\nNarcan \xff and caf\xc3\xa9\nclonidine\n"
    (tmp_path / "notes.txt").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), encoding="ascii"))
    assert run("link", model, source, "--format", "text", "--n-process", n_process) == 1
    found = capsys.readouterr()
    assert "3 documents, 2 mentions, 0 of them NIL.\n1 document failed: see error" in found.err
    first, second, third = rows(found.out)
    assert [first["links"][0]["id"], third["links"][0]["id"]] == ["MESH:D009270", "MESH:D003000"]
    assert (second["id"], second["text"], second["links"]) == ("2", "Narcan \ufffd and café", [])
    assert second["error"]["code"] == "B251"


def test_half_a_surrogate_pair_is_the_error_of_its_document(
    run: Run, model: Path, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "1", "text": "Narcan \\ud83d"}\n{"id": "2", "text": "Narcan"}\n')
    assert run("link", model, source, "-o", tmp_path / "out.parquet") == 1
    first, second = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["text"], first["error"]["code"]) == ("Narcan \ufffd", "B251")
    assert second["links"][0]["id"] == "MESH:D009270"


def test_utf16_is_refused(run: Run, model: Path, tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "notes.txt"
    source.write_bytes("Narcan\n".encode("utf-16"))
    assert run("link", model, source, "--format", "text") == 2
    assert f"[B103] {source}, line 1: the mark of UTF-16 is not utf8." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gold.spacy", "gold.jsonl"])
def test_convert_on_a_full_disk(
    run: Run, corpus: Path, tmp_path: Path, name: str, capsys: Capture
) -> None:
    out = tmp_path / name
    with full_disk():
        assert run("convert", corpus, out) == 2
    assert f"error: [B252] {out} cannot be read or written: File too" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [corpus]


def test_json_to_a_full_device(run: Run, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run("convert", corpus, tmp_path / "gold.jsonl", "--json", "/dev/full") == 2
    assert "[B252] /dev/full cannot be read or written: No space" in capsys.readouterr().err


def test_kb_build_on_a_full_disk(
    run: Run, concepts_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    with full_disk():
        assert run("kb", "build", tmp_path / "kb", concepts_file) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: [B") and shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == [concepts_file]


@pytest.fixture
def kbs(run: Run, tmp_path: Path) -> list[Path]:
    """Two knowledge bases, of drugs and of signs."""
    folders = []
    for name, id in (("Narcan", "D:1"), ("Fever", "S:1")):
        record = {"id": id, "names": [name], "xrefs": [f"MSH:{name}"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
        folders.append(tmp_path / name)
        assert run("kb", "build", folders[-1], tmp_path / f"{name}.jsonl") == 0
    return folders


def test_names_of_several_knowledge_bases_with_cross_references(
    run: Run, kbs: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a.txt").write_text("Fever after narcan.\n")
    capsys.readouterr()
    assert run("link", kbs[0], tmp_path / "a.txt", "--kb", kbs[1], "--xrefs") == 0
    [row] = rows(capsys.readouterr().out)
    found = [(x["text"], x["label"], x["id"], x["candidates"][0]["xrefs"]) for x in row["links"]]
    assert found == [
        ("Fever", "Fever", "S:1", ["MSH:Fever"]),
        ("narcan", "Narcan", "D:1", ["MSH:Narcan"]),
    ]
    assert run("link", kbs[0], tmp_path / "a.txt") == 0
    [row] = rows(capsys.readouterr().out)
    assert [(x["id"], sorted(x["candidates"][0])) for x in row["links"]] == [
        ("D:1", ["evidence", "id", "name", "score"])
    ]
