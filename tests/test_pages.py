"""Every page of the documentation and the README: blocks run as they stand, and print what the
page says. Blocks that cannot run say why.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import spacy
from pages import PACKAGE, PAGES, ROOT, TRAINED, blocks, run_page

from spacy_bioel.cli import main
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.merge import Branches

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
    "needs hp.obo": 3,  # below, with real data
    "needs NCBI Gene and Cellosaurus": 1,
    "needs Spark": 1,
    "serves until it is ended": 1,
    "needs training": 1,
    "needs scispaCy and its downloads": 1,
    "needs QuickUMLS and a UMLS licence": 1,
}
# Packages without which a block is left out -> how many blocks.
NEEDS = {PACKAGE: 1}


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


@pytest.mark.realdata
def test_the_ontology_page(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/ontology.md").read_text("utf8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    concepts = read_ontology(data_folder / "names/obo/hp.obo.gz")
    build_kb(concepts, tmp_path / "kb/hp", branches=Branches(under=("HP:0000118",)))
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/ontology.md", "exec"), {})
    assert out.getvalue() == printed
    assert "Siezures | HP:0001250 | Seizures" in printed
    Path("notes.txt").write_text("Siezures since May, no SOB.\n", encoding="utf8")
    with pytest.raises(SystemExit) as done:
        main(["link", "kb/hp", "notes.txt", "--output", "links.jsonl"])
    assert not done.value.code
    assert Path("links.jsonl").read_text("utf8") == line
