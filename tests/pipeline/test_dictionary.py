from collections.abc import Iterable
from pathlib import Path

import pytest
from kb_files import made_kb
from tiny import blank, linking_nlp, links

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.doc import get_links
from spacy_bioel.explanation import Trace, reason_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.settings import DictionarySettings
from spacy_bioel.types import Concept

LONG = " ".join(f"word{i}" for i in range(200))
NAMES = (
    ("Seizure", "Convulsion"),
    ("Pneumonia",),
    ("Hypertension",),
    ("Intellectual disability, severe",),
    ("Femoral bowing",),
    ("Abnormality of the eye", "Eye anomaly"),
    ("Abnormality of the ear", "Ear anomaly"),
    ("Abnormality of the nose", "Nose anomaly"),
    ("Abnormality of the liver",),
    ("Cleft lip",),
    ("Cleft palate",),
    ("Poor appetite",),
    ("Werner syndrome", "WRNS"),
    ("Multiple sclerosis", "MS"),
    ("Kidney failure",),
    ("X",),
    ("12",),
    (LONG,),
    ("Übelkeit und Erbrechen", "Schwindel"),
    ("Tumor",),
    # Names that have "no" instead of "absence of".
    ("Absence of nail", "No nail"),
    ("Absence of ear", "No ear"),
    ("Absence of nose", "No nose"),
    ("Absence seizure",),
    ("COPD", "Chronic obstructive pulmonary disease"),
    ("Retina",),
    ("Embryo",),
    ("Locus",),
    ("Type II diabetes mellitus",),
    ("Heart",),
    ("Skeleton",),
)


def kb_of(folder: Path, concepts: Iterable[tuple[str, ...]]) -> KnowledgeBase:
    return made_kb(folder, [Concept(f"X:{i:02}", names) for i, names in enumerate(concepts)])


@pytest.fixture(scope="module")
def lookup(tmp_path_factory) -> DictionaryLookup:
    return DictionaryLookup(kb_of(tmp_path_factory.mktemp("lookup") / "mine", NAMES))


def find(lookup: DictionaryLookup, text: str, **options: bool) -> list[tuple[str, str]]:
    doc = blank().make_doc(text)
    (found,) = lookup.find([doc], DictionarySettings(**options))
    return [(doc[n.first : n.last + 1].text, lookup.kb.name(n.row)) for n in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No seizures.", [("seizures", "Seizure")]),
        ("severe intellectual disability", [("severe intellectual disability", NAMES[3][0])]),
        ("bowing of the femur", []),  # has another stem than "femoral"
        ("Abnormalities of the eyes", [("Abnormalities of the eyes", NAMES[5][0])]),
        ("eye abnormality", [("eye abnormality", NAMES[5][0])]),
        ("Hypertensive rats", [("Hypertensive", "Hypertension")]),
        ("tumoric", []),  # not an adjective of that noun
        ("retinal and embryonic", [("retinal", "Retina"), ("embryonic", "Embryo")]),
        ("skeletal and cardiac", [("skeletal", "Skeleton"), ("cardiac", "Heart")]),
        ("Renal failure", [("Renal failure", "Kidney failure")]),
        ("renal, cardiacs", []),  # not a name; not an adjective
        ("cardiac arrest", [("cardiac", "Heart")]),
        ("type 2 diabetes mellitus", [("type 2 diabetes mellitus", "Type II diabetes mellitus")]),
        ("embryos, loci", [("embryos", "Embryo"), ("loci", "Locus")]),
        (
            "cleft lip and palate",
            [("cleft lip", "Cleft lip"), ("cleft lip and palate", "Cleft palate")],
        ),
        (
            "chronic renal stenosis (CRS), a kidney failure (KF). KF was seen",
            [("kidney failure", "Kidney failure"), ("KF", NAMES[14][0]), ("KF", NAMES[14][0])],
        ),
        ("Seizures were absent", [("Seizures", "Seizure")]),
        ("no nail changes, no ear", [("no ear", "No ear")]),
        ("nail was absent", [("nail was absent", "Absence of nail")]),
        ("eye. Anomaly", []),
        ("", []),
    ],
)
def test_names_and_what_is_nearly_one(lookup, text, expected):
    assert find(lookup, text) == expected


@pytest.mark.parametrize("typo", ["siezures", "pnuemonia", "hypertenison"])
def test_spelling_mistakes(lookup, typo):
    assert [text for text, _ in find(lookup, f"He has {typo}.")] == [typo]
    assert find(lookup, f"He has {typo}.", typos=False) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It was so.", []),
        ("He had WRNS and MS.", ["WRNS", "MS"]),
        ("HE HAD WRNS AND MS.", ["WRNS"]),
        ("He had wrns and ms.", []),
        ("IT WAS THE SEIZURE OF PNEUMONIA", ["SEIZURE", "PNEUMONIA"]),
        ("mass spectrometry (MS) and MS", []),
        ("x X 12 12", []),
        ("Hx of COPD and WRNS", ["COPD", "WRNS"]),
        # Names go on in the next line.
        ("cleft \r\n\t palate", ["cleft \r\n\t palate"]),
        ("cleft\r\n \r\npalate", []),
        ("cleft.\npalate", []),
        ("intellectual disability,\nsevere", ["intellectual disability,\nsevere"]),
        ("kidney\nfailure (KF) and KF", ["kidney\nfailure", "KF", "KF"]),
    ],
)
def test_words_acronyms_and_lines(lookup, text, expected):
    assert [text for text, _ in find(lookup, text)] == expected


def test_names_of_many_words_and_of_another_language(lookup):
    assert find(lookup, f"The {LONG}, and") == [(LONG, LONG)]
    assert find(lookup, " ".join(LONG.split()[:199])) == []
    expected = [("Übelkeit und Erbrechen", NAMES[18][0]), ("Schwindel", "Schwindel")]
    assert find(lookup, "Übelkeit und Erbrechen, Schwindel") == expected


VITAMINS = ("Vitamin A deficiency", "Vitamin D level", "Protein S deficiency", "HIS bundle block")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vitamin deficiency", []),
        ("Vitamin A deficiency, vitamin a deficiency", [VITAMINS[0]] * 2),
        ("deficiency of vitamin A", [VITAMINS[0]]),
        ("protein S deficiency", [VITAMINS[2]]),
        ("bundle block, HIS bundle block", [VITAMINS[3]]),
        ("the fish in vitamin", ["Fish"]),
        ("Antigen of group A, group antigens", ["Group A antigen"]),
        ("hepatitis A and hepatitis", ["Hepatitis A", "Hepatitis"]),
    ],
)
def test_letters_that_distinguish_names_are_kept(tmp_path, text, expected):
    names = (*VITAMINS, "Fish", "Group A antigen", "Hepatitis A", "Hepatitis", "Factor S")
    lookup = DictionaryLookup(kb_of(tmp_path / "kb", ((name,) for name in names)))
    assert [name for _, name in find(lookup, text)] == expected


def test_nested_names_are_optional(tmp_path):
    names = [("Ulcerative colitis",), ("Colitis",), ("Active ulcer",)]
    lookup = DictionaryLookup(kb_of(tmp_path / "nested", names))
    text = "Active ulcerative colitis."
    longest = [("ulcerative colitis", "Ulcerative colitis")]
    assert find(lookup, text) == longest
    assert find(lookup, text, nested=True) == [*longest, ("colitis", "Colitis")]


def test_words_of_the_field_are_not_everyday_words(tmp_path):
    concepts = [("Neoplasm", "Cancer", "Tumor"), ("Agent", "Drug")]
    lookup = DictionaryLookup(kb_of(tmp_path / "kb", concepts))
    texts = ("Tumors were seen.", "Patient has cancer.", "Patient has a drug.")
    found = [find(lookup, text) for text in texts]
    assert found == [[("Tumors", "Tumor")], [("cancer", "Cancer")], []]


@pytest.mark.parametrize("is_joined", [False, True])
def test_names_that_a_user_adds_are_found(tmp_path, is_joined):
    names = ("Fibrillation", "VT", "tension", "q")
    build_kb([Concept("X:1", names)], tmp_path / "kb", source="first")
    add_concepts(tmp_path / "kb", [Concept("X:2", ("AF", "drug", "z", "it"))], source="mine")
    kb = KnowledgeBase.open(tmp_path / "kb")
    lookup = DictionaryLookup(JoinedKnowledgeBase([kb, kb]) if is_joined else kb)
    text = "VT, AF, tension, drug, q, z, it"
    found = [name for _, name in find(lookup, text)]
    assert found == ["VT", "AF", "tension", "drug", "z", "it"]
    assert find(lookup, "vt, af, Q, Z, It") == []


def test_documents_do_not_depend_on_their_batch(lookup):
    texts = ["Seizure", "", "and palate. cleft", "cleft lip", "MS (multiple sclerosis)", "MS"]
    nlp = blank()
    docs = [nlp.make_doc(text) for text in texts]
    together = lookup.find(docs)
    assert together == [lookup.find([doc])[0] for doc in docs]
    assert all(0.5 <= name.probability <= 1 for of_doc in together for name in of_doc)
    assert lookup.find([]) == []


def test_the_pipe_finds_and_links(lookup):
    nlp = blank()
    linker = nlp.add_pipe(
        "bioel_linker", config={"kb": str(lookup.kb.path), "mentions": "dictionary"}
    )
    doc = nlp("Siezures and cleft lip and palate.")
    assert links(doc) == [
        ("Siezures", "X:00"),
        ("cleft lip", "X:09"),
        ("cleft lip and palate", "X:10"),
    ]
    assert [span.label_ for span in doc.spans["bioel"]] == ["mine"] * 3
    linker.cfg["dictionary"] = {"typos": False}
    assert links(nlp("Siezures")) == []


CLINICAL = (
    ("Decreased circulating potassium concentration",),
    ("High blood pressure",),
    ("Drowsiness", "Dropsy"),
    ("Corn",),
    ("Shortness of breath",),
    ("Short legs",),
    ("Left hemiplegia",),
    ("Hypochromic microcytic anemia",),
    ("Joint hyperextensibility",),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Low potassium", ["Low potassium"]),
        ("serum potassium was reduced", ["serum potassium was reduced"]),
        ("reduced potassium levels, high potassium", ["reduced potassium levels"]),
        ("high pressure, low blood pressure", []),
        ("drowsy; corneal", ["drowsy"]),
        ("drowsyness", ["drowsyness"]),
        ("shortness of breath and leg swelling", ["shortness of breath"]),
        ("left-sided hemiplegia", ["left-sided hemiplegia"]),
        ("microcytic hypochromic anaemia", ["microcytic hypochromic anaemia"]),
        ("Joints were hyperextensible", ["Joints were hyperextensible"]),
    ],
)
def test_variants_in_clinical_notes(tmp_path, text, expected):
    lookup = DictionaryLookup(kb_of(tmp_path / "kb", CLINICAL))
    assert [found for found, _ in find(lookup, text)] == expected


def test_a_plural_means_the_preferred_name(tmp_path):
    concepts = [("Pair of lungs", "Lungs"), ("Lung",), ("Set of hairs", "Hairs"), ("Head", "Hair")]
    lookup = DictionaryLookup(kb_of(tmp_path / "kb", concepts))
    expected = [("lungs", "Lung"), ("Lung", "Lung"), ("hairs", "Hairs")]
    assert find(lookup, "Her lungs. Lung, hairs.") == expected


@pytest.mark.parametrize(("n_below", "found"), [(101, []), (100, ["Cells"])])
def test_a_concept_above_most_others_is_not_a_mention(tmp_path, n_below, found):
    concepts = [Concept("X:0", ("cell",)), Concept("X:1", ("motile cell",), parents=("X:0",))]
    concepts += [Concept(f"X:1{i}", (f"a{i} cell",), parents=("X:1",)) for i in range(n_below - 1)]
    lookup = DictionaryLookup(made_kb(tmp_path / "kb", concepts))
    assert [text for text, _ in find(lookup, "Cells.")] == found
    assert [text for text, _ in find(lookup, "A motile cell.")] == ["motile cell"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The copd was fine.", "the short name COPD has to match by case"),
        ("An EYE ANOMALY? No, TUMOR.", ""),
        ("There was no nail changes.", "begins with a negation"),
        ("Group X here.", "fewer than 3 characters, or no letter"),
        ("Hearts and cardiac cells", "excluded by `dictionary.exclude`"),
    ],
)
def test_reasons_against_names(lookup, text, reason):
    doc = blank().make_doc(text)
    lookup.find([doc], DictionarySettings(exclude=("heart",)), traces=[trace := Trace(doc)])
    assert reason in {one.reason for one in trace.considered([])}


def test_names_found_with_an_ontology_have_a_label(tmp_path):
    """The type of the concept, or the name of the knowledge base: `doc.ents` takes them."""
    concepts = [Concept("X:1", ("aspirin",), ("Drug", "Thing")), Concept("X:2", ("fever",))]
    build_kb(concepts, tmp_path / "kb", source="mine.obo.gz")  # as within a pipeline
    build_kb([Concept("X:2", ("fever",))], tmp_path / "plain")
    for kb, expected in (("kb", ["Drug", "mine"]), ("plain", ["plain"])):
        nlp = linking_nlp(tmp_path / kb, mentions="dictionary")
        doc = nlp("Aspirin for fever.")
        doc.ents = list(doc.spans["bioel"])
        assert [ent.label_ for ent in doc.ents] == expected
        nlp.get_pipe("bioel_linker").cfg["nil_threshold"] = 1.0
        doc = nlp("Aspirin for fever.")
        assert [span.label_ for span in doc.spans["bioel"]] == expected


def test_neighbours_decide_a_name_of_several_concepts(tmp_path):
    heart, mind = ("X:heart",), ("X:mind",)
    concepts = [
        Concept("X:heart", ("Heart defect",)),
        Concept("X:mind", ("Mental disorder",)),
        Concept("X:1", ("Autism", "ASD"), parents=mind),
        Concept("X:2", ("Septal defect", "ASD"), parents=heart),
        Concept("X:3", ("Open duct",), parents=heart),
        Concept("X:4", ("Speech delay",), parents=mind),
    ]
    build_kb(concepts, tmp_path / "kb")
    nlp = blank()
    config = {"kb": str(tmp_path / "kb"), "mentions": "dictionary", "evidence": {"dense": False}}
    nlp.add_pipe("bioel_linker", config=config)
    texts = ("ASD, open duct.", "Speech delay. ASD, open duct.", "Speech delay. ASD.")
    for text, id in zip(texts, ("X:2", "X:2", "X:1"), strict=True):
        asd = next(link for link in get_links(nlp(text)) if text[link.start : link.end] == "ASD")
        assert asd.ids == (id,)
    # Ties without neighbours that decide are NIL, in any order.
    for text in ("ASD.", "ASD, speech delay, open duct."):
        link = get_links(nlp(text))[0]
        assert link.ids == () and len({c.score for c in link.candidates}) == 1
        assert reason_of(link).startswith("NIL: ASD (X:1) and ASD (X:2) scored equally (0.")


def test_names_of_an_ontology_in_capitals(tmp_path):
    words = "ASTHMA RASH GOUT STROKE FEVER COUGH SEPSIS EDEMA COPD".split()
    lookup = DictionaryLookup(kb_of(tmp_path / "words", [(word,) for word in words]))
    text = "She has asthma, a rash, gout, cough, fever, COPD and sepsis."
    found = ["asthma", "rash", "gout", "cough", "fever", "COPD", "sepsis"]
    assert found_in(lookup, text) == found
    assert found_in(lookup, "ASTHMA, RASH AND FEVER.") == ["ASTHMA", "RASH", "FEVER"]
    symbols = "BRAF TP53 MICE ABCA4 KRAS CDK4 IL6 HLA-B NCOA4".split()
    lookup = DictionaryLookup(kb_of(tmp_path / "symbols", [(symbol,) for symbol in symbols]))
    assert found_in(lookup, "The mice had BRAF.") == ["BRAF"]


def found_in(lookup: DictionaryLookup, text: str) -> list[str]:
    doc = blank()(text)
    return [doc[one.first : one.last + 1].text for one in lookup.find([doc])[0]]
