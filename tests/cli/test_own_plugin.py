"""The package in docs/guides/plugins.md, installed in a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kb_files import made_kb

from spacy_bioel.types import Concept

FILE = re.compile(r'^```\w+ title="(.+?)"\n(.*?)^```$', re.M | re.S)
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "plugins.md"


@pytest.mark.slow
def test_the_package_of_the_page(tmp_path):
    for title, text in FILE.findall(PAGE.read_text("utf8")):
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


@pytest.mark.slow
def test_names_that_are_used_twice(tmp_path):
    """Each is refused by name, and stops nothing else; the names of the package stay its own."""
    (tmp_path / "third.py").write_text("def adapt(nlp): ...\n\ndef link(): ...\n")
    points = "[spacy_bioel_presets]\nmine = third:{}\n[spacy_bioel_commands]\nlink = third:link\n"
    for name, value in (("first", "adapt"), ("second", "link")):
        (about := tmp_path / f"{name}-1.0.dist-info").mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(points.format(value))
    made_kb(tmp_path / "kb", [Concept("X:1", ("aspirin",))])
    (tmp_path / "note.txt").write_text("aspirin\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spacy_bioel", *arguments]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    linked = run("link", "kb", "note.txt", "-o", "out.jsonl")
    assert (linked.returncode, "Traceback" in linked.stderr) == (0, False)
    assert "[B660] Two installed packages register the command 'link': spacy_bioel" in linked.stderr
    assert "X:1" in (tmp_path / "out.jsonl").read_text()
    refused = run("link", "kb", "note.txt", "--preset", "mine")
    assert refused.returncode == 2 and "the preset 'mine': third:" in refused.stderr
