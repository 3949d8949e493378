"""Short forms stand for what a text defines, and subscripts in brackets are read."""

import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import dictionary_pipeline
from spacy_bioel.text.normalize import subscripts
from spacy_bioel.text.sentences import (
    expand_abbreviations,
    find_abbreviations,
    find_forms,
    find_short_binomials,
)
from spacy_bioel.types import Concept


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("We saw acute kidney injury (AKI).", "AKI", "acute kidney injury"),
        ("in AKI (acute kidney injury) was", "AKI", "acute kidney injury"),
        ("the heat shock protein 70 (HSP70)", "HSP70", "heat shock protein 70"),
        ("an angiotensin-converting enzyme (ACE)", "ACE", "angiotensin-converting enzyme"),
        ("by 5-hydroxytryptamine (5-HT)", "5-HT", "5-hydroxytryptamine"),
        ("by acetylcholine (ACh)", "ACh", "acetylcholine"),
        ("a tumor necrosis factor alpha (TNF-α)", "TNF-α", "tumor necrosis factor alpha"),
        ("National Institutes of Health [NIH]", "NIH", "National Institutes of Health"),
        ("chronic pulmonary disease (CPD; also emphysema)", "CPD", "chronic pulmonary disease"),
        ("myotonic dystrophy (DM) is", "DM", "myotonic dystrophy"),
        ("a Virus-Immunodeficiency human (HIV)", "HIV", "Virus-Immunodeficiency human"),
        # Characters attached to a bracket, as in "[DA]1".
        ("of dopamine ([DA]1) and", "DA", "dopamine"),
        # Doubled letters: https://github.com/allenai/scispacy/issues/410
        ("a mindful memoization (MM)", "MM", "mindful memoization"),
        ("by growth hormone (GH) (Smith et al. 1999)", "GH", "growth hormone"),
    ],
)
def test_definitions(text, short, long):
    assert find_abbreviations(text) == {short: long}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("late effects (Lee, 2004) were", {}),  # citations: allenai/scispacy#158
        ("at the highest altitudes [12], (1) and (a)", {}),
        ("in twelve (n = 12) cases (P < 0.05)", {}),
        ("AKI rose in 2004 (AKI)", {}),  # nothing is its own definition
        ("myotonic dystrophy (MX), inorganic phosphate (pi)", {}),
        ("(AKI) comes first", {}),
        ("", {}),
        # A definition stays in its sentence: allenai/scispacy#188.
        ("homeodomain in Pygopus2 .\nPygopus2 ( Pygo2 ) is", {"Pygo2": "Pygopus2"}),
        ("Acute kidney disease rose. Injury (AKI) was seen.", {}),
        ("We grew E. coli strain (ECS).", {"ECS": "E. coli strain"}),
        ("Patients have Parkinson. PD (Parkinson disease) is", {"PD": "Parkinson disease"}),
        ("acute\n\nkidney injury (AKI)", {}),
        ("acute kidney\ninjury (AKI)", {"AKI": "acute kidney\ninjury"}),
        # The first definition wins, wherever it is.
        ("x " * 500 + "RF (renal failure), rheumatoid factor (RF)", {"RF": "renal failure"}),
    ],
)
def test_where_there_is_no_definition_or_another(text, expected):
    assert find_abbreviations(text) == expected


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        ("AKI", "acute kidney injury"),
        ("aki", "aki"),
        ("severe AKIs", "severe acute kidney injury"),
        ("As AKIz A", "arsenic AKIz A"),
        ("acute kidney injury (AKI)", "acute kidney injury"),
        ("failure (ARF)", "failure (ARF)"),
        ("", ""),
    ],
)
def test_expand_abbreviations(mention, expected):
    forms = {"AKI": "acute kidney injury", "As": "arsenic"}
    assert expand_abbreviations(mention, forms.get) == expected


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


# Short forms with several definitions, and subscripts.

NAMES = ("Renal failure", "Rheumatoid factor", "H2CO3", "vitamin A2", "vitamin A")


@pytest.fixture(scope="module")
def nlp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("defined") / "kb"
    build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(NAMES, start=1)], folder)
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
