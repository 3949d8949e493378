"""Charts, screenshots and the notebook of the documentation are those of today."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny import needs

from benchmarks import charts, notebook
from benchmarks.browser import SCHEMES
from benchmarks.record import load
from benchmarks.screenshots import IMAGES, PACKAGE, PAGES, digests
from benchmarks.tables import pick

pytestmark = pytest.mark.pages
ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"
CHARTS = dict(charts.charts())
PICTURES = [
    page for page in PAGES if page.templates and (PACKAGE / page.templates.split()[0]).is_file()
]


def bars(name: str) -> list[dict[str, ElementTree.Element]]:
    """Bars of each panel of a chart, by name."""
    panels = ElementTree.fromstring(CHARTS[name]).findall(f".//{SVG}g[@data-panel]")
    return [{bar.get("data-name", ""): bar for bar in panel.findall(f".//{SVG}g[@data-name]")}
            for panel in panels]  # fmt: skip


def test_charts_are_those_of_the_results():
    for name, svg in CHARTS.items():
        assert (IMAGES / f"{name}.svg").read_text("utf8") == svg, "run: python -m benchmarks.readme"
        light, dark = svg.split("@media (prefers-color-scheme: dark)")
        assert "--paper: #fff;" in light and "--paper: #14171c;" in dark


def test_bars_have_the_figures_of_the_results():
    genes = next(panel for panel in bars("accuracy") if "PubTator" in panel)
    for name, system in (("PubTator", "pubtator"), ("spacy-bioel", "ours"), ("BERN2", "bern")):
        (row,) = pick(load("peers"), {"system": system, "subset": "not seen", "metric": "f1"})
        assert float(genes[name].get("data-value")) == row["value"]
        assert float(genes[name].find(f"{SVG}rect").get("width")) == pytest.approx(
            2.5 * row["value"], abs=0.1
        )


@pytest.mark.parametrize("page", PICTURES, ids=lambda page: page.name)
def test_a_picture_is_as_new_as_its_page_and_without_faults(page):
    rows = pick(load("accessibility"), {"system": page.name})
    assert {row["scheme"] for row in rows} == {*SCHEMES}
    faults = ("violations", "too_wide", "unreached", "other_requests", "errors")
    for row in rows:
        made_from = {"templates": row["templates"], "picture": row["picture"]}
        advice = "run: python -m benchmarks.run screenshots"
        assert made_from == digests(page, row["scheme"]), advice
        assert row["metric"] not in faults or row["value"] == 0, row["metric"]


@needs("service")
def test_pages_show_pictures_that_exist_and_no_other_exists():
    texts = [page.read_text("utf8") for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    shown = set(re.findall(r"img/([\w-]+\.png)", "".join(texts)))
    made = {f"{page.name}-{scheme}.png" for page in PICTURES for scheme in SCHEMES}
    assert shown <= made == {path.name for path in IMAGES.glob("*.png")}


def words(cells: list[dict]) -> list[list[str]]:
    """Words of the outputs of each cell of code."""
    return [[*map(notebook.words_of, notebook.outputs(cell))]
            for cell in cells if cell["cell_type"] == "code"]  # fmt: skip


@pytest.mark.slow
def test_the_notebook_shows_what_it_has_saved():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    saved = json.loads(notebook.NOTEBOOK.read_text("utf8"))
    advice = "run: python -m benchmarks.notebook"
    assert words(notebook.run()["cells"]) == words(saved["cells"]), advice


def test_the_site_shows_the_notebook():
    page = notebook.markdown_of(notebook.NOTEBOOK)
    assert page.startswith("# Tutorial: a notebook\n")
    assert "```python\nimport spacy_bioel\n" in page and "Acute Kidney Injury" in page
    assert page.count("<template") == 4
    assert "<script" not in page and "http-equiv" not in page
