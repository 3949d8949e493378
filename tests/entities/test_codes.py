"""Codes that look like variants, and coordinates on chromosomes."""

import pytest

from spacy_bioel.entities.codes import is_code
from spacy_bioel.entities.variant_grammar import find_variants, read_variant


@pytest.mark.parametrize(
    "before",
    [
        "The buffer (cat. no. ",
        "Catalogue number: ",
        "from lot ",
        "in well ",
        "Wells B11C and ",
        "the reverse primer was ",
        "grant no. ",
        "order #",
        "Protocol ",
    ],
)
def test_codes(before):
    text = f"{before}T790M was used."
    assert is_code(text, len(before), len(before) + 5)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "The mutation ",
        "primers for ",
        "Patients with ",
        "antibodies against ",
        "Samples with ",
        "of the product of ",
        "a lot of ",
    ],
)
def test_variants_are_no_codes(before):
    text = f"{before}T790M was seen."
    assert not is_code(text, len(before), len(before) + 5)


@pytest.mark.parametrize(
    ("variant", "hgvs"),
    [
        ("chr4:1803568C>G", "g.1803568C>G"),
        ("Chr7:g.55242465del", "g.55242465del"),
        ("chrX:31496350_31496354del", "g.31496350_31496354del"),
        ("chrM:3243A>G", "m.3243A>G"),
        ("chr18:60985879dup", "g.60985879dup"),
    ],
)
def test_coordinates(variant, hgvs):
    text = f"We saw {variant} twice."
    assert find_variants(text) == [(7, 7 + len(variant))]
    found = read_variant(text, 7, 7 + len(variant))
    assert found is not None and found.hgvs == hgvs
