"""The pictures in docs/img show the pages as they are now."""

import re
import shutil

import pytest

from benchmarks import screenshots
from benchmarks.browser import SCHEMES
from benchmarks.record import load
from benchmarks.screenshots import IMAGES, PACKAGE, PAGES, ROOT, digest_of, digests

PICTURES = [page for page in PAGES if page.templates]
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


def test_pages_show_pictures_that_exist_and_no_other_exists():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    shown = {name for page in pages
             for name in re.findall(r"img/([\w-]+\.png)", page.read_text("utf8"))}  # fmt: skip
    made = {f"{page.name}-{scheme}.png" for page in PICTURES for scheme in SCHEMES}
    assert shown <= made
    assert {path.name for path in IMAGES.glob("*.png")} == made


def test_a_digest_changes_with_all_that_a_page_includes(tmp_path, monkeypatch):
    before = {page.name: digest_of(page.templates) for page in PICTURES}
    for page in PICTURES:
        for template in page.templates.split():
            (tmp_path / template).parent.mkdir(exist_ok=True)
            shutil.copy(PACKAGE / template, tmp_path / template)
    shutil.copytree(PACKAGE / "templates", tmp_path / "templates", dirs_exist_ok=True)
    monkeypatch.setattr(screenshots, "PACKAGE", tmp_path)

    def changed(file):
        path = tmp_path / "templates" / file
        text = path.read_text("utf8")
        path.write_text(text + "\n", encoding="utf8")
        found = {page.name for page in PICTURES if digest_of(page.templates) != before[page.name]}
        path.write_text(text, encoding="utf8")
        return found

    assert changed("links.js") == {"links"}
    assert changed("document.html") >= {"explain", "check"}
    assert changed("style.css") >= {"links", "explain", "check"}
    assert changed("card.md") == set()
