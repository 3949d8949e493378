"""Joined knowledge bases answer as one, of all concepts and names, and are never written."""

import pickle

import numpy as np
import pytest
from kb_files import names_of

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.joined import JoinedKnowledgeBase, JoinedSearch, parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

DISEASES = [
    Concept("X:1", ("Fever", "pyrexia"), ("Disease",), definition="Hot.", xrefs=("U:1", "S:1")),
    Concept("X:2", ("Malaria",), ("Disease",), ("X:1",)),
    Concept("X:7", (), replaced_by="X:2"),
    Concept("Y:1", (), replaced_by="X:1"),
]
SIGNS = [
    Concept("X:1", ("Febrile state", "FEVER"), ("Sign",), xrefs=("S:1", "N:9")),
    Concept("X:2", ("Malaria",), definition="Mosquitoes."),
    Concept("Y:1", ("Cough",), ("Sign",)),
    Concept("Y:2", ("Barking cough", "Pyrexia"), ("Sign",), ("Y:1",)),
    Concept("X:7", (), replaced_by="Y:2"),
]


@pytest.fixture
def joined(tmp_path) -> JoinedKnowledgeBase:
    build_kb(DISEASES, tmp_path / "diseases", source="d.obo")
    build_kb(SIGNS, tmp_path / "signs", source="s.obo")
    parts = [KnowledgeBase.open(tmp_path / name) for name in ("diseases", "signs")]
    return JoinedKnowledgeBase(parts, labels={"Disease": 0, "Sign": 1, "Symptom": 1})


def test_one_id_is_one_concept_with_the_names_of_both(joined):
    assert list(joined.ids) == ["X:1", "X:2", "Y:1", "Y:2"]
    assert names_of(joined, "X:1") == ["Fever", "pyrexia", "Febrile state"]
    assert names_of(joined, "Y:2") == ["Barking cough", "pyrexia"]
    row = joined.find("X:1")
    assert joined.preferred_name(row) == "Fever"
    assert joined.types_of(row) == ("Disease", "Sign")
    assert joined.xrefs(row) == ("U:1", "S:1", "N:9")
    assert joined.sources_of(row) == ("d.obo", "d.obo", "s.obo")
    assert [joined.definition(joined.find(id)) for id in ("X:1", "X:2")] == ["Hot.", "Mosquitoes."]
    assert joined.ids_of(joined.parents_of(joined.find("Y:2"))) == ["Y:1"]
    assert joined.labels_of(joined.find_all(["Y:2"])) == ["Sign"]
    assert joined.has_concepts(1).tolist() == [True] * 4
    assert joined.has_concepts(0).tolist() == [True, True, False, False]


def test_a_name_of_both_is_one_name_with_all_its_concepts(joined):
    assert (joined.n_names, len(set(joined.names))) == (6, 6)
    [row] = joined.lookup_names(["pyrexia"]).tolist()
    indptr, concepts, is_preferred = joined.concepts_of_names(np.array([row]))
    assert (indptr.tolist(), joined.ids_of(concepts)) == ([0, 2], ["X:1", "Y:2"])
    assert is_preferred.tolist() == [False, False]
    assert joined.lookup_names(["fever", "nothing"]).tolist() == [0, -1]
    assert joined.names.take(np.array([4, 0, 5])) == [joined.name(row) for row in (4, 0, 5)]


def test_an_id_that_is_current_in_a_part_is_not_retired(joined):
    assert joined.canonical("Y:1") == "Y:1"
    assert joined.canonical("X:7") == "X:2"  # from the first part that retired it
    assert joined.find("Z:0") == -1


def test_ngram_search_of_both(joined):
    rows, cosines = joined.ngrams.search(["malaria", "barking coughs"], 3)
    assert joined.name(int(rows[0, 0])) == "Malaria"
    assert rows[0, 1:].tolist() == [-1, -1]  # not repeated
    assert joined.name(int(rows[1, 0])) == "Barking cough"
    assert (np.diff(cosines, axis=1) <= 0).all()


class Found:
    def __init__(self, rows: list[int], scores: list[float]) -> None:
        self.found = np.array([rows]), np.array([scores], np.float32)

    def search(self, queries: object, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self.found


def test_results_of_several_searches_are_one_list():
    searches = [Found([0, 1, -1], [0.75, -0.25, -np.inf]), Found([1, 0, -1], [0.875, 0.5, -np.inf])]
    rows = [np.array([0, 1]), np.array([2, 0, 3])]
    found, scores = JoinedSearch(searches, rows, nothing=-np.inf).search(None, 4)
    assert found.tolist() == [[0, 2, 1, -1]]  # the name 0 was found by both
    assert scores.tolist() == [[0.875, 0.5, -0.25, -np.inf]]


def test_pickled_by_the_paths_of_its_parts_and_known_by_them(joined):
    data = pickle.dumps(joined)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert (again.fingerprint, again.labels) == (joined.fingerprint, joined.labels)
    assert [part.path for part in parts_of(again)] == [part.path for part in joined.parts]
    fingerprints = {JoinedKnowledgeBase(joined.parts).fingerprint, joined.fingerprint}
    fingerprints.add(JoinedKnowledgeBase(joined.parts[::-1]).fingerprint)
    assert len(fingerprints) == 3  # labels and the order are part of it


def test_nothing_is_written_to_it(joined, tmp_path):
    joined.verify()
    with pytest.raises(BioelError, match=r"\[B322\] .*diseases, .*signs"):
        joined.save_to(tmp_path / "out")
    with pytest.raises(BioelError, match=r"\[B322\]"):
        joined.to_bytes()
