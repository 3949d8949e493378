"""Findings in notes, with the preset "clinical": shorthand, measurements, other meanings, and names
that a note words differently."""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import cases
from tiny import linking_nlp, links

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build import Branches, build_kb
from spacy_bioel.loading import load_model, set_preset
from spacy_bioel.plugins.clinical.notes import measured
from spacy_bioel.plugins.clinical.rewordings import find_rewordings
from spacy_bioel.types import Concept, Link

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SHORTHAND, FINDINGS = (cases(__file__, name) for name in ("shorthand", "findings"))


def pipeline(folder: Path, concepts: str) -> Any:
    names = [one.split("|") for one in concepts.split("; ")]
    build_kb([Concept(first.replace(" ", "_"), (first, *more)) for first, *more in names], folder)
    return linking_nlp(folder, mentions="dictionary")


@pytest.fixture(scope="module")
def shorthand(tmp_path_factory) -> Any:
    nlp = pipeline(tmp_path_factory.mktemp("notes") / "kb", SHORTHAND)
    set_preset(nlp, "clinical")
    return nlp


@pytest.fixture(scope="module")
def clinical(tmp_path_factory) -> Any:
    nlp = pipeline(tmp_path_factory.mktemp("findings") / "kb", FINDINGS)
    set_preset(nlp, "clinical")
    return nlp


def found(nlp: Any, text: str) -> list[str]:
    return [f"{surface}: {id.replace('_', ' ')}" for surface, id in links(nlp(text))]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "measurements"))
def test_measurements_out_of_their_range(text, expected):
    assert {text[a:b]: names for (a, b), (_, _, names) in measured(text).items()} == expected


@pytest.mark.parametrize(("text", "finding"), cases(__file__, "ranges"))
def test_ranges_flags_and_units_of_measurements(text, finding):
    assert {names.split("|")[0] for _, _, names in measured(text).values()} == {finding} - {""}


def test_a_measurement_is_kept_by_its_place():
    text = "Day 1: Na 130 (ref 129-145). Day 2: Na 130."
    assert list(measured(text)) == [(36, 42)]
    assert list(measured("Pleural fluid glucose 312. Serum glucose 312.")) == [(33, 44)]


def test_only_notes_are_read_as_notes(tmp_path):
    text = "PMH: MR, CKD3. Wt loss, no SOB. Hb 7.2, BMI 41."
    nlp = pipeline(tmp_path / "kb", SHORTHAND)
    found_elsewhere = ["Wt loss: Weight loss", "SOB: Dyspnea"]
    assert found(nlp, f"{text} febrile. low-set left ear") == found_elsewhere
    assert nlp.get_pipe("bioel_linker").entities.fact_names == ("hgvs", "component", "gene")
    set_preset(nlp, "clinical")
    expected = ["MR: Mitral regurgitation", "CKD3: Stage 3 chronic kidney disease"]
    assert found(nlp, text) == [
        *expected, *found_elsewhere, "Hb 7.2: Anemia", "BMI 41: Obesity"
    ]  # fmt: skip
    alone, *_, among = nlp.pipe([text, "", "no MR", text])
    assert links(alone) == links(among)
    assert [span.text for span in alone.spans["bioel"] if span._.negated] == ["SOB"]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "other_meanings"))
def test_words_with_another_meaning_in_notes(shorthand, text, expected):
    assert found(shorthand, text) == [*expected]
    considered = spacy_bioel.explain(shorthand, text).considered
    surfaces = {one.rpartition(": ")[0] for one in expected}
    assert {c.text for c in considered if c.is_mention} == surfaces


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "rewordings"))
def test_names_that_a_note_words_differently(clinical, text, expected):
    assert found(clinical, text) == [*expected]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "ends"))
def test_names_end_where_lines_and_sentences_do(clinical, text, expected):
    assert [surface for surface, _ in links(clinical(text))] == [*expected]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "chosen_meanings"))
def test_words_in_the_note_choose_between_meanings(clinical, text, expected):
    assert [id.replace("_", " ") for _, id in links(clinical(text))][-1:] == [expected]


def test_the_value_and_unit_are_facts(clinical):
    doc = clinical("Na 118 mmol/L, K: 4.9 -> 6.6. Seizure.")
    facts = [(span.text, span._.value, span._.unit) for span in doc.spans["bioel"]]
    assert facts == [("Na 118 mmol/L", 118.0, "mmol/L"), ("K: 4.9 -> 6.6", 6.6, ""),
                     ("Seizure", None, None)]  # fmt: skip


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
    nlp: Any = spacy_bioel.load()
    cfg = nlp.get_pipe("bioel_mentions").cfg
    assert nlp.config["components"]["bioel_mentions"]["threshold"] == cfg["threshold"] == 0.3
    set_preset(nlp, "clinical")
    assert nlp.config["components"]["bioel_mentions"]["exclude"] == cfg["exclude"] != []
    doc = nlp("PMH: MI, CVA, DM2, HTN, CKD3, afib. Denies N/V. HEENT: normal. Hb 7.2 g/dL.")
    assert links(doc) == [*cases(__file__, "links_of_the_starter")]
    report = spacy_bioel.explain(nlp, "Prior MI", "MI")
    assert [one.strings for one in report.mentions] == [("myocardial infarction",)]
    found = [(c.text, c.is_mention, c.name) for c in report.considered if c.is_mention]
    assert found == [("MI", True, "myocardial infarction")]


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
