from __future__ import annotations

import pytest

from spacy_bioel.kb.words.bags import singular
from spacy_bioel.text.variants import spelling_variants


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
