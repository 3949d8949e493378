"""The pictures in docs/img show the pages as they are now."""

import re
import shutil
from pathlib import Path

import pytest
from tiny import needs

from benchmarks import screenshots
from benchmarks.browser import SCHEMES
from benchmarks.record import load
from benchmarks.screenshots import IMAGES, PACKAGE, PAGES, ROOT, digest_of, digests

PICTURES = [
    page for page in PAGES if page.templates and (PACKAGE / page.templates.split()[0]).is_file()
]
ADVICE = "run: python -m benchmarks.run screenshots"


@pytest.mark.parametrize("page", PICTURES, ids=lambda page: page.name)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_picture_is_as_new_as_its_page(page, scheme):
    rows = [r for r in load("accessibility") if (r["system"], r["scheme"]) == (page.name, scheme)]
    assert rows, ADVICE
    for row in rows:
        assert {"templates": row["templates"], "picture": row["picture"]} == digests(
            page, scheme
        ), ADVICE


def test_pages_in_pictures_violate_no_rule_of_accessibility():
    names = {page.name for page in PICTURES}
    wanted = dict.fromkeys(("violations", "too_wide", "unreached", "other_requests", "errors"), 0)
    for row in load("accessibility"):
        if row["system"] in names and row["metric"] in wanted:
            assert row["value"] == 0, (row["system"], row["scheme"], row["metric"])


@needs("service")
def test_pages_show_pictures_that_exist_and_no_other_exists():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    shown = {name for page in pages
             for name in re.findall(r"img/([\w-]+\.png)", page.read_text("utf8"))}  # fmt: skip
    made = {f"{page.name}-{scheme}.png" for page in PICTURES for scheme in SCHEMES}
    assert shown <= made
    assert {path.name for path in IMAGES.glob("*.png")} == made


@needs("service")
def test_a_digest_changes_with_all_that_a_page_includes(tmp_path, monkeypatch):
    before = {page.name: digest_of(page.templates) for page in PICTURES}
    named = {Path(name).parent for page in PICTURES for name in page.templates.split()}
    for folder in named:
        shutil.copytree(PACKAGE / folder, tmp_path / folder)
    monkeypatch.setattr(screenshots, "PACKAGE", tmp_path)

    def changed(file):
        path = tmp_path / file
        text = path.read_text("utf8")
        path.write_text(text + "\n", encoding="utf8")
        found = {page.name for page in PICTURES if digest_of(page.templates) != before[page.name]}
        path.write_text(text, encoding="utf8")
        return found

    assert changed("templates/links.js") == {"links"}
    assert changed("templates/document.html") >= {"explain", "check"}
    assert changed("templates/style.css") >= {"links", "explain", "check", "service"}
    assert changed("plugins/service/templates/service.js") == {"service"}
    assert changed("templates/card.md") == set()
