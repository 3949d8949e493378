"""Generated parts of the reference: each setting has a description, and nothing else has one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import srsly

from benchmarks.docstrings import sections
from benchmarks.reference import BUILT, DESCRIPTIONS, PAGE, built, defaults, filled, settings_table
from benchmarks.site import with_links_of_the_site

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("pipe", ["bioel_mentions", "bioel_linker"])
def test_every_setting_is_described_in_the_order_of_the_code(pipe: str) -> None:
    described = srsly.read_yaml(DESCRIPTIONS)[pipe]
    assert list(described) == list(defaults(pipe))
    assert [name for name, text in described.items() if len(text.split()) < 4] == []


def test_settings_and_their_defaults() -> None:
    lines = settings_table("bioel_linker").splitlines()
    assert "| `nil_threshold` | `0.25` | From 0 to 1. The best candidate is not linked (NIL)" in (
        "\n".join(lines)
    )
    assert len([line for line in lines if line.startswith("| `evidence.")]) == 8
    assert "| `model` | `spacy-bioel.ResCNN.v1` |" in "\n".join(lines)


def test_commands_have_their_options() -> None:
    text = BUILT["commands"]()
    assert {"## bioel link", "## bioel kb build", "## bioel tune"} <= set(text.splitlines())
    assert "| `--engine` | `local or spark` | `local` |" in text


def test_messages_can_stand_in_a_table() -> None:
    lines = BUILT["errors"]().splitlines()
    assert len(lines) > 150 and {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert '| <a id="B020"></a>B020 | No knowledge base in *path*: expected' in "\n".join(lines)


def test_the_settings_are_current() -> None:
    text = PAGE.read_text("utf8")
    assert filled(text) == text
    assert text.count("<!-- generated: settings ") == 3


def test_the_site_has_what_the_repository_has_not() -> None:
    texts = [path.read_text("utf8") for path in ROOT.glob("docs/**/*.md")]
    named = [name for text in texts for name in re.findall(r"<!-- built: (\w+) -->", text)]
    assert sorted(named) == sorted(BUILT) == ["commands", "errors", "mistakes", "warnings"]
    assert "**A path that does not exist**" in built("a\n\n<!-- built: mistakes -->\n")


def test_links_are_those_of_the_site() -> None:
    text = "[a](../../README.md#install) [b](../guides/x.md) [c](https://x.org)\n"
    assert with_links_of_the_site(text, source="docs/t/p.md", page="t/p.md") == (
        "[a](../index.md#install) [b](../guides/x.md) [c](https://x.org)\n"
    )
    assert with_links_of_the_site("[d]: docs/y.md\n", source="README.md", page="index.md") == (
        "[d]: y.md\n"
    )


def test_docstrings_get_sections() -> None:
    text = "Find a row.\n\nid (str): Of a concept,\n    or none.\n"
    text += "RETURNS (int): The row.\nRAISES X: [B1]."
    assert sections(text, "Args") == (
        "Find a row.\n\n\nArgs:\n    id (str): Of a concept,\n        or none."
        "\n\nReturns:\n    int: The row.\n\nRaises:\n    X: [B1]."
    )


def test_every_page_is_in_the_menu_or_one_link_from_it() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf8")
    menu = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text, re.M)
    assert len(menu) == 20
    files = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
    linked: set[str] = set()
    for page in menu:
        path = ROOT / files.get(page, f"docs/{page}")
        targets = re.findall(r"(?:\]\(|^\[[^\]]+\]: )([^)\s#]+\.md)", path.read_text("utf8"), re.M)
        linked |= {os.path.relpath(path.parent / target, ROOT / "docs") for target in targets}
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert written - linked - set(menu) == set()


def test_the_site_loads_nothing_from_others() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf8")
    assert "  font: false" in text and "http" not in text
    assert not [path for path in ROOT.glob("docs/stylesheets/*") if "http" in path.read_text()]
