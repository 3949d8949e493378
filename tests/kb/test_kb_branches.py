"""Branches of an ontology, and chains of retired ids."""

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import Branches, build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

# X:1 -> X:2 -> X:3, X:1 -> X:4, X:5 alone; X:3 also below X:4.
CONCEPTS = (
    Concept("X:1", ("all",)),
    Concept("X:2", ("left",), parents=("X:1",)),
    Concept("X:3", ("leaf",), parents=("X:2", "X:4")),
    Concept("X:4", ("right",), parents=("X:1",)),
    Concept("X:5", ("alone",)),
    Concept("X:9", (), replaced_by="X:2"),
)


@pytest.mark.parametrize(
    ("under", "exclude", "expected"),
    [
        (["X:2"], [], ["X:2", "X:3"]),
        (["X:9"], [], ["X:2", "X:3"]),
        (["X:2", "X:5"], [], ["X:2", "X:3", "X:5"]),
        ([], ["X:2"], ["X:1", "X:4", "X:5"]),
        (["X:1"], ["X:4"], ["X:1", "X:2"]),
    ],
)
def test_branches(tmp_path, under, exclude, expected):
    report = build_kb(CONCEPTS, tmp_path / "kb", branches=Branches(under, exclude))
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert list(kb.ids) == expected
    assert report.dropped_by_branch == 5 - len(expected)
    assert kb.canonical("X:9") == ("X:2" if "X:2" in expected else "X:9")


def test_a_branch_that_is_not_there(tmp_path):
    with pytest.raises(BioelError, match=r"\[B310\] .* 'X:22', .* Did you mean: X:2"):
        build_kb(CONCEPTS, tmp_path / "kb", branches=Branches(["X:22"]))
    assert not (tmp_path / "kb").exists()


@pytest.mark.parametrize(
    ("id", "suggested"),
    [("HP:118", "HP:0000118"), ("hp_0000118", "HP:0000118"), ("MESH:D12640", "MESH:D012640")],
)
def test_an_id_in_another_spelling(tmp_path, id, suggested):
    """Rather than ids that have many of its characters."""
    ids = ["HP:6001158", "HP:0001180", "HP:1180000", "HP:0000118", "MESH:D126400", "MESH:D012640"]
    with pytest.raises(BioelError, match=rf"\[B310\] .*Did you mean: {suggested}\?"):
        build_kb([Concept(x, (x,)) for x in ids], tmp_path, branches=Branches([id]))


def test_no_concept_is_left(tmp_path):
    with pytest.raises(BioelError, match=r"\[B028\] .* 5 are outside the branches"):
        build_kb(CONCEPTS, tmp_path / "kb", branches=Branches(["X:1"], ["X:1"]))


def test_a_circle_of_parents_ends(tmp_path):
    circle = [Concept("X:1", ("a",), parents=("X:2",)), Concept("X:2", ("b",), parents=("X:1",))]
    build_kb(circle, tmp_path / "kb", branches=Branches(["X:1"]))
    assert list(KnowledgeBase.open(tmp_path / "kb").ids) == ["X:1", "X:2"]
