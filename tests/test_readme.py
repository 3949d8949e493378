"""Every Python block of the README and of the page of the starter runs, and prints what the block
after it says.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest
import spacy

from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build.build import build_kb

ROOT = Path(__file__).parents[1]
PACKAGE = "en_core_link"
TRAINED = ROOT / "models" / "embedded" / "final"
TEXTS = {page: (ROOT / page).read_text("utf8") for page in ("README.md", "docs/starter.md")}
BLOCKS = [
    block
    for text in TEXTS.values()
    for block in re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.DOTALL)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 5
    assert [text.count("```python") for text in TEXTS.values()] == [4, 1]


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_block(code: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_kb(
        read_ontology(ROOT / "training/assets/mesh_excerpt.jsonl"), tmp_path / "kb/mesh_excerpt"
    )
    monkeypatch.chdir(tmp_path)
    if PACKAGE in code and importlib.util.find_spec(PACKAGE) is None:
        if not TRAINED.is_dir():
            pytest.skip(f"{PACKAGE} is made by `python -m spacy project run all`; it was not run")
        load = spacy.load
        monkeypatch.setattr(spacy, "load", lambda name: load(TRAINED if name == PACKAGE else name))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue() == printed


def test_the_two_commands_are_one_line_each() -> None:
    commands = re.findall(
        r"```bash\n(python3 -m venv .*?)\n```", (ROOT / "README.md").read_text("utf8")
    )
    assert [command.rsplit(" && ", 1)[1] for command in commands] == [
        ".venv/bin/python -m spacy project run all",
        ".venv/bin/python -m pytest -n auto",
    ]
