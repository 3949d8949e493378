"""Genes of flies, worms and yeasts, in documents about them and elsewhere."""

import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.entities.organism_genes import with_organism_genes
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept, ScoredSpan

GENES = [
    ("hh", "hedgehog", "7227"),
    ("sal", "spalt", "7227"),
    ("b", "black", "7227"),
    ("Dl", "Delta", "7227"),
    ("unc-119", "unc-119", "6239"),
    ("YPT1", "YPT1", "4932"),
    ("BLACK1", "BLACK1", "9606"),
]


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("genes") / "kb"
    concepts = (
        Concept(f"NCBIGene:{i}", tuple(dict.fromkeys(names)), types=("Gene", f"NCBITaxon:{taxon}"))
        for i, (*names, taxon) in enumerate(GENES)
    )
    build_kb(concepts, folder)
    return KnowledgeBase.open(folder)


def found(kb: KnowledgeBase, text: str, *spans: ScoredSpan) -> list[str]:
    doc = Doc(Vocab(), words=text.split())
    return [doc[s:e].text for s, e, *_ in with_organism_genes(doc, spans, kb)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In Drosophila spalt is needed .", ["spalt"]),
        ("Flies without spalt die .", ["spalt"]),
        ("The children ate spalt .", []),
        ("We heard that spalt fell in yeast .", []),  # of another organism
        ("The unc-119 of mice is long .", []),
        ("In worms unc-119 is lost .", ["unc-119"]),
        ("YPT1 is essential in budding yeast .", ["YPT1"]),
        ("YPT1 was the bait in a yeast two-hybrid screen .", []),
        # Common words need a capital, or words for genes or a gene beside them.
        ("In Drosophila black eyes are rare .", []),
        ("In Drosophila expression of black is low .", ["black"]),
        ("In Drosophila spalt and black are lost .", ["spalt", "black"]),
        ("In Drosophila we saw Delta at borders .", ["Delta"]),
        ("Drosophila grew . Black eyes were seen .", []),
        ("Black regulates growth in Drosophila .", ["Black"]),
        ("Delta is required in Drosophila .", ["Delta"]),
        ("Black is a colour of Drosophila .", []),
        ("In the disc of Drosophila , Delta is at borders .", ["Delta"]),
    ],
)
def test_genes(kb: KnowledgeBase, text: str, expected: list[str]) -> None:
    assert found(kb, text) == expected


def test_a_document_is_about_the_organisms_that_it_names_often(kb: KnowledgeBase) -> None:
    text = "Mice , mice , mice , mice and mice lack spalt , as do flies ."
    mice = [(i, i + 1, "Species", 0.9) for i, word in enumerate(text.split()) if "ice" in word]
    assert "spalt" in found(kb, text, *mice[:1])
    assert "spalt" not in found(kb, text, *mice)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In Drosophila the SPALT method is used .", []),  # an acronym
        ("In Drosophila the protein Spalt is lost .", ["Spalt"]),
        ("In worms UNC-119 is lost .", ["UNC-119"]),  # a protein
        ("In yeast Ypt1 and ypt1 are lost .", ["Ypt1", "ypt1"]),
        ("In Drosophila fragments of 3 μb were seen .", []),
    ],
)
def test_names_of_letters_match_by_case(kb: KnowledgeBase, text: str, expected: list[str]) -> None:
    assert found(kb, text) == expected


def test_other_mentions_stay(kb: KnowledgeBase) -> None:
    assert found(kb, "Flies without spalt die .", (2, 4, "Disease", 0.5)) == ["spalt die"]
