"""Targets of a generative linker: the most similar name of the right concept."""

import numpy as np
import pytest
from kb_files import made_kb
from tables import cases, concepts_of

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.contextual.rescoring import nearest_names


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("targets") / "kb"
    return made_kb(folder, concepts_of(cases(__file__, "concepts_of_targets")))


def test_most_similar_name_of_each_concept(kb):
    # The preferred name if none is similar.
    expected = {tuple(of): name for *of, name in cases(__file__, "nearest_names")}
    strings, ids = zip(*expected, strict=True)
    rows = nearest_names(kb, strings, kb.find_all(list(ids)))
    assert kb.names.take(rows) == list(expected.values())
    assert nearest_names(kb, [], np.zeros(0, np.int64)).tolist() == []


def test_cosines_are_those_of_the_ngram_search(kb):
    """The n-gram search compares the same vectors, and finds the same name."""
    strings = ["renal failing", "a heart that was attacked", "headaches", "myocardial"]
    rows, _ = kb.ngrams.search(strings, 1)
    owners = kb.concepts_of_names(rows[:, 0])[1]
    assert nearest_names(kb, strings, owners).tolist() == rows[:, 0].tolist()
