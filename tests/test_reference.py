"""Generated parts of pages are current, and what pages point to exists."""

import ast
import re
from pathlib import Path

import pytest
from spacy import blank

from benchmarks import protocols, readme
from benchmarks.reference import (
    GENERATED,
    MODELS,
    PAGES,
    PARTS,
    filled,
    messages_of,
    settings_of,
)
from spacy_bioel.errors import Errors, Warnings

pytestmark = pytest.mark.pages
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("pipe", MODELS)
def test_every_setting_is_described(pipe):
    default = blank("en").get_factory_meta(pipe).default_config
    parts = {*PARTS.get(pipe, {})}
    rules = {f"entities.{name}" for name in default.get("entities", ())}
    assert {*MODELS[pipe].model_fields, *parts - rules} == {*default} - {"entities"}
    assert rules <= parts
    assert all(text.endswith(".") for _, _, text in settings_of(MODELS[pipe]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_generated_parts_are_current(page):
    """If this fails, run python -m benchmarks.reference."""
    text = page.read_text("utf8")
    assert filled(text) == text


def test_no_code_is_used_twice():
    """By the engine and a plugin, or by two plugins."""
    codes = [code for kind in (Errors, Warnings) for code, _ in messages_of(kind)]
    assert len(codes) == len(set(codes)) > 300


def test_each_generated_part_is_in_one_page():
    pages = [*ROOT.glob("docs/**/*.md")]
    named = [
        name
        for page in pages
        for name in re.findall(r"<!-- generated: ([\w ]+) -->", page.read_text("utf8"))
    ]
    assert sorted(named) == sorted(GENERATED)
    stale = "<!-- generated: mistakes -->\nSTALE\n<!-- end -->\n"
    assert "**A path that does not exist**" in filled(stale) and "STALE" not in filled(stale)


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_tables_are_current(page):
    text = page.read_text("utf8")
    assert readme.filled(text) == text


def test_every_page_is_in_the_menu_and_the_index():
    site = (ROOT / "mkdocs.yml").read_text("utf8")
    menu = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", site, re.M)
    index = re.findall(r"\]\(([^)\s#]+\.md)\)", (ROOT / "docs/README.md").read_text("utf8"))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    written -= {"README.md"}
    assert written - set(menu) == set()
    assert written - set(index) == set()
    assert len(menu) == len(set(menu)) and len(index) == len(set(index))


def test_the_site_loads_nothing_from_others():
    text = (ROOT / "mkdocs.yml").read_text("utf8")
    assert "  font: false" in text and "http" not in text
    assert not [path for path in ROOT.glob("docs/stylesheets/*") if "http" in path.read_text()]


def test_protocols_and_kinds_of_errors_are_current():
    assert protocols.PAGE.read_text("utf8") == protocols.page()
    assert protocols.ERRORS.read_text("utf8") == protocols.errors_page()


def test_each_complaint_has_a_page_and_a_test():
    text = (ROOT / "docs/guides/answers.md").read_text("utf8")
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 17))
    for section in sections:
        assert re.search(r"^\* Page: \[", section, re.M)
        ((file, function),) = re.findall(r"^\* Test: `([\w/]+\.py)::(\w+)`", section, re.M)
        tree = ast.parse((ROOT / file).read_text("utf8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_pictures_of_the_readme_on_a_package_index_and_on_the_site(monkeypatch):
    monkeypatch.setattr(readme, "address", lambda: "https://host.org/us/bioel/blob/main/")
    text = readme.filled((ROOT / "README.md").read_text("utf8"))
    raw = "https://host.org/us/bioel/raw/main/docs/img"
    assert f'srcset="{raw}/links-dark.png"' in text and f'src="{raw}/links-light.png"' in text
    assert f"\n[accuracy]: {raw}/accuracy.svg\n" in text
    assert "\n[results]: https://host.org/us/bioel/blob/main/docs/results.md\n" in text
    pytest.importorskip("mkdocs", reason="the extra `docs` is missing")
    from benchmarks import site

    page = site.with_links_of_the_site(text, source="README.md", page="index.md")
    assert 'srcset="img/links-dark.png"' in page and 'src="img/links-light.png"' in page
    assert "\n[accuracy]: img/accuracy.svg\n" in page and "host.org" not in page
