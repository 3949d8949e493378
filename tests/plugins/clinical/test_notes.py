"""Shorthand and measurements in clinical notes, with the preset "clinical"."""

from pathlib import Path

import pytest
from tiny import linking_nlp, links

import spacy_bioel
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import set_preset
from spacy_bioel.plugins.clinical.notes import measured
from spacy_bioel.types import Concept

NAMES = (
    ("Anemia",),
    ("Mitral regurgitation",),
    ("Dyspnea", "Shortness of breath"),
    ("Obesity",),
    ("Chronic kidney disease",),
    ("Weight loss",),
    ("Stage 3 chronic kidney disease",),
    ("Cerebral palsy", "CP"),
    ("Chest pain",),
    ("Rheumatoid arthritis", "RA"),
    ("Pulmonary embolism",),
    ("Allergy", "Allergies"),
    ("Depression",),
    ("ST segment depression",),
    ("Hyponatremia",),
    ("Chronic pulmonary obstruction", "COPD", "Chronic obstructive pulmonary disease"),
    ("Exertional dyspnea",),
    ("Diabetes mellitus",),
    ("Diabetes insipidus",),
    ("Fever",),
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
        ("Na 2019, Ca 125, vitamin K 100", {}),  # implausible values
        ("K 6.1 mg, Na 124-128, K 6.1.2", {}),  # another unit, a range, not a number
        ("urine Na 124", {}),
        (
            "Na: 124; Sodium 124; K+ 6.1",
            {"Na: 124": "hyponatremia", "Sodium 124": "hyponatremia", "K+ 6.1": "hyperkalemia"},
        ),
        ("hb 7.2, HB 7.1", {"hb 7.2": "anemia", "HB 7.1": "anemia"}),
        (
            "Na      124\nHb\t7.2\n| K | 6.4 |",
            {"Na      124": "hyponatremia", "Hb\t7.2": "anemia", "K | 6.4": "hyperkalemia"},
        ),
        ("Hb: 12.1 -> 7.2", {"Hb: 12.1 -> 7.2": "anemia"}),
        (
            "Hb 7.1 -> 9.4 → 12.8, Hb fell from 12.1 to 10.4",
            {"Hb fell from 12.1 to 10.4": "anemia"},
        ),
        (
            "Glucose 410 mg/dL, Glucose 410",
            {"Glucose 410 mg/dL": "hyperglycemia", "Glucose 410": "hyperglycemia"},
        ),
        ("Potassium 6.1 mmol/L", {"Potassium 6.1 mmol/L": "hyperkalemia"}),
        (
            "HR 132, BP 82/40",
            {"HR 132": "tachycardia", "BP 82/40": "hypotension|decreased blood pressure"},
        ),
        ("4-month-old boy, HR 152, BP 75/40", {}),
        ("HR 1.32 (95% CI 1.1-1.6), sodium 120 mEq daily", {}),
        ("bilirubin 12, lactate 8.1, glucose 25", {}),  # abnormal in one unit only
        ("Hb 12.1\nWBC 1.1", {"WBC 1.1": "leukopenia"}),  # a table
        ("platelets 22 000/µL", {"platelets 22 000/µL": "thrombocytopenia"}),
        ("WBC 18, urine WBC 18.2", {}),  # of blood or another fluid: only a unit would tell
        ("WBC 3,100", {"WBC 3,100": "leukopenia"}),
        ("platelets 45,000", {"platelets 45,000": "thrombocytopenia"}),
        ("WBC 9,800", {}),
        ("K | 5.2 | H | 3.5-5.1", {"K | 5.2": "hyperkalemia"}),  # tables with flags and ranges
        ("K | 5.2 | | 3.5-5.1", {"K | 5.2": "hyperkalemia"}),
        ("K | 5.2 | | 3.5-5.5", {}),
        ("K  5.2  mmol/L  3.5-5.1  H", {"K  5.2  mmol/L": "hyperkalemia"}),
        ("K 5.2 mmol/L 3.5-5.1 H", {"K 5.2 mmol/L": "hyperkalemia"}),
        ("K\t5.2\tmmol/L\t3.5-5.1", {"K\t5.2\tmmol/L": "hyperkalemia"}),
        ("K  4.2  mmol/L  3.5-5.1\nNa  140  mmol/L  135-145", {}),
        ("WBC 18.2", {"WBC 18.2": "leukocytosis"}),  # cells in other fluids are whole numbers
        ("WBC 18.2 K/uL", {"WBC 18.2 K/uL": "leukocytosis"}),
        ("", {}),
    ],
)
def test_measurements_out_of_their_range(text, expected):
    assert {text[a:b]: names for (a, b), (_, _, names) in measured(text).items()} == expected


def test_a_measurement_is_kept_by_its_place():
    text = "Day 1: Na 130 (ref 129-145). Day 2: Na 130."
    assert list(measured(text)) == [(36, 42)]
    assert list(measured("Pleural fluid glucose 312. Serum glucose 312.")) == [(33, 44)]


TEXT = "PMH: MR, CKD3. Wt loss, no SOB. Hb 7.2, BMI 41."


def test_notes_without_a_detector(kb):
    nlp = linking_nlp(kb, mentions="dictionary")
    assert links(nlp(TEXT)) == [("Wt loss", "X:5"), ("SOB", "X:2")]
    set_preset(nlp, "clinical")
    expected = [("MR", "X:1"), ("CKD3", "X:6"), ("Wt loss", "X:5"), ("SOB", "X:2")]
    assert links(nlp(TEXT)) == [*expected, ("Hb 7.2", "X:0"), ("BMI 41", "X:3")]
    alone, *_, among = nlp.pipe([TEXT, "", "no MR", TEXT])
    assert links(alone) == links(among)
    assert [span.text for span in alone.spans["bioel"] if span._.negated] == ["SOB"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Stage 3 CKD, CKD 3, CKD stage III", [("Stage 3 CKD", "X:6"), ("CKD 3", "X:6"),
                                               ("CKD stage III", "X:6")]),
        ("CKD stage 4", [("CKD stage 4", "X:4")]),
        ("CP and SOB", [("CP", "X:8"), ("SOB", "X:2")]),
        ("cerebral palsy (CP). CP is", [("cerebral palsy", "X:7"), ("CP", "X:7"), ("CP", "X:7")]),
        ("SpO2 96% on RA. Sat 98% RA. RA on methotrexate.", [("RA", "X:9")]),
        ("PE: lungs clear.\nAllergies: NKDA\nPE on CT.", [("PE", "X:10")]),
        ("ST depression in V5. Depression.", [("ST depression", "X:13"), ("Depression", "X:12")]),
        ("MR brain: normal. MR angiography. MR on echo.", [("MR", "X:1")]),
        ("John DOE has DOE.", [("DOE", "X:16")]),
        ("Lives in Ann Arbor, MI. LAD stent. Mid LAD.", []),
        ("72 YEAR OLD MAN WITH COPD, CAD AND MR AS BEFORE", [("COPD", "X:15")]),
        ("Dyspnea on exertion", [("Dyspnea on exertion", "X:16")]),
        ("Diabetes; diabetes insipidus", [("Diabetes", "X:17"), ("diabetes insipidus", "X:18")]),
        ("Na: 124", [("Na: 124", "X:14")]),
        ("| Na | 124 |", [("Na | 124", "X:14")]),
    ],
)  # fmt: skip
def test_words_with_another_meaning_in_notes(kb, text, expected):
    nlp = linking_nlp(kb, mentions="dictionary")
    set_preset(nlp, "clinical")
    assert links(nlp(text)) == expected
    considered = spacy_bioel.explain(nlp, text).considered
    assert sorted({c.text for c in considered if c.is_mention}) == sorted({t for t, _ in expected})


def test_other_meanings_with_the_starter():
    nlp = spacy_bioel.load(preset="clinical")
    text = "PE: lungs clear. SpO2 97% on RA. MR angiography normal. Known PE and RA."
    assert [link for link, _ in links(nlp(text))] == ["PE"]
    report = spacy_bioel.explain(nlp, text)
    assert [c.text for c in report.considered if c.is_mention] == ["PE"]
    nlp.get_pipe("bioel_mentions").cfg["threshold"] = 0.1  # so that the detector finds more
    report = spacy_bioel.explain(nlp, text)
    why = "the name of a section, or a word with another meaning in notes"
    assert ("PE", why) in {(c.text, c.reason) for c in report.considered}


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
