"""Abbreviations that a text defines, and their occurrences."""

import pytest

from spacy_bioel.text.sentences import (
    expand_abbreviations,
    find_abbreviations,
    find_forms,
    find_short_binomials,
)


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
    "text",
    [
        "late effects (Lee, 2004) were",  # citations: allenai/scispacy#158
        "at the highest altitudes [12], (1) and (a)",
        "in twelve (n = 12) cases (P < 0.05)",
        "AKI rose in 2004 (AKI)",  # nothing is its own definition
        "myotonic dystrophy (MX), inorganic phosphate (pi)",
        "(AKI) comes first",
        "",
    ],
)
def test_no_definition(text):
    assert find_abbreviations(text) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # allenai/scispacy#188
        (
            "the agent targeting homeodomain in Pygopus2 .\nPygopus2 ( Pygo2 ) is",
            {"Pygo2": "Pygopus2"},
        ),
        ("Acute kidney disease rose. Injury (AKI) was seen.", {}),
        ("We grew E. coli strain (ECS).", {"ECS": "E. coli strain"}),
        ("Patients have Parkinson. PD (Parkinson disease) is", {"PD": "Parkinson disease"}),
        ("acute\n\nkidney injury (AKI)", {}),
        ("acute kidney\ninjury (AKI)", {"AKI": "acute kidney\ninjury"}),
        # The first definition wins, wherever it is.
        ("x " * 500 + "RF (renal failure), rheumatoid factor (RF)", {"RF": "renal failure"}),
    ],
)
def test_a_definition_stays_in_its_sentence(text, expected):
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
