"""The code does not grow, as `python -m benchmarks.run house` counts it, and it counts rightly."""

import tomllib

import pytest

from benchmarks import house

pytestmark = pytest.mark.pages
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


def test_nothing_grows():
    counted = house.counts_of_source(house.ROOT)
    limits = tomllib.loads(house.RATCHET.read_text("utf8"))
    assert limits and limits.keys() <= counted.keys()
    assert {name: counted[name] for name, n in limits.items() if counted[name] > n} == {}
    measured = {*counted, *house.WAYS, "doc_lines", "doc_files"}
    assert house.TO_REACH.keys() <= measured


def test_the_ratchet_only_falls(tmp_path):
    path = tmp_path / "house.toml"
    path.write_text("# Why.\nlines = 30  # a reason\nfiles = 4\n", "utf8")
    house.lower(path, {"lines": 29, "files": 5})
    assert path.read_text("utf8") == "# Why.\nlines = 29  # a reason\nfiles = 4\n"
