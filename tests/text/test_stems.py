"""Singulars, stems and respellings of words."""

import pytest

from spacy_bioel.kb.spelling import singular
from spacy_bioel.text.normalize import respellings, singular_of, stem_of, words_of


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("anaemia anemia", "anemia"),
        ("tumours tumors tumour", "tumor"),
        ("metastases metastasis", "metastasis"),
        ("diagnoses diagnosis", "diagnosis"),
        ("feet", "foot"),
        ("vertebrae vertebra", "vertebra"),
        ("fibres fiber", "fiber"),
        ("embryos embryo", "embryo"),
        ("loci locus", "locus"),
        ("microphthalmos", "microphthalmos"),
        ("mitochondria mitochondrion", "mitochondrion"),
        ("epithelia epithelium", "epithelium"),
        ("foramina foramen", "foramen"),
    ],
)
def test_words_in_the_singular_and_in_american_spelling(words, expected):
    assert {singular_of(word) for word in words.split()} == {expected}


def test_words_of_one_family():
    for family in (
        *("hypoplasia hypoplastic", "fibula fibular fibulae", "necrosis necrotic"),
        *("hypertension hypertensive", "deficiency deficient", "epilepsy epileptic"),
        *("abnormality abnormalities abnormal", "convulsions convulsive", "pelvis pelvic"),
    ):
        assert len({stem_of(word) for word in family.split()}) == 1, family


def test_substances_have_different_stems():
    words = "nitric nitrous sulfate sulfite sulfide alcohol alcoholism toes tes".split()
    assert len({stem_of(word) for word in words}) == len(words)


def test_a_number_and_its_unit_are_two_words():
    assert words_of("aspirin 10mg b12") == ["aspirin", "10", "mg", "b12"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seizure", ["seizures"]),
        ("kidney diseases", ["kidney disease", "kidney diseasis", "kidney diseas"]),
        ("metastases", ["metastase", "metastasis", "metastas"]),
        ("abscesses", ["abscesse", "abscessis", "abscess"]),
        ("biopsies", ["biopsy", "biopsie"]),
        ("anaemia", ["anemia", "anaemias", "anemias"]),
        ("tumours", ["tumors", "tumour", "tumor"]),
        ("parkinson s disease", ["parkinson disease", "parkinson s diseases"]),
        ("virus", []),
        ("", []),
    ],
)
def test_respellings(name, expected):
    assert respellings(name) == expected


def test_singular():
    words = "tumors cells virus diagnosis abscess kidney".split()
    assert [singular(word) for word in words] == ["tumor", "cell", *words[2:]]
    assert [singular(word) for word in ("rats", "")] == ["rats", ""]  # too short to tell
