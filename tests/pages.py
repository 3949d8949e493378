"""Blocks of the pages of documentation, and how each kind is run."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from spacy_bioel.cli import main

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]
# The package that the project makes of the embedded corpus, and its pipeline.
PACKAGE, TRAINED = "en_core_link", ROOT / "models" / "embedded" / "final"
# Commands of other programs (pip, python -m spacy) are for the reader, and not run here.
_RUN = ("bioel ", "echo ", "cat ")
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|needs): (?P<about>[^>]+) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """Fenced block of a page.

    title (str): The file that it is, which other blocks of the page read; "": none.
    reason (str): Why it cannot be run here; "": it can.
    needs (str): A package without which it is left out; "": none.
    """

    language: str
    text: str
    title: str = ""
    reason: str = ""
    needs: str = ""
    line: int = 0

    @property
    def runs(self) -> bool:
        if self.reason or self.title:
            return False
        if self.needs and not is_there(self.needs):
            return False
        if self.language == "bash":
            return any(line.startswith(_RUN) for line in self.text.splitlines())
        return self.language == "python"


def is_there(package: str) -> bool:
    """Whether a package is installed, or the project has made the one of the embedded corpus."""
    return importlib.util.find_spec(package) is not None or (
        package == PACKAGE and TRAINED.is_dir()
    )


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text("utf8")
    for match in _BLOCK.finditer(text):
        mark, about = match["mark"], match["about"] or ""
        yield Block(
            match["language"],
            match["text"],
            title=match["title"] or "",
            reason=about if mark == "not run" else "",
            needs=about if mark == "needs" else "",
            line=text.count("\n", 0, match.start()) + 1,
        )


def run_page(page: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the blocks of a page in their order, in the current folder; the number of those that
    ran. What a block prints has to be in the block of text after it.
    """
    names: dict[str, object] = {"__name__": "page"}
    found = [*blocks(page), Block("", "")]
    ran = 0
    for block, following in pairwise(found):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf8")
        if not block.runs:
            continue
        ran += 1
        is_shown = following.language == "text" and not following.title
        expected = following.text if is_shown else None
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf8", write_through=True)
        with contextlib.redirect_stdout(out):
            if block.language == "python":
                code = "\n" * block.line + block.text  # tracebacks have the lines of the page
                exec(compile(code, str(ROOT / page), "exec"), names)
                expected = expected or ""
            else:
                for line in block.text.replace("\\\n", "").splitlines():
                    run_line(line.partition(" #")[0].strip(), monkeypatch)
        out.seek(0)
        if expected is not None:
            printed = out.read()
            assert printed == expected, f"{page}, line {block.line} printed:\n{printed}"
    return ran


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one command: `bioel ...`, `echo TEXT | bioel ...` or `cat FILE`."""
    *before, command = line.split(" | ")
    for echo in before:
        text = " ".join(shlex.split(echo)[1:]) + "\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    program, *arguments = shlex.split(command)
    if program == "cat":
        print(Path(arguments[0]).read_text("utf8"), end="")
        return
    assert program == "bioel", line
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert not done.value.code, line
