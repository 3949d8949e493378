"""Other spellings of the name of a gene."""

import pytest

from spacy_bioel.entities.genes import other_spellings


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("Gdt1p", "gdt1"),  # the protein, of yeast
        ("cdc28-13", "cdc28"),  # an allele, and a deletion
        ("cln3Δ", "cln3"),
        ("IL-2", "il2"),
        ("IL2", "il 2"),
        ("NF kappa B", "nf kappab"),
        ("human TERT gene", "tert"),
        ("wild-type p53 protein", "p53"),
        ("p-AKT", "akt"),
        ("hTERT", "tert"),
        ("mFgf2", "fgf2"),
    ],
)
def test_spellings(name, spelled):
    assert spelled in other_spellings(name)


@pytest.mark.parametrize("name", ["", "gene", "human", "-", "mRNA", "p-"])
def test_a_name_is_never_reduced_to_nothing(name):
    assert "" not in other_spellings(name)


def test_words_are_not_prefixes():
    assert other_spellings("memory") == ["memory"]
    assert other_spellings("a b c d e") == ["a b c d e"]  # too many words to be joined
