"""Generated parts of pages are current, and what pages point to exists."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path

import pytest
import srsly

from benchmarks import protocols
from benchmarks.docstrings import sections
from benchmarks.reference import BUILT, DESCRIPTIONS, PAGE, built, defaults, filled, settings_table
from benchmarks.site import with_links_of_the_site
from spacy_bioel.cli.error_files import SHOWN
from spacy_bioel.scoring.evaluation import BINS

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


def test_protocols_and_kinds_of_errors_are_current() -> None:
    text = protocols.page()
    assert protocols.PAGE.read_text("utf8") == text
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len([line for line in lines if line.count("|") == 10]) == 10
    text = protocols.ERRORS.read_text("utf8")
    assert protocols.errors_page() == text
    assert f"up to {SHOWN} errors of each kind" in text
    assert BINS == 10 and "in ten bins" in text


def test_each_complaint_has_a_page_and_a_test() -> None:
    sections = re.split(r"^## ", (ROOT / "docs/answers.md").read_text("utf8"), flags=re.M)[1:]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 17))
    for section in sections:
        assert re.search(r"^\* Page: \[", section, re.M)
        ((file, function),) = re.findall(r"^\* Test: `([\w/]+\.py)::(\w+)`", section, re.M)
        tree = ast.parse((ROOT / file).read_text("utf8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_pictures_of_pages_show_nothing_that_a_keyboard_cannot_reach() -> None:
    pages = ["documentation", "errors", "explain", "links", "service"]
    found = sorted(path.name for path in (ROOT / "docs/img").glob("*.png"))
    assert found == [f"{page}-{scheme}.png" for page in pages for scheme in ("dark", "light")]
    rows = json.loads((ROOT / "benchmarks/results/accessibility.json").read_text("utf8"))
    values = {(row["system"], row["scheme"], row["metric"]): row["value"] for row in rows}
    assert sorted({page for page, *_ in values}) == pages
    assert {n for (*_, metric), n in values.items() if metric == "serious_violations"} == {0}
    unreached = {
        page: values[page, scheme, "focusable"] - values[page, scheme, "reached_by_keyboard"]
        for page, scheme, _ in values
    }
    # Two links of the documentation's theme are not shown at this width.
    assert unreached == dict.fromkeys(pages, 0) | {"documentation": 2}
