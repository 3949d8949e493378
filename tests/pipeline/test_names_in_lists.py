"""Names never continue from one item or cell into the next, but after a line break in a name."""

import pytest
from tiny import blank

from spacy_bioel.doc import get_links
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept


@pytest.fixture(scope="module")
def nlp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kb") / "kb"
    names = ("tremor", "ataxia", "ataxia tremor", "chest pain", "muscle weakness")
    build_kb([Concept(f"X:{n}", (name,)) for n, name in enumerate(names)], folder)
    nlp = blank()
    nlp.add_pipe("bioel_linker", config={"kb": str(folder), "mentions": "dictionary"})
    return nlp


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("- ataxia\n- tremor", ["ataxia", "tremor"]),
        ("* ataxia\r\n  * tremor", ["ataxia", "tremor"]),
        ("| ataxia | tremor |", ["ataxia", "tremor"]),
        ("ataxia tremor", ["ataxia tremor"]),
        ("severe ataxia\ntremor", ["ataxia\ntremor"]),
        ("muscle\nweakness", ["muscle\nweakness"]),
    ],
)
def test_names_in_items_and_cells(nlp, text, found):
    assert [text[link.start : link.end] for link in get_links(nlp(text))] == found
