"""The notebook of the tutorials runs, and shows what it has saved."""

import json
import re

import pytest

from benchmarks.notebook import NOTEBOOK, markdown_of, outputs, run, words_of
from spacy_bioel.types import Concept


def cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_shows_what_it_has_saved():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    saved = json.loads(NOTEBOOK.read_text("utf8"))
    for now, before in zip(cells(run()), cells(saved), strict=True):
        shown = [words_of(html) for html in outputs(now)]
        advice = "run: python -m benchmarks.notebook"
        assert shown == [words_of(html) for html in outputs(before)], advice


def test_the_saved_outputs_are_a_text_tables_and_a_chart():
    first, text, concept, frame, chart = cells(json.loads(NOTEBOOK.read_text("utf8")))
    assert not list(outputs(first))
    assert 'class="bioel"' in next(outputs(text)) and "MESH:D058186" in next(outputs(text))
    for cell in (concept, frame, chart):
        assert "Acute Kidney Injury" in next(outputs(cell))
    # The bars are as long as the numbers of texts next to them.
    html = next(outputs(chart))
    lengths = {
        row: float(length)
        for rows, length in re.findall(r"((?:#T_\w+[, \n]*)+)\{[^}]*?#4285f466 ([\d.]+)%", html)
        for row in re.findall(r"row(\d+)_col2", rows)
    }
    counts = dict(re.findall(r'class="data row(\d+) col2" >(\d+)<', html))
    assert len(counts) == 8 and lengths.keys() == counts.keys()
    most = max(map(int, counts.values()))
    for row, count in counts.items():
        assert lengths[row] == pytest.approx(100 * int(count) / most, abs=0.1)


def test_a_concept_is_a_table_in_which_all_is_escaped():
    concept = Concept("X:1", ("<b>heart</b>", "cor"), parents=("X:0",))
    assert concept._repr_html_() == (
        "<table><tr><th>id</th><td>X:1</td></tr>"
        "<tr><th>names</th><td>&lt;b&gt;heart&lt;/b&gt;; cor</td></tr>"
        "<tr><th>parents</th><td>X:0</td></tr></table>"
    )


def test_the_site_shows_the_notebook():
    page = markdown_of(NOTEBOOK)
    assert page.startswith("# Tutorial: a notebook\n")
    assert "```python\nimport spacy_bioel\n" in page
    assert page.count("<template") == 4
    assert "<script" not in page and "http-equiv" not in page
