"""Files of commands: full disks, folders, devices, pipes, links and permissions."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spacy_bioel.cli.console import check_distinct
from spacy_bioel.errors import BioelError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="devices, FIFOs, permissions")


@pytest.fixture()
def notes(tmp_path_factory) -> Path:
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


@pytest.mark.parametrize(
    ("option", "name"),
    [("-o", "out.jsonl"), ("-o", "out.parquet"), ("-o", "out.bioc.xml"), ("-o", "out.html")],
)
def test_a_full_disk_leaves_what_was_there(bioel, model, notes, tmp_path, option, name):
    if name == "out.parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / name
    out.write_text("before")
    with full_disk():
        shown = bioel("link", model, notes, option, out, status=2).err
    assert shown.startswith(f"error: [B252] {out} ") and shown.count("\n") == 1
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("argv", [("-o",), ("-o", "-", "-o")])
def test_a_path_below_a_file(bioel, model, notes, tmp_path, argv):
    (tmp_path / "file").touch()
    done = bioel("link", model, notes, *argv, tmp_path / "file" / "out.jsonl", status=2)
    assert done.out == "" and done.err.count("\n") == 1
    assert done.err.startswith(f"error: [B252] {tmp_path / 'file'}")


def test_a_named_pipe_is_written_to(bioel, model, notes, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        bioel("link", model, notes, "-o", pipe)
        found = reader.communicate(timeout=60)[0]
    assert "MESH:D009270" in found and "Nothing here." in found
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_permissions_and_links_are_kept(bioel, model, notes, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.touch(mode=0o600)
    link.symlink_to(real)
    bioel("link", model, notes, "-o", link)
    assert link.is_symlink() and real.read_text().count("\n") == 2
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_what_is_no_file_may_be_given_twice(tmp_path):
    check_distinct(["-", None, "/dev/null", tmp_path], ["-", "-", "/dev/null", None])
    check_distinct([tmp_path / "a"], [tmp_path / "b", tmp_path / "c"])
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to("a")
    for inputs, outputs in (["a"], ["b"]), ([], ["new", "x/../new"]), ([], ["a", "b"]):
        with pytest.raises(BioelError, match=r"\[B493\]|\[B555\]"):
            check_distinct(map(tmp_path.joinpath, inputs), map(tmp_path.joinpath, outputs))
