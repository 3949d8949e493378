"""Findings that a note words differently from their names, ambiguous shorthand, and the values of
measurements, with the preset "clinical"."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import linking_nlp, links

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build import Branches, build_kb
from spacy_bioel.loading import load_model, set_preset
from spacy_bioel.plugins.clinical.notes import measured
from spacy_bioel.plugins.clinical.rewordings import find_rewordings
from spacy_bioel.types import Concept, Link

NAMES = (
    "Short nose|Broad nose|Upturned nose|Short neck|Webbed neck|Clubfoot|Long fingers|Low-set ears|"
    "Dry eye|Eye pain|Muscle pain|Coxa vara|Coxa valga|Pes planus|Pes cavus|Renal agenesis|"
    "Renal hypoplasia|Hypertelorism|Hypotelorism|Hypertonia|Polydactyly|Syndactyly|Oligodactyly|"
    "Microphthalmia|Cardiomegaly|Fever|Microcephaly|Ptosis|Autism|Obesity|Hypothyroidism|"
    "Febrile seizure|Seizure|Rash|Cough|Stroke|Falls|Yellow fever|Wrist drop|Tremor|"
    "Ataxic tremor|Ataxia|Aplasia/Hypoplasia of the thumb|Hypoplasia of the thumb|"
    "Preauricular pit|Atrial septal defect|Autism spectrum disorder|Chest pain|Cerebral palsy|"
    "Transient global amnesia|Transposition of the great arteries|Hyperkalemia|Hyponatremia|"
    "Chronic pain|Abdominal pain|Undescended testis|Telangiectasia|Pain|Anemia"
).split("|")  # fmt: skip
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rewordings") / "kb"
    build_kb([Concept(name.replace(" ", "_"), (name,)) for name in NAMES], folder)
    return folder


@pytest.fixture(scope="module")
def clinical(kb) -> Any:
    nlp = linking_nlp(kb, mentions="dictionary")
    set_preset(nlp, "clinical")
    return nlp


def ids(nlp: Any, text: str) -> list[str]:
    return [f"{surface}: {id.replace('_', ' ')}" for surface, id in links(nlp(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short broad nose", ["short broad nose: Short nose", "broad nose: Broad nose"]),
        (
            "a short, broad and upturned nose",
            ["short, broad and upturned nose: Short nose",
             "broad and upturned nose: Broad nose", "upturned nose: Upturned nose"],
        ),
        ("short/webbed neck", ["short/webbed neck: Short neck", "webbed neck: Webbed neck"]),
        ("coxa vara/valga", ["coxa vara: Coxa vara", "coxa vara/valga: Coxa valga"]),
        ("pes planus / cavus", ["pes planus: Pes planus", "pes planus / cavus: Pes cavus"]),
        # Each phrase is read alone, and a modifier of time or degree modifies the whole.
        ("redness of the eye, muscle pain", ["muscle pain: Muscle pain"]),
        ("Short hair. Webbed neck.", ["Webbed neck: Webbed neck"]),
        ("short arms; broad nose", ["broad nose: Broad nose"]),
        ("chronic abdominal pain", ["abdominal pain: Abdominal pain"]),
    ],
)  # fmt: skip
def test_words_that_names_share(clinical, text, expected):
    found = ids(clinical, text)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low-set left ear", ["low-set left ear: Low-set ears"]),
        ("Long right fingers", ["Long right fingers: Long fingers"]),
        ("Undescended left testes", ["Undescended left testes: Undescended testis"]),
        ("broad shoulders; left nose", []),
        ("long legs, right fingers", []),
    ],
)
def test_a_side_inside_a_name(clinical, text, expected):
    assert ids(clinical, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("micro-phthalmia", ["micro-phthalmia: Microphthalmia"]),
        ("Cardio-megaly, club-foot", ["Cardio-megaly: Cardiomegaly", "club-foot: Clubfoot"]),
        ("pre-auricular pits", ["pre-auricular pits: Preauricular pit"]),
        ("hypo- or hypertelorism",
         ["hypo- or hypertelorism: Hypotelorism", "hypertelorism: Hypertelorism"]),
        ("poly-/syndactyly", ["poly-/syndactyly: Polydactyly", "syndactyly: Syndactyly"]),
        ("poly/syndactyly", ["poly/syndactyly: Polydactyly", "syndactyly: Syndactyly"]),
        ("fever/syndactyly", ["fever: Fever", "syndactyly: Syndactyly"]),
        ("anti-seizure, non-ataxia", []),
        ("swan-neck, two-stroke, wet-cough", []),
        ("ataxia-telangiectasia", ["ataxia: Ataxia", "telangiectasia: Telangiectasia"]),
        ("post-stroke", ["stroke: Stroke"]),
    ],
)  # fmt: skip
def test_hyphens(clinical, text, expected):
    assert ids(clinical, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She is febrile.", ["febrile: Fever"]),
        ("Febrile and ptotic; autistic, obese man", ["Febrile: Fever", "ptotic: Ptosis",
                                                     "autistic: Autism", "obese: Obesity"]),
        ("a microcephalic girl, hypothyroid since 2012",
         ["microcephalic: Microcephaly", "hypothyroid: Hypothyroidism"]),
        ("febrile seizures", ["febrile seizures: Febrile seizure"]),
        ("afebrile; obese mouse model", []),
    ],
)  # fmt: skip
def test_adjectives_of_findings(clinical, text, expected):
    assert ids(clinical, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cough syrup, rash guards, stroke unit", []),
        ("Pain clinic, Stroke ward, chest pain nurse, fever chart, Pain score", []),
        ("yellow fever", ["yellow fever: Yellow fever"]),
        ("yellow fever vaccination, seizure precautions, falls risk", []),
        ("ataxia/tremor", ["ataxia: Ataxia", "tremor: Tremor"]),
        ("ataxic tremor", ["ataxic tremor: Ataxic tremor"]),
        ("aplasia/hypoplasia of the thumb",
         ["aplasia/hypoplasia of the thumb: Aplasia/Hypoplasia of the thumb"]),
    ],
)  # fmt: skip
def test_compounds_and_slashes(clinical, text, expected):
    assert ids(clinical, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Exam:\nataxia\ntremor\nptosis", ["ataxia", "tremor", "ptosis"]),
        ("ataxia +\ntremor -", ["ataxia", "tremor"]),
        ("No ataxia. Tremor.", ["ataxia", "Tremor"]),
        ("He was seen for ataxia\ntremor of both hands.", ["ataxia\ntremor"]),
    ],
)
def test_names_end_where_lines_and_sentences_do(clinical, text, expected):
    assert [surface for surface, _ in links(clinical(text))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TGA, arterial switch", "Transposition of the great arteries"),
        ("TGA with confusion", "Transient global amnesia"),
        ("TGA", "Transposition of the great arteries"),
        ("Confused for hours.\nImp: TGA", "Transient global amnesia"),  # another line
        ("CP on exertion", "Chest pain"),
        ("CP, GMFCS level 4", "Cerebral palsy"),
        ("ASD with left-to-right shunt on echo", "Atrial septal defect"),
        ("ASD, language delay", "Autism spectrum disorder"),
    ],
)
def test_words_in_the_note_choose_between_meanings(clinical, text, expected):
    assert [id.replace("_", " ") for _, id in links(clinical(text))][-1:] == [expected]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("Hb 11.5 g/dL (12-16)", "anemia"),  # the range in the note takes precedence
        ("| Hb | 11.5 | g/dL | 12.0-16.0 |", "anemia"),
        ("Hb 10.8 (ref 10.5-13.5)", ""),
        ("ESR 50 (0-60)", ""),
        ("CRP 12 mg/L, normal < 5", "elevated circulating C-reactive protein concentration"),
        ("K 5.4 H", "hyperkalemia"),
        ("Na 134 (L)", "hyponatremia"),
        ("K 5.4 H pylori", ""),
        ("Hb 7.2 (3-4 days ago)", "anemia"),
        ("Hb (12-16)", ""),
        ("Sodium is markedly low at 121", "hyponatremia"),
        ("haemoglobin 9.6\u2009g/dL", "anemia"),  # a thin space
        ("Ca 1.1 mmol/L, glucose 2+, INR 2-3", ""),
        ("Creatinine 88, Cr 0.9", ""),
        ("troponin I 0.4 ng/mL", "increased circulating troponin I concentration"),
    ],
)
def test_ranges_flags_and_units_of_measurements(text, finding):
    assert {names.split("|")[0] for _, _, names in measured(text).values()} == {finding} - {""}


def test_the_value_and_unit_are_facts(clinical):
    doc = clinical("Na 118 mmol/L, K: 4.9 -> 6.6. Seizure.")
    facts = [(span.text, span._.value, span._.unit) for span in doc.spans["bioel"]]
    assert facts == [("Na 118 mmol/L", 118.0, "mmol/L"), ("K: 4.9 -> 6.6", 6.6, ""),
                     ("Seizure", None, None)]  # fmt: skip


def test_only_clinical_notes_are_read_so(kb):
    nlp = linking_nlp(kb, mentions="dictionary")
    assert ids(nlp, "febrile. swan-neck. low-set left ear") == []
    assert nlp.get_pipe("bioel_linker").entities.fact_names == ("hgvs", "component", "gene")


def test_added_and_dropped_names_are_explained(clinical):
    report = spacy_bioel.explain(clinical, "short broad nose; cough syrup")
    considered = {(c.text, c.is_mention): c.reason for c in report.considered}
    assert ("short broad nose", True) in considered
    assert "another meaning in notes" in considered["cough", False]


def test_names_are_looked_up_once():
    calls = []

    def labels_of(names):
        calls.append(list(names))
        return dict.fromkeys([name for name in calls[-1] if name == "broad nose"], "")

    text = "broad left nose; broad nose " * 3
    assert len(find_rewordings(text, labels_of)) == 3
    assert len(calls) == 1 and len(calls[0]) == len(set(calls[0]))


def is_right(line: dict[str, Any], found: list[Link]) -> bool:
    """Whether the mentions that overlap each stretch have all its ids, and none has an id in
    `never`: ids that nothing in the line means."""
    for stretch, ids in line.get("ids", {}).items():
        start = line["text"].index(stretch)
        near = [m for m in found if m.start < start + len(stretch) and start < m.end]
        wanted = {ids} if isinstance(ids, str) else {*ids}
        if not wanted <= {id for m in near for id in m.ids}:
            return False
    return {id for m in found for id in m.ids}.isdisjoint(line.get("never", ()))


@pytest.mark.realdata
def test_lines_with_the_names_of_hpo(data_folder, tmp_path):
    concepts = read_ontology(data_folder / "names/obo/hp.obo.gz")
    build_kb(concepts, tmp_path / "kb", branches=Branches(under=("HP:0000118",)))
    nlp = load_model(str(tmp_path / "kb"), preset="clinical")
    paths = (BENCHMARKS / "finding_lines.jsonl", data_folder / "phenotypes/probes_dev.jsonl")
    lines = [json.loads(line) for path in paths for line in path.read_text("utf8").splitlines()]
    wrong = [line["text"] for line in lines if not is_right(line, get_links(nlp(line["text"])))]
    assert wrong == ["The limbs are spastic."]  # HPO has a name for that: "limb spasticity"
