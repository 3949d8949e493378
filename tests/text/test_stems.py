from __future__ import annotations

import pytest

from spacy_bioel.kb.words.bags import singular
from spacy_bioel.text.stems import singular_of, spelling_variants, stem_of, words_of


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("seizures seizure", "seizure"),
        ("anaemia anemia", "anemia"),
        ("tumours tumors tumour", "tumor"),
        ("metastases metastasis", "metastasis"),
        ("diagnoses diagnosis", "diagnosis"),
        ("feet", "foot"),
        ("vertebrae vertebra", "vertebra"),
        ("fibres fiber", "fiber"),
        ("diseases", "disease"),
        ("embryos embryo", "embryo"),
        ("loci locus", "locus"),
        ("microphthalmos", "microphthalmos"),
        ("mitochondria mitochondrion", "mitochondrion"),
        ("epithelia epithelium", "epithelium"),
        ("foramina foramen", "foramen"),
    ],
)
def test_words_in_the_singular_and_in_american_spelling(words: str, expected: str) -> None:
    assert {singular_of(word) for word in words.split()} == {expected}


@pytest.mark.parametrize(
    "family",
    [
        "hypoplasia hypoplastic",
        "fibula fibular fibulae",
        "necrosis necrotic",
        "hypertension hypertensive",
        "deficiency deficient",
        "abnormality abnormalities abnormal",
        "convulsions convulsive",
        "pelvis pelvic",
        "epilepsy epileptic",
    ],
)
def test_words_of_one_family(family: str) -> None:
    assert len({stem_of(word) for word in family.split()}) == 1


def test_substances_are_apart() -> None:
    words = "nitric nitrous sulfate sulfite sulfide alcohol alcoholism toes tes".split()
    assert len({stem_of(word) for word in words}) == len(words)


def test_a_number_and_its_unit_are_two_words() -> None:
    assert words_of("aspirin 10mg b12") == ["aspirin", "10", "mg", "b12"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seizures", ["seizure"]),
        ("seizure", ["seizures"]),
        ("kidney diseases", ["kidney disease", "kidney diseasis", "kidney diseas"]),
        ("metastases", ["metastase", "metastasis", "metastas"]),
        ("viruses", ["viruse", "virusis", "virus"]),
        ("abscesses", ["abscesse", "abscessis", "abscess"]),
        ("biopsies", ["biopsy", "biopsie"]),
        ("cortexes", ["cortex", "cortexe"]),
        ("anaemia", ["anemia", "anaemias", "anemias"]),
        ("diarrhoea", ["diarrhea", "diarrhoeas", "diarrheas"]),
        ("tumours", ["tumors", "tumour", "tumor"]),
        ("parkinson s disease", ["parkinson disease", "parkinson s diseases"]),
        ("virus", []),
        ("diagnosis", []),
        ("mass", []),
        ("", []),
    ],
)
def test_spelling_variants(name: str, expected: list[str]) -> None:
    assert spelling_variants(name) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tumors", "tumor"),
        ("diseases", "disease"),
        ("cells", "cell"),
        ("virus", "virus"),
        ("diagnosis", "diagnosis"),
        ("abscess", "abscess"),
        ("rats", "rats"),  # too short to tell
        ("kidney", "kidney"),
        ("", ""),
    ],
)
def test_singular(word: str, expected: str) -> None:
    assert singular(word) == expected
