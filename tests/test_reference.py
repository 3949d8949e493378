"""Generated parts of pages are current, and what pages point to exists."""

import ast
import os
import re
from pathlib import Path

import pytest
from spacy import blank

from benchmarks import protocols, readme
from benchmarks.reference import BUILT, MODELS, PAGE, PARTS, built, filled, settings_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("pipe", MODELS)
def test_every_setting_is_described(pipe):
    default = blank("en").get_factory_meta(pipe).default_config
    parts = {*PARTS.get(pipe, {})}
    rules = {f"entities.{name}" for name in default.get("entities", ())}
    assert {*MODELS[pipe].model_fields, *parts - rules} == {*default} - {"entities"}
    assert rules <= parts
    assert all(text.endswith(".") for _, _, text in settings_of(MODELS[pipe]))


def test_the_settings_are_current():
    text = PAGE.read_text("utf8")
    assert filled(text) == text


def test_the_site_has_what_the_repository_has_not():
    texts = [path.read_text("utf8") for path in ROOT.glob("docs/**/*.md")]
    named = [name for text in texts for name in re.findall(r"<!-- built: (\w+) -->", text)]
    assert sorted(named) == sorted(BUILT) == ["commands", "errors", "mistakes", "warnings"]
    assert "**A path that does not exist**" in built("a\n\n<!-- built: mistakes -->\n")


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_tables_are_current(page):
    text = page.read_text("utf8")
    assert readme.filled(text) == text


def test_every_page_is_in_the_menu_or_one_link_from_it():
    text = (ROOT / "mkdocs.yml").read_text("utf8")
    menu = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text, re.M)
    assert len(menu) == 21
    files = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
    linked: set[str] = set()
    for page in menu:
        path = ROOT / files.get(page, f"docs/{page}")
        targets = re.findall(r"(?:\]\(|^\[[^\]]+\]: )([^)\s#]+\.md)", path.read_text("utf8"), re.M)
        linked |= {os.path.relpath(path.parent / target, ROOT / "docs") for target in targets}
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert written - linked - set(menu) == set()


def test_the_site_loads_nothing_from_others():
    text = (ROOT / "mkdocs.yml").read_text("utf8")
    assert "  font: false" in text and "http" not in text
    assert not [path for path in ROOT.glob("docs/stylesheets/*") if "http" in path.read_text()]


def test_protocols_and_kinds_of_errors_are_current():
    assert protocols.PAGE.read_text("utf8") == protocols.page()
    assert protocols.ERRORS.read_text("utf8") == protocols.errors_page()


def test_each_complaint_has_a_page_and_a_test():
    sections = re.split(r"^## ", (ROOT / "docs/answers.md").read_text("utf8"), flags=re.M)[1:]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 17))
    for section in sections:
        assert re.search(r"^\* Page: \[", section, re.M)
        ((file, function),) = re.findall(r"^\* Test: `([\w/]+\.py)::(\w+)`", section, re.M)
        tree = ast.parse((ROOT / file).read_text("utf8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
