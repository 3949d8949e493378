"""Scores of gold ids that the knowledge base lacks are not reported without a warning."""

import warnings

import pytest
from spacy.training import Example
from tiny import blank

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept


@pytest.mark.parametrize(("ids", "is_warned"), [("D003920", True), ("MESH:D003920", False)])
def test_a_forgotten_prefix_is_warned_of(tmp_path, ids, is_warned):
    build_kb([Concept("MESH:D003920", ("diabetes",))], tmp_path / "kb")
    nlp = blank()
    nlp.add_pipe("bioel_linker", config={"kb": str(tmp_path / "kb"), "mentions": "dictionary"})
    reference = nlp.make_doc("She has diabetes.")
    span = reference.char_span(8, 16, label="Disease", kb_id=ids)
    reference.spans["bioel_gold"] = [span]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nlp.evaluate([Example(nlp.make_doc(reference.text), reference)])
    messages = [str(w.message) for w in caught if "[W340]" in str(w.message)]
    assert bool(messages) == is_warned
    assert all("MESH" in message for message in messages)
