"""Other written forms of the codes in a knowledge base of one's own."""

from pathlib import Path

import pytest
from spacy.language import Language

from spacy_bioel.dictionary.written_forms import is_code_name
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import dictionary_pipeline
from spacy_bioel.types import Concept

NAMES = [
    "XL-77",
    "QD45RZ",
    "anti-GX3",
    "IFX-beta",
    "PDL 2-b",
    "WAS-17",
    "AB-12",
    "A-B12",
    "Impact",
    "KL300",
]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    folder: Path = tmp_path_factory.mktemp("own") / "kb"
    build_kb([Concept(f"OWN:{i}", (name,)) for i, name in enumerate(NAMES)], folder)
    return dictionary_pipeline(str(folder))


def found(nlp: Language, text: str) -> list[tuple[str, str]]:
    doc = nlp(text)
    return [(s.text, NAMES[int(s.kb_id_.removeprefix("OWN:"))]) for s in doc.spans["bioel"]]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("XL-77", "XL-77"),
        ("KL 300", "KL300"),
        ("XL77", "XL-77"),
        ("XL 77", "XL-77"),
        ("Xl77", "XL-77"),
        ("QD45-RZ", "QD45RZ"),
        ("QD45 RZ", "QD45RZ"),
        ("QD-45RZ", "QD45RZ"),
        ("anti GX3", "anti-GX3"),
        ("anti-GX-3", "anti-GX3"),
        ("αGX3", "anti-GX3"),
        ("α-GX3", "anti-GX3"),
        ("IFX-β", "IFX-beta"),
        ("IFXβ", "IFX-beta"),
        ("PDL2-b", "PDL 2-b"),
        ("AB-12", "AB-12"),
        ("A-B12", "A-B12"),
    ],
)
def test_written_forms(nlp, written, name):
    assert found(nlp, f"We added {written} to the wells.") == [(written, name)]


@pytest.mark.parametrize(
    "text",
    [
        "It was 17 days later.",
        "The age was 17.",
        "KL 300 mg was given.",
        "KL 300 % of them.",
        "XL 770 was used.",
        "AXL-77 was used.",
        "We added AB12 to it.",  # of two names
        "XL. 77 were lost.",
        "The impact was lit. Impact lights are rare.",
    ],
)
def test_other_strings(nlp, text):
    assert found(nlp, text) == []


def test_words_have_their_case_or_a_neighbour(nlp):
    assert found(nlp, "We used Impact twice.") == [("Impact", "Impact")]
    assert found(nlp, "The Impact kit failed.") == [("Impact", "Impact")]
    assert found(nlp, "Impact kits failed.") == [("Impact", "Impact")]


@pytest.mark.parametrize("name", ["Type 2 diabetes mellitus", "fever", "of", "Vector", "12", "a"])
def test_words_are_no_codes(name):
    assert not is_code_name(name)
