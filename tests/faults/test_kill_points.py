"""A writer that is killed, or whose disk fails, at any of its changes leaves the old or the new."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kb_files import made_kb
from kill_points import in_child

from spacy_bioel import files
from spacy_bioel.cli import main
from spacy_bioel.files import replacing_file, replacing_folder, replacing_text
from spacy_bioel.types import Concept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

TEXTS = "".join(f"Fever, document {n}.\n" for n in range(4))
GOLD = "1|t|Fever.\n1|a|None.\n1\t0\t5\tFever\tDisease\tX:1\n\n"


def bioel(*words: str) -> Callable[[Path], object]:
    """A command, whose last argument is its output."""

    def run(out: Path) -> None:
        os.chdir(out.parent.parent)
        try:
            main([*words, str(out)])
        except SystemExit as ended:
            if ended.code:
                raise

    return run


def file(out: Path) -> None:
    with replacing_file(out) as path:
        path.write_text("new")


def text(out: Path) -> None:
    with replacing_text(out) as to:
        to.write("new")


def folder(out: Path) -> None:
    with replacing_folder(out) as path:
        (path / "new").touch()


def moved(out: Path) -> None:
    """As where the system cannot exchange two folders."""
    files._exchange = lambda *paths: False  # of this process only
    folder(out)


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "file": ("out", file),
    "text": ("out", text),
    "folder": ("folder", folder),
    "moved folder": ("folder", moved),
    "links": ("out.csv", bioel("link", "kb", "notes.txt", "--resume", "-o")),
    "links in folders": ("out.ann", bioel("link", "kb", "notes.txt", "--resume", "-o")),
    "corpus": ("out.spacy", bioel("convert", "gold.txt")),
    "report": (
        "report.html",
        bioel("corpus", "check", "gold.txt", "dev.txt", "--kb", "kb", "--html"),
    ),
}


def state(out: Path) -> Any:
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes() if out.exists() else None


CASES = [
    pytest.param(writer, how, marks=[pytest.mark.slow] * ("." in out and writer != "links"))
    for writer, (out, _) in WRITERS.items()
    for how in ("killed", "full")
]


@pytest.mark.parametrize(("writer", "how"), CASES)
def test_the_old_or_the_new_is_left(request, tmp_path, writer, how):
    made_kb(tmp_path / "kb", [Concept("X:1", ("Fever",))])
    (tmp_path / "notes.txt").write_text(TEXTS)
    (tmp_path / "gold.txt").write_text(GOLD)
    (tmp_path / "dev.txt").write_text("2|t|High fever.\n2|a|x\n2\t5\t10\tfever\tDisease\tX:1\n\n")
    name, run = WRITERS[writer]
    out = tmp_path / "outputs" / name

    def prepare() -> None:
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        if writer.endswith("folder"):
            out.mkdir()
            (out / "old").touch()
        elif not writer.endswith("folders"):  # a folder of BRAT has to be empty
            out.write_text("old")

    def run_in_child(**options: Any) -> tuple[int, int]:
        return in_child(run, out, within=out.parent, **options)

    prepare()
    before = state(out)
    ended, n_points = run_in_child()
    after = state(out)
    assert (ended, before != after) == (0, True) and n_points > 2
    points = list(range(1, n_points + 1))
    if writer == "links" and not request.config.getoption("--slow"):
        points = Random(0).sample(points, 2)
    for point in points:
        prepare()
        ended, _ = run_in_child(point=point, full=how == "full")
        assert ended == (0 if how == "full" else -signal.SIGKILL)
        assert state(out) in (before, after, *[None] * (writer == "moved folder"))
        if how == "full" and writer != "moved folder":
            assert {path.name for path in out.parent.iterdir()} <= {name, f"{name}.partial"}
        if writer == "links in folders" and out.exists():
            continue  # it is complete, and no folder to write into
        assert run_in_child()[0] == 0
        assert state(out) == after
        assert [path.name for path in out.parent.iterdir()] == [name]
