"""Names that mean the same are normalised alike, and short forms stand for what a text defines."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import Cases
from spacy.language import Language

from spacy_bioel.export.html import address_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.spelling import singular
from spacy_bioel.loading import dictionary_pipeline
from spacy_bioel.text.normalize import (
    normalize_name,
    normalize_names,
    respellings,
    singular_of,
    stem_of,
    subscripts,
    words_of,
)
from spacy_bioel.text.sentences import (
    expand_abbreviations,
    find_abbreviations,
    find_forms,
    find_short_binomials,
)
from spacy_bioel.types import Concept

NAMES = ("Renal failure", "Rheumatoid factor", "H2CO3", "vitamin A2", "vitamin A")
FORMS = {"AKI": "acute kidney injury", "As": "arsenic"}


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    folder = tmp_path_factory.mktemp("defined") / "kb"
    build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(NAMES, start=1)], folder)
    return dictionary_pipeline(str(folder))


@pytest.fixture
def checks(nlp) -> dict[str, Callable[[str], Any]]:
    def found(text: str) -> list[list[str]]:
        doc = nlp(text)
        return [[span.text, span.kb_id_] for span in doc.spans["bioel"]]

    return {
        "address": address_of,
        "definitions": find_abbreviations,
        "expanded": lambda text: expand_abbreviations(text, FORMS.get),
        "found": found,
        "ids": lambda text: [id.removeprefix("X:") for _, id in found(text)],
        "normalised": normalize_name,
        "respellings": respellings,
        "singulars": lambda text: " ".join({singular_of(word) for word in text.split()}),
        "subscripts": lambda text: [plain for _, _, plain in subscripts(text, text)],
    }


@pytest.mark.parametrize("case", list(Cases(Path(__file__).with_name("cases.yml"))))
def test_cases(checks, case):
    assert checks[case["check"]](case["text"]) == case["expected"], case.get("why")


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


def test_words_of_one_family():
    for family in (
        *("hypoplasia hypoplastic", "fibula fibular fibulae", "necrosis necrotic"),
        *("hypertension hypertensive", "deficiency deficient", "epilepsy epileptic"),
        *("abnormality abnormalities abnormal", "convulsions convulsive", "pelvis pelvic"),
    ):
        assert len({stem_of(word) for word in family.split()}) == 1, family

    # Substances have different stems.
    words = "nitric nitrous sulfate sulfite sulfide alcohol alcoholism toes tes".split()
    assert len({stem_of(word) for word in words}) == len(words)


def test_a_number_and_its_unit_are_two_words():
    assert words_of("aspirin 10mg b12") == ["aspirin", "10", "mg", "b12"]


def test_singular():
    words = "tumors cells virus diagnosis abscess kidney".split()
    assert [singular(word) for word in words] == ["tumor", "cell", *words[2:]]
    assert [singular(word) for word in ("rats", "")] == ["rats", ""]  # too short to tell


def test_short_forms_are_found_as_whole_words():
    text = "AKI, AKIs, xAKI, (AKI) T1 T1 T1-AKI_ T1"
    assert find_forms(text, ["T1 T1", "AKI", "T1", "ZZ", ""]) == {
        "T1 T1": [(23, 28)],
        "AKI": [(0, 3), (5, 9), (18, 21)],
        "T1": [(23, 25), (26, 28), (29, 31), (37, 39)],
        "ZZ": [],
        "": [],
    }
    assert find_forms(text, []) == {}
    # Short forms from another detector may begin with a sign.
    assert find_forms("a +AB +ABC", ["+AB"]) == {"+AB": [(2, 5)]}
    assert find_forms("AKIx and Ass", ["AKI", "As"]) == {"AKI": [], "As": [(9, 12)]}


def test_abbreviated_binomials():
    text = (
        "Flavobacterium johnsoniae glides. F. johnsoniae and F.johnsoniae, but not E. coli, "
        "S. aureus, B. johnsoniae or a Foo johnsoniae. Was J. Smith here?"
    )
    assert find_short_binomials(text) == {
        "F. johnsoniae": "Flavobacterium johnsoniae",
        "F.johnsoniae": "Flavobacterium johnsoniae",
    }
    assert find_short_binomials("") == {}


def test_all_definitions():
    forms = find_abbreviations("Renal failure (RF). Rheumatoid factor (RF). Acute pain (AP).")
    assert forms == {"RF": "Renal failure", "AP": "Acute pain"}
    assert [*forms.pairs()] == [*forms.items(), ("RF", "Rheumatoid factor")]
    assert [forms.at(offset, "RF") for offset in (0, 20, 99)] == [forms["RF"]] * 2 + [
        "Rheumatoid factor"
    ]
    assert [forms.at(99, "AP"), forms.at(99, "XY")] == ["Acute pain", None]
    # The first definition wins, wherever it is.
    far = "x " * 500 + "RF (renal failure), rheumatoid factor (RF)"
    assert find_abbreviations(far) == {"RF": "renal failure"}
