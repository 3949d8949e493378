"""The example of docs/ontology.md prints what the page says, with the real ontology."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from spacy_bioel.cli import main
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.merge import Branches

PAGE = (Path(__file__).parents[1] / "docs/ontology.md").read_text("utf8")


@pytest.mark.realdata
def test_the_examples(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)
    (line,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
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
