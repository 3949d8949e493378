"""What `python -m benchmarks.run house` counts, on a small package with one of each fault."""

import tomllib

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
    "plugins/contextual/__init__.py": "",
    "plugins/contextual/reranker.py": "import spacy_bioel.plugins.contextual.notes\nvariant = 1\n",
    "plugins/contextual/notes.py": "",
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
        ("into_plugins", ["linking/pipe.py:3"]),
        ("variants", ["linking/pipe.py"]),
        ("genes", []),
        ("organisms", []),
        ("named_twice", ["LIMIT: kb/names.py, linking/pipe.py",
                         "variant: entities/variants.py, plugins/contextual/reranker.py"]),
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
    calls = [
        ("", "kb/names.py", "Names.find", 9),
        ("kb/names.py", "kb/names.py", "Names._find", 13),
        ("kb/names.py", "linking/pipe.py", "f", 99),
        ("linking/pipe.py", "kb/names.py", "_rank", 19),
        ("linking/pipe.py", "kb/names.py", "Names.find", 9),
        ("linking/pipe.py", "entities/variants.py", "g", 1),
    ]
    monkeypatch.setattr(house, "calls_of_a_doc", lambda root: calls)
    assert house.listed("doc_edges", root) == [
        "kb/names.py > linking/pipe.py: f",
        "linking/pipe.py > entities/variants.py: g",
        "linking/pipe.py > kb/names.py: Names.find",
        "linking/pipe.py > kb/names.py: _rank",
    ]
    assert len(house.listed("doc_pairs", root)) == 3
    assert house.doc_lines(calls, root) == {"kb/names.py": 9, "linking/pipe.py": 0}


def test_nothing_grows():
    counted = house.counts_of_source(house.ROOT)
    limits = tomllib.loads(house.RATCHET.read_text("utf8"))
    assert limits and limits.keys() <= counted.keys()
    assert {name: counted[name] for name, n in limits.items() if counted[name] > n} == {}


def test_the_ratchet_only_falls(tmp_path):
    path = tmp_path / "house.toml"
    path.write_text("# Why.\nlines = 30  # a reason\nfiles = 4\n", "utf8")
    house.lower(path, {"lines": 29, "files": 5})
    assert path.read_text("utf8") == "# Why.\nlines = 29  # a reason\nfiles = 4\n"


def test_a_list_is_shown_and_nothing_is_recorded(root, monkeypatch):
    monkeypatch.setattr(house, "count", lambda root: pytest.fail("it counts"))
    app = typer.Typer()
    app.command()(house.house)
    shown = CliRunner().invoke(app, ["--root", str(root), "--show", "long_files"])
    assert (shown.exit_code, shown.output) == (0, "export/rows.py: 501\n")
    shown = CliRunner().invoke(app, ["--show", "lines"])
    assert shown.exit_code == 2 and "doc_edges, doc_pairs, rooms_both_ways" in shown.output


def test_the_target_names_what_is_measured():
    measured = {
        *house.LISTS,
        *house.WAYS,
        *house.counts_of_source(house.ROOT),
        "doc_lines",
        "doc_files",
    }
    assert house.TO_REACH.keys() <= measured
