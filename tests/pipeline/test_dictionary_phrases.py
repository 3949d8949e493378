"""Which words belong together: commas, dashes, brackets, signs, and adjectives before nouns."""

from pathlib import Path

import pytest
from kb_files import made_kb
from tiny import blank

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.text.normalize import are_forms_of_one_word
from spacy_bioel.types import Concept

ANATOMY = (
    ("fibula",),
    ("cartilage",),
    ("radial nerve",),
    ("stomach",),
    ("pyloric antrum", "stomach antrum"),
    ("antrum mucosa",),
    ("lung",),
    ("nasal bone",),
    ("bone of hand",),
    ("humerus",),
    ("humeral crest of humerus", "crest of humerus"),
    ("thymus",),
    ("smooth muscle of bladder",),
    ("cartilaginous plate of rib",),
    ("liver",),
    ("portal vein",),
    ("duodenum",),
    ("duodenal papilla of intestine",),
    ("kidney", "renal organ"),
)
CELLS = (
    ("natural killer cell", "NK cell"),
    ("CD3-positive natural killer cell", "CD3+ N(reg)", "CD3+ N cell"),
    ("CD5-positive natural killer cell", "CD5+ N(reg)", "CD5+ N cell"),
    ("CD7-positive natural killer cell", "CD7+ N(reg)", "CD7+ N cell"),
    ("CD9-positive natural killer cell", "CD9+ N(reg)"),
    ("CD38+ plasmablast",),
    ("plasmablast",),
    ("CD27- lymphocyte",),
    ("lymphocyte",),
)
FINDINGS = (
    ("Myopia",),
    ("Myopia, high", "High myopia"),
    ("Ataxia",),
    ("Ataxia, episodic",),
    ("Scoliosis",),
    ("Scoliosis, thoracic",),
    ("Anemia", "Anaemia"),
    ("Anemia, hemolytic", "Hemolytic anemia"),
    ("Deafness",),
    ("Severe deafness",),
    ("Dystonia, type 1",),
    ("Dystonia",),
    ("Abnormality of the palatum",),
    ("Abnormality of the crus",),
    ("Abnormality of the thalamus",),
    ("Abnormality of the testis",),
    ("Abnormality of gait",),
    ("Hypotonia of the trunk",),
    ("Spine stiffness",),
    ("Cleft lip",),
    ("Cleft palate",),
    ("Punding",),
    ("Hiccups",),
    ("Seizure",),
)


def lookup_of(folder: Path, names: tuple[tuple[str, ...], ...]) -> DictionaryLookup:
    concepts = [Concept(f"X:{i:02}", of) for i, of in enumerate(names)]
    return DictionaryLookup(made_kb(folder, concepts))


@pytest.fixture(scope="module")
def lookups(tmp_path_factory) -> dict[str, DictionaryLookup]:
    folder = tmp_path_factory.mktemp("phrases")
    kinds = {"anatomy": ANATOMY, "cells": CELLS, "findings": FINDINGS}
    return {kind: lookup_of(folder / kind, names) for kind, names in kinds.items()}


def found(lookup: DictionaryLookup, text: str) -> list[tuple[str, str]]:
    doc = blank().make_doc(text)
    (names,) = lookup.find([doc])
    concept_of = lookup.kb.concepts_of_names
    return [
        (doc[n.first : n.last + 1].text, lookup.kb.preferred_name(int(concept_of([n.row])[1][0])))
        for n in names
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The adjective of a noun with which it is a phrase in names does not mean its own noun.
        ("Humeral crest was seen.", [("Humeral crest", "humeral crest of humerus")]),
        ("Duodenal papilla was seen.", []),
        ("The duodenal papilla and a duodenal ulcer", [("duodenal", "duodenum")]),
        ("crest, humeral", []),
        ("humeral, duodenal", [("humeral", "humerus"), ("duodenal", "duodenum")]),
        ("fibular fracture; the humeral", [("fibular", "fibula"), ("humeral", "humerus")]),
        ("a cartilaginous plate", []),
        # A dash or a slash is between a whole and its part, in either order.
        ("Nerve - Radial", [("Nerve - Radial", "radial nerve")]),
        ("Vein/portal", [("Vein/portal", "portal vein")]),
        ("Stomach - Antrum", [("Stomach - Antrum", "pyloric antrum")]),
        ("Stomach - Antrum mucosa", [("Stomach", "stomach"), ("Antrum mucosa", "antrum mucosa")]),
        ("Stomach/antrum mucosa", [("Stomach", "stomach"), ("antrum mucosa", "antrum mucosa")]),
        ("Lung - Liver", [("Lung", "lung"), ("Liver", "liver")]),
        ("Bone – Nasal, lung", [("Bone – Nasal", "nasal bone"), ("lung", "lung")]),
    ],
)
def test_nouns_and_their_adjectives(lookups, text, expected):
    assert found(lookups["anatomy"], text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CD9+ N cells were rare.", []),  # only "CD9+ N(reg)" is a name
        ("CD3+ N cells", [("CD3+ N cells", CELLS[1][0])]),
        ("CD9+ N(reg) were rare", [("CD9+ N(reg", CELLS[4][0])]),
        ("CD38+ plasmablasts", [("CD38+ plasmablasts", "CD38+ plasmablast")]),
        ("CD38- plasmablasts", [("plasmablasts", "plasmablast")]),
        ("CD27+ lymphocytes", [("lymphocytes", "lymphocyte")]),
        ("CD27- lymphocytes", [("CD27- lymphocytes", "CD27- lymphocyte")]),
        ("CD38 plasmablasts", [("CD38 plasmablasts", "CD38+ plasmablast")]),
    ],
)
def test_brackets_and_signs_at_words(lookups, text, expected):
    assert found(lookups["cells"], text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The word after a comma belongs to the noun after it.
        ("Ataxia, episodic vertigo", [("Ataxia", "Ataxia")]),
        ("Scoliosis, thoracic pain and myopia", [("Scoliosis", "Scoliosis"), ("myopia", "Myopia")]),
        ("anaemia, hemolytic crises", [("anaemia", "Anemia")]),
        ("Myopia, high anemia", [("Myopia", "Myopia"), ("anemia", "Anemia")]),
        ("Ataxia, episodic; vertigo", [("Ataxia, episodic", "Ataxia, episodic")]),
        ("Ataxia, episodic", [("Ataxia, episodic", "Ataxia, episodic")]),
        ("Ataxia, episodic, was seen", [("Ataxia, episodic", "Ataxia, episodic")]),
        ("Scoliosis, thoracic and severe", [("Scoliosis, thoracic", "Scoliosis, thoracic")]),
        ("Scoliosis, thoracic\nMyopia", [
            ("Scoliosis, thoracic", "Scoliosis, thoracic"), ("Myopia", "Myopia"),
        ]),
        ("Dystonia, type 1 families", [("Dystonia, type 1", "Dystonia, type 1")]),
        # No word belongs to two names.
        ("severe and severe deafness", [("severe deafness", "Severe deafness")]),
        ("Anemia hemolytic and hemolytic crises", [("Anemia hemolytic", "Anemia, hemolytic")]),
        ("cleft lip and cleft palate", [
            ("cleft lip", "Cleft lip"), ("cleft palate", "Cleft palate"),
        ]),
        ("cleft lip and palate", [
            ("cleft lip", "Cleft lip"), ("cleft lip and palate", "Cleft palate"),
        ]),
        # Words of other families.
        ("abnormal palate", []),  # a palate, not this palatum
        ("abnormal crusade", []),
        ("abnormal tests", []),
        ("abnormal testing", []),
        ("abnormal thalamic", [("abnormal thalamic", "Abnormality of the thalamus")]),
        ("abnormal testicular", []),
        ("spin stiffness", []),
        ("spinal stiffness", [("spinal stiffness", "Spine stiffness")]),
        # English words are no typing errors.
        ("results pending", []),
        ("a pudding", []),
        ("hiccps and siezures", [("hiccps", "Hiccups"), ("siezures", "Seizure")]),
    ],
)  # fmt: skip
def test_findings(lookups, text, expected):
    assert found(lookups["findings"], text) == expected


def test_one_word_in_other_forms():
    same = "cranium cranial, femora femur, vertebra vertebral, axis axial, atrophy atrophic, "
    same += "bowing bowed, folia folium, sinuses sinus, mucus mucous, deficient deficiency"
    for pair in same.split(", "):
        assert are_forms_of_one_word(*pair.split()), pair
    others = (
        "cranium crane, habitus habituation, chin china, testis tests, spine spin, status state"
    )
    for pair in others.split(", "):
        assert not are_forms_of_one_word(*pair.split()), pair
