"""What `python -m benchmarks.run house` counts, on a small package with one of each fault."""

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import house

FILES = {
    "__init__.py": "",
    "types.py": "class Span: ...\n\n\ndef load(): ...\n",
    "kb/__init__.py": "",
    "kb/names.py": """
import spacy_bioel.linking.pipe
from spacy_bioel.types import Span

LIMIT: int = 3


class Names:
    def find(self):
        \"\"\"Of the variant and the gene.\"\"\"
        return self._find()  # a species

    def _find(self):
        return sorted([1], key=_rank)

    def _stop(self): ...


def _rank(row):
    from spacy_bioel.types import load

    return load()


def _twice(): ...


_twice(), _twice()
""",
    "linking/__init__.py": "",
    "linking/pipe.py": """
from spacy_bioel import kb
from spacy_bioel.plugins.contextual import reranker

LIMIT = 4
hgvs_of = None
""",
    "linking/deep/__init__.py": "from spacy_bioel.linking import pipe\n",
    "contextual/__init__.py": "",
    "contextual/reranker.py": "from spacy_bioel.plugins.contextual import notes\nvariant = 1\n",
    "contextual/notes.py": "",
    "entities/variants.py": "variant = 1\n",
    "export/rows.py": "gene = genes = 1\n" + "#\n" * 500,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkout")
    for name, text in FILES.items():
        file = folder / "spacy_bioel" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf8")
    return folder


@pytest.mark.parametrize(
    "measure, listed",
    [
        ("rooms_both_ways", ["kb, linking"]),
        ("into_sealed_rooms", ["linking/pipe.py:3"]),
        ("variants", ["linking/pipe.py"]),
        ("genes", []),
        ("organisms", []),
        ("named_twice", ["LIMIT: kb/names.py, linking/pipe.py",
                         "variant: contextual/reranker.py, entities/variants.py"]),
        ("one_caller", ["kb/names.py: _rank", "kb/names.py: _find"]),
        ("long_files", ["export/rows.py: 501"]),
        ("imports_in_functions", ["kb/names.py:20"]),
    ],
)  # fmt: skip
def test_what_a_measure_counts(root, measure, listed):
    assert house.listed(measure, root) == listed


def test_a_folder_and_the_folder_within_are_two_rooms(root):
    file = root / "spacy_bioel/linking/pipe.py"
    text = file.read_text("utf8")
    file.write_text(f"{text}\nimport spacy_bioel.linking.deep\n", encoding="utf8")
    try:
        assert house.listed("rooms_both_ways", root) == ["kb, linking", "linking, linking/deep"]
    finally:
        file.write_text(text, encoding="utf8")


def test_the_way_of_a_doc(root, monkeypatch):
    calls = [("", "a.py", 3), ("a.py", "a.py", 5), ("a.py", "b.py", 2), ("b.py", "a.py", 1)]
    monkeypatch.setattr(house, "calls_of_a_doc", lambda root: calls)
    assert house.listed("doc_files", root) == ["b.py: 2", "a.py: 1"]
    assert house.listed("doc_moves", root) == ["a.py > b.py: 2", "b.py > a.py: 1"]


def test_a_list_is_shown_and_nothing_is_recorded(root, monkeypatch):
    monkeypatch.setattr(house, "count", lambda root: pytest.fail("it counts"))
    app = typer.Typer()
    app.command()(house.house)
    shown = CliRunner().invoke(app, ["--root", str(root), "--show", "long_files"])
    assert (shown.exit_code, shown.output) == (0, "export/rows.py: 501\n")
    shown = CliRunner().invoke(app, ["--show", "lines"])
    assert shown.exit_code == 2 and "doc_files, doc_moves, rooms_both_ways" in shown.output


def test_the_target_names_what_is_measured():
    measured = {*house.LISTS, *house.WAYS, "core_lines", "lines", "files", "tests"}
    assert house.TO_REACH.keys() <= measured
