"""A concept is found by its id, its words and their misspellings, also on the command line."""

import pytest
from kb_files import made_kb

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase, corrected, search_names
from spacy_bioel.types import Candidate, Concept


def test_a_concept_by_its_id(kb):
    heart_attack = Concept("X:3", ("Heart Attack", "Cold"), ("Disease",), ("X:1",), "An infarct.")
    assert kb["X:3"] == heart_attack
    assert kb["X:8"].id == "X:3"  # was replaced
    assert Candidate("X:3", 1.0, kb=kb.fingerprint).concept == heart_attack
    assert ["X:3" in kb, "X:8" in kb, "X:7" in kb, None in kb] == [True, True, False, False]
    with pytest.raises(BioelError, match=r"\[B337\] There is no concept 'X:7' .* ids is X:1\."):
        kb["X:7"]
    assert kb.ids_of(kb.children_of(kb.find("X:1"))) == ["X:2", "X:3"]
    assert kb.ids_of(kb.children_of(kb.find("X:4"))) == []
    assert kb.retired_ids_of(kb.find("X:3")) == ("X:8",)
    assert kb.retired_ids_of(kb.find("X:1")) == ()


def test_an_id_that_was_retired_without_a_replacement(tmp_path):
    retired = (Concept("X:2", (), consider=("X:1", "X:9")), Concept("X:3", (), consider=()))
    build_kb([Concept("X:1", ("Fever",)), *retired], tmp_path)
    kb = KnowledgeBase.open(tmp_path)
    for id, others in (("X:2", "X:1, X:9"), ("X:3", "none")):
        with pytest.raises(BioelError, match=rf"\[B637\] The id '{id}' was .* instead: {others}"):
            kb[id]


def test_search(kb):
    # "Cold" is the preferred name of X:2 and another name of X:3.
    found = [(hit.concept.id, hit.name, hit.score) for hit in search_names(kb, "cold")]
    assert found == [("X:2", "Cold", 1.0), ("X:3", "Cold", 1.0)]
    assert [hit.concept.id for hit in search_names(kb, "attack of the haert")] == ["X:3"]
    assert [(hit.concept.id, hit.name) for hit in search_names(kb, " X:8 ")] == [("X:3", "X:8")]
    assert [len(search_names(kb, "cold", k=k)) for k in (1, 2, 3)] == [1, 2, 2]
    assert search_names(kb, "") == search_names(kb, "zzz") == []
    assert corrected(kb, "Heart attcak") == "heart attack"


def test_commands(bioel, folder):
    assert bioel("kb", "show", folder, "X:8", "--json", "-").json == {
        "id": "X:3",
        "asked_for": "X:8",
        "preferred_name": "Heart Attack",
        "names": [
            {"name": "Heart Attack", "source": "made up"},
            {"name": "Cold", "source": "made up"},
        ],
        "definition": "An infarct.",
        "types": ["Disease"],
        "parents": [{"id": "X:1", "name": "Disease"}],
        "children": [],
        "xrefs": [],
        "retired_ids": ["X:8"],
    }
    hits = bioel("kb", "search", folder, "heart", "attac", "--json", "-").json
    assert [hit["concept"]["id"] for hit in hits] == ["X:3"]
    assert bioel("kb", "search", folder, "zzz", status=1).out == ""
    assert bioel("kb", "show", folder, "X:7", status=2).out == ""
    build_kb([Concept("X:1", ("[acyl] carrier",))], folder, source="made up")
    assert "X:1 [acyl] carrier" in bioel("kb", "show", folder, "X:1").out


@pytest.mark.parametrize(
    ("names", "words", "best"),
    [
        # A name with all words, though another is more alike.
        (("kidney-vine", "kidney vetch", "Chronic Progressive Failure of the Left or Right Kidney",
          "heart failure"), "kidney failure", 2),
        # Names with and without a hyphen.
        (("AB", "CD", "AB-4", "5", "AB5"), "AB-5", 4),
        (("AB", "CD", "AB-4", "5", "AB5"), "AB 5", 4),
    ],
)  # fmt: skip
def test_the_first_of_the_results(tmp_path, names, words, best):
    kb = made_kb(tmp_path / "kb", [Concept(f"X:{n}", (name,)) for n, name in enumerate(names)])
    hits = search_names(kb, words)
    assert (hits[0].concept.id, hits[0].name) == (f"X:{best}", names[best])
    if words == "kidney failure":
        assert hits[0].score < max(hit.score for hit in hits[1:])
