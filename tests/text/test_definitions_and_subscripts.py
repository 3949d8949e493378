"""Short forms with several definitions, and subscripts in brackets: what is looked up and found."""

import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import dictionary_pipeline
from spacy_bioel.text.normalize import subscripts
from spacy_bioel.text.sentences import find_abbreviations
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("X:1", ("Renal failure",)),
    Concept("X:2", ("Rheumatoid factor",)),
    Concept("X:3", ("H2CO3",)),
    Concept("X:4", ("vitamin A2",)),
    Concept("X:5", ("vitamin A",)),
]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory):
    build_kb(CONCEPTS, folder := tmp_path_factory.mktemp("defined") / "kb")
    return dictionary_pipeline(str(folder))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Renal failure (RF). RF rose. Rheumatoid factor (RF). RF rose.", "1 1 1 2 2 2"),
        ("RF rose. Renal failure (RF) and rheumatoid factor (RF).", "1 1 1 2 2"),
        ("Renal failure (RF). Radio frequency (RF) and RF.", "1 1"),
        ("Radio frequency (RF) and RF. Renal failure (RF), RF.", "1 1 1"),
        # Words whose initials differ, and other spellings of one long form, define nothing new.
        ("Renal failure (RF). Real differences of fluid (RF); RF rose.", "1 1 1 1"),
        ("Renal failure (RF) or renal failures (RF); RF rose.", "1 1 1 1 1"),
    ],
)
def test_the_last_definition_before_a_short_form(nlp, text, expected):
    doc = nlp(text)
    assert " ".join(span.kb_id_.removeprefix("X:") for span in doc.spans["bioel"]) == expected


def test_all_definitions():
    forms = find_abbreviations("Renal failure (RF). Rheumatoid factor (RF). Acute pain (AP).")
    assert forms == {"RF": "Renal failure", "AP": "Acute pain"}
    assert [*forms.pairs()] == [*forms.items(), ("RF", "Rheumatoid factor")]
    assert [forms.at(offset, "RF") for offset in (0, 20, 99)] == [forms["RF"]] * 2 + [
        "Rheumatoid factor"
    ]
    assert [forms.at(99, "AP"), forms.at(99, "XY")] == ["Acute pain", None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H(2)CO(3) and A(2)", ["H2CO3", "A2"]),
        ("alpha(1)-blockers, IgG(2a)", ["alpha1", "IgG2a"]),
        ("Ca(2+), f(x), cells (2), Table(2), NF(kappa)B", []),
        ("PGE(2) in asthma(2)", []),  # citations
    ],
)
def test_subscripts(text, expected):
    assert [plain for _, _, plain in subscripts(text, text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H(2)CO(3) was added.", [("H(2)CO(3)", "X:3")]),
        ("H2CO3 was added.", [("H2CO3", "X:3")]),
        ("Vitamin A(2) in anaemia(3)", [("Vitamin A", "X:5")]),
        ("Vitamin A(2) and vitamin A (2)", [("Vitamin A(2)", "X:4"), ("vitamin A", "X:5")]),
    ],
)
def test_names_with_subscripts(nlp, text, expected):
    doc = nlp(text)
    assert [(span.text, span.kb_id_) for span in doc.spans["bioel"]] == expected
