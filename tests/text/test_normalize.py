"""Normalisation of names."""

import random
import re

import pytest

from spacy_bioel.text.normalize import normalize_name, normalize_names


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
    [
        "Gleevec™ 5㎎ №5 x℃",
        "ΟΔΟΣ-ΟΔΟΣ ½mg 5²x",
        "İstanbul-ſ ẞ ß",
        "🙂👩‍⚕️ [3H]-naloxone",
    ],
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
