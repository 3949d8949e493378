"""One word for one thing: the glossary of CONTRIBUTING.md, and the form of docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from spacy_bioel.pipeline.factories import LINKER_EVIDENCE
from spacy_bioel.pipeline.linker.evidence import FEATURES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spacy_bioel"
# Folders whose docstrings begin with a noun or a verb.
FOLDERS = [
    "spacy_bioel",
    "benchmarks",
    "training/scripts",
    "tests",
]
INTERROGATIVES = {"What", "Which", "How", "Where", "When", "Why", "Whatever", "Would", "Does"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "-").split()[0]
                if first in INTERROGATIVES:
                    found.append(f"{path.name}: {getattr(node, 'name', 'module')}")
    assert found == []


def test_glossary() -> None:
    """Each word has a module where it lives, and a row to itself; old keys are those in use."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    words, keys = (
        [line.split(" | ") for line in table.splitlines()[2:]]
        for table in re.findall(r"(?:^\|.*\n)+", glossary, re.MULTILINE)
    )
    files = {path for row in words for path in re.findall(r"`([\w/]+\.py)`", row[2])}
    assert [f for f in sorted(files) if not any((p / f).is_file() for p in (PACKAGE, ROOT))] == []
    assert [row for row in words if "`" not in row[2]] == []
    assert len({row[0] for row in words}) == len(words) > 20

    def names(place: str) -> set[str]:
        return {key for row in keys if place in row[1] for key in re.findall(r"`(\w+)`", row[0])}

    assert names("FEATURES") < set(FEATURES)
    assert names("setting `evidence`") == set(LINKER_EVIDENCE)
