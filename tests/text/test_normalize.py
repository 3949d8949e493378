"""Names that differ only in spelling, number or form of a letter are normalised alike."""

import random
import re

import pytest

from spacy_bioel.kb.spelling import singular
from spacy_bioel.text.normalize import (
    normalize_name,
    normalize_names,
    respellings,
    singular_of,
    stem_of,
    words_of,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Myocardial Infarction", "myocardial infarction"),
        ("  Diabetes\tMellitus,\nType 2 ", "diabetes mellitus type 2"),
        ("α-Synuclein", "alpha synuclein"),
        ("17β-Estradiol", "17beta estradiol"),
        ("µg and μg", "mug and mug"),  # the micro sign and the Greek letter
        ("ΟΔΟΣ", "omicrondeltaomicronsigma"),  # a final sigma is a sigma
        ("Ménière disease", "meniere disease"),
        ("Me\u0301nie\u0300re disease", "meniere disease"),
        ("Parkinson’s disease", "parkinson s disease"),
        ("Straße, œdème, Łódź, Ærø", "strasse oedeme lodz aero"),
        ("T–cell, T—cell, T‑cell, T−cell, T-cell", "t cell t cell t cell t cell t cell"),
        ("snake_case", "snake case"),
        ("CO₂ and ﬁbrosis", "co2 and fibrosis"),
        ("Gleevec™ and Taxol®", "gleevec and taxol"),
        ("[3H]-naloxone", "3h naloxone"),
        ("patient 🙂", "patient"),
        ("", ""),
    ],
)
def test_normalize_name(name, expected):
    assert normalize_name(name) == expected


# Blocks of letters, marks, symbols, presentation forms and planes beyond the first.
_RANGES = (
    (0x00, 0x24F), (0x250, 0x3FF), (0x400, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0x1100, 0x11FF),
    (0x1D00, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x33FF), (0xAC00, 0xACFF), (0xD800, 0xDFFF),
    (0xF900, 0xFFFD), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F000, 0x1F6FF),
    (0xE0000, 0xE01EF),
)  # fmt: skip


@pytest.mark.parametrize("low, high", _RANGES)
def test_normalising_twice_changes_nothing(low, high):
    draw = random.Random(low)
    for _ in range(2_000):
        strange, plain = (chr(draw.randint(low, high)) for _ in range(2)), "__ -.\taZ5ßΣİ\u0301"
        name = "".join(draw.sample([*strange, *draw.choices(plain, k=4)], 6))
        once = normalize_name(name)
        assert normalize_name(once) == once == " ".join(once.split()), ascii(name)


@pytest.mark.parametrize(
    "text",
    ["Gleevec™ 5㎎ №5 x℃", "ΟΔΟΣ-ΟΔΟΣ ½mg 5²x", "İstanbul-ſ ẞ ß", "🙂👩‍⚕️ [3H]-naloxone"],
)
def test_words_of_a_text_are_those_of_its_pieces(text):
    """`kb.knowledge_base.span_keys` depends on this to look up spans by their tokens."""
    pieces = re.findall(r"(?:[^\W_]|[\u0300-\u036f])+|[^\w\s]|_", text)
    words = " ".join(filter(None, map(normalize_name, pieces)))
    assert words == normalize_name(text)


def test_normalize_names():
    names = ["(Type-2)  Diabetes.", "", "β-Thalassaemia", "two\nlines", "---", "ACE"]
    expected = ["type 2 diabetes", "", "beta thalassaemia", "two lines", "", "ace"]
    assert normalize_names(names) == expected
    assert normalize_names([]) == []
    assert normalize_names(["Sjögren's"]) == ["sjogren s"]


# Singulars, stems and respellings of words.


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
