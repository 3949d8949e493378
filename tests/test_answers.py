"""docs/answers.md: sixteen complaints, and for each of them a page and a test that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/answers.md").read_text("utf8")
SECTIONS = re.split(r"^## ", TEXT, flags=re.M)[1:]


def test_there_are_sixteen() -> None:
    assert [int(section.partition(".")[0]) for section in SECTIONS] == list(range(1, 17))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_each_has_a_page_and_a_test(section: str) -> None:
    assert re.search(r"^\* Page: \[", section, re.M)
    ((file, function),) = re.findall(r"^\* Test: `([\w/]+\.py)::(\w+)`", section, re.M)
    tree = ast.parse((ROOT / file).read_text("utf8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
