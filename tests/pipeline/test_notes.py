"""Shorthand and measurements of clinical notes, which the preset "clinical" finds."""

from pathlib import Path

import pytest
from tiny import linking_nlp, links

import spacy_bioel
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.pipeline.loading import set_preset
from spacy_bioel.pipeline.mentions.notes import measured
from spacy_bioel.types import Concept

NAMES = (
    ("Anemia",),
    ("Mitral regurgitation",),
    ("Dyspnea", "Shortness of breath"),
    ("Obesity",),
    ("Chronic kidney disease",),
    ("Weight loss",),
)


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("notes") / "kb"
    build_kb([Concept(f"X:{i}", names) for i, names in enumerate(NAMES)], folder)
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hb 7.2, plt 40k", {"Hb 7.2": "anemia", "plt 40k": "thrombocytopenia"}),
        ("Hb was 72 g/L", {"Hb was 72 g/L": "anemia"}),
        ("| HB | 7.2 g/dL | 12-16 |", {"HB | 7.2 g/dL": "anemia"}),
        ("white cell count—28×109/L", {"white cell count—28×109/L": "leukocytosis"}),
        ("hemoglobin level of 13.2 g/dL", {}),
        ("platelets 40,000/µL", {"platelets 40,000/µL": "thrombocytopenia"}),
        ("T 39.4, Tmax 102.3 F", {"T 39.4": "fever", "Tmax 102.3 F": "fever"}),
        ("BP 180/110", {"BP 180/110": "increased blood pressure|hypertension"}),
        ("BP 120/80, BMI 27, Na 140", {}),
        ("Na 2019, Ca 125, vitamin K 100", {}),  # not plausible
        ("K 6.1 mg, Na 124-128, K 6.1.2", {}),  # another unit, a range, no number
        ("urine Na 124", {}),
        ("WBC 18.2", {}),  # of blood or another fluid: the unit tells
        ("WBC 18.2 K/uL", {"WBC 18.2 K/uL": "leukocytosis"}),
        ("", {}),
    ],
)
def test_measurements_out_of_their_range(text, expected):
    assert measured(text) == expected


TEXT = "PMH: MR, CKD3. Wt loss, no SOB. Hb 7.2, BMI 41."


def test_notes_with_a_knowledge_base_alone(kb):
    nlp = linking_nlp(kb, mentions="kb")
    assert links(nlp(TEXT)) == [("Wt loss", "X:5"), ("SOB", "X:2")]
    set_preset(nlp, "clinical")
    expected = [("MR", "X:1"), ("CKD3", "X:4"), ("Wt loss", "X:5"), ("SOB", "X:2")]
    assert links(nlp(TEXT)) == [*expected, ("Hb 7.2", "X:0"), ("BMI 41", "X:3")]
    alone, *_, among = nlp.pipe([TEXT, "", "no MR", TEXT])
    assert links(alone) == links(among)
    assert [span.text for span in alone.spans["bioel"] if span._.negated] == ["SOB"]


def test_notes_with_the_starter():
    nlp = spacy_bioel.load(preset="clinical")
    doc = nlp("PMH: MI, CVA, DM2, HTN, CKD3, afib. Denies N/V. HEENT: normal. Hb 7.2 g/dL.")
    assert links(doc) == [
        ("MI", "MESH:D009203"),
        ("CVA", "MESH:D020521"),
        ("DM2", "MESH:D003924"),
        ("HTN", "MESH:D006973"),
        ("CKD3", "MESH:D051436"),
        ("afib", "MESH:D001281"),
        ("N/V", "MESH:D009325|MESH:D014839"),
        ("Hb 7.2 g/dL", "MESH:D000740"),
    ]
    report = spacy_bioel.explain(nlp, "Prior MI", "MI")
    assert [one.strings for one in report.mentions] == [("myocardial infarction",)]
    found = [(c.text, c.is_mention, c.name) for c in report.considered if c.is_mention]
    assert found == [("MI", True, "myocardial infarction")]
