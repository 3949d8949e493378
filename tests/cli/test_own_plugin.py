"""The package in docs/guides/plugins.md, installed in a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from kb_files import made_kb

from spacy_bioel.types import Concept

FILE = re.compile(r'^```\w+ title="(.+?)"\n(.*?)^```$', re.M | re.S)
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "plugins.md"


def test_the_package_of_the_page(tmp_path):
    for title, text in re.findall(
        r'^```\w+ title="(.+?)"\n(.*?)^```$', PAGE.read_text("utf8"), re.M | re.S
    ):
        (tmp_path / title).write_text(text, encoding="utf8")
    made_kb(tmp_path / "kb", [Concept("X:1", ("aspirin",)), Concept("X:2", ("fever",))])
    target = tmp_path / "installed"
    env = {**os.environ, "PYTHONPATH": str(target)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target), ".")
    run("spacy_bioel", "link", "note.txt", "--preset", "trials", "-o", "found.ids")
    assert (tmp_path / "found.ids").read_text("utf8") == "MESH:D001241\nNCT:01234567\n"
    assert run("spacy_bioel", "kb", "size", "kb") == "2\n"
