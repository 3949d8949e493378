"""Every page of the documentation and the README: blocks run as they stand, and print what the
page says. Blocks that cannot run say why.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import spacy
from pages import PACKAGE, PAGES, ROOT, TRAINED, blocks, run_page

# Files that the README takes from elsewhere.
GIVEN = {
    "README.md": {
        "hp.obo": "format-version: 1.2\n\n[Term]\nid: HP:0001250\nname: Seizure\n",
        "notes.txt": "She had seizures.\n",
    }
}
# Why a block is not run -> how many say so.
REASONS = {
    "trains a pipeline": 3,
    "needs a trained pipeline": 2,
    "needs the pipeline of the command above": 1,
    "needs a large knowledge base": 3,
    "needs hp.obo": 3,  # tests/test_ontology_page.py, with real data
    "needs NCBI Gene and Cellosaurus": 1,
    "needs Spark": 1,
    "serves until it is ended": 1,
    "needs training": 1,
    "needs scispaCy and its downloads": 1,
    "needs QuickUMLS and a UMLS licence": 1,
}
# Packages without which a block is left out -> how many blocks.
NEEDS = {PACKAGE: 1, "negspacy": 1}


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not find_spec(PACKAGE):
        load = spacy.load
        monkeypatch.setattr(spacy, "load", lambda name: load(TRAINED if name == PACKAGE else name))
    for name, text in GIVEN.get(page, {}).items():
        Path(name).write_text(text, encoding="utf8")
    expected = sum(block.runs for block in blocks(page))
    assert run_page(page, monkeypatch) == expected


def test_what_is_not_run_is_known() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert Counter(block.reason for block in found if block.reason) == REASONS
    assert Counter(block.needs for block in found if block.needs) == NEEDS
    assert sum(block.runs or bool(block.needs) for block in found) >= 1


def test_python_is_called_python() -> None:
    found = {block.language for page in PAGES for block in blocks(page)}
    assert found <= {"", "python", "bash", "text", "json", "yaml", "ini", "csv", "tsv", "obo"} | {
        *("console", "nginx"),
    }


def test_each_page_has_one_title_and_closed_blocks() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text("utf8")
        assert text.count("```") % 2 == 0, page
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        assert len(re.findall(r"^# ", prose, re.M)) == 1, page


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text("utf8").splitlines()) <= 150
