"""Short forms in brackets after names of chemicals, whose letters the names lack."""

import pytest
from spacy.language import Language
from spacy.tokens import Span, SpanGroup
from tiny import blank

from spacy_bioel.kb.build import build_kb
from spacy_bioel.text.sentences import expand_abbreviations, find_abbreviations, find_forms
from spacy_bioel.types import Concept

CHEMICALS = [
    Concept("MESH:1", ("Dacarbazine",), types=("D",)),
    Concept("MESH:2", ("Rifampicin", "RMP"), types=("D",)),
    Concept("MESH:3", ("DAG-7",), types=("D",)),
    Concept("MESH:4", ("Melanoma",), types=("C",)),
]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    folder = tmp_path_factory.mktemp("kb") / "chemicals"
    build_kb(CHEMICALS, folder)
    nlp = blank()
    config = {"kb": {"Chemical": str(folder), "Disease": str(folder)}, "evidence": {"dense": False}}
    config |= {"mentions": "spans+dictionary", "label_types": {"Chemical": ["D"], "Disease": ["C"]}}
    nlp.add_pipe("bioel_linker", config=config)
    return nlp


def found(nlp: Language, text: str, *diseases: str) -> list[tuple[str, str]]:
    doc = nlp.make_doc(text)
    spans = [Span(doc, t.i, t.i + 1, label="Disease") for t in doc if t.text in diseases]
    doc.spans["bioel"] = SpanGroup(doc, spans=spans, attrs={"scores": [0.9] * len(spans)})
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    return [(s.text, s.kb_id_) for s in doc.spans["bioel"] if s.kb_id_ != "NIL"]


@pytest.mark.parametrize(
    "text",
    [
        "Dacarbazine (QTI) was given. The dose of QTI was low.",
        "Dacarbazine [QTI] was given; QTI was safe.",
        "We gave dacarbazine (QTI, 5 mg). QTI was safe.",
    ],
)
def test_short_forms_are_the_chemical_before_them(nlp, text):
    names = found(nlp, text)
    assert [id for _, id in names] == ["MESH:1"] * 3
    assert [name for name, _ in names[1:]] == ["QTI", "QTI"]
    assert found(nlp, text, "QTI") == names  # whatever the detector took it for


@pytest.mark.parametrize(
    "text",
    [
        "Dacarbazine (QTI) was given once.",  # not used again
        "Dacarbazine (DAG-7) was given. DAG-7 was low.",  # has its own meaning
        "Dacarbazine (IC50) was given. The IC50 was low.",
        "Dacarbazine (AUC) was given. The AUC was low.",
        "Dacarbazine; (QTI) was given. QTI was low.",
        "Melanoma (QTI) was seen. QTI was low.",  # a disease
    ],
)
def test_what_is_not_defined(nlp, text):
    assert not [name for name, id in found(nlp, text) if name in ("QTI", "IC50", "AUC")]
    assert ("DAG-7", "MESH:1") not in found(nlp, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Giant cell tumors (GCTs) grew.", {"GCTs": "Giant cell tumors"}),
        ("We used (VPA, valproic acid).", {"VPA": "valproic acid"}),
        ("We saw lung fibrosis (LF); renin (RFA) rose.", {"LF": "lung fibrosis"}),
    ],
)
def test_definitions_in_a_text(text, expected):
    assert find_abbreviations(text) == expected


def test_a_short_form_is_not_the_end_of_another():
    text = "alpha-SMA, β-SMA, SMA and anti-SMA"
    assert find_forms(text, ["SMA"]) == {"SMA": [(18, 21), (31, 34)]}


def test_singulars_of_short_forms():
    forms = {"GCTs": "Giant cell tumors"}
    assert find_forms("GCTs or a GCT", forms) == {"GCTs": [(0, 4), (10, 13)]}
    assert expand_abbreviations("GCT", forms.get) == "Giant cell tumors"
    assert expand_abbreviations("GCT 3", forms.get) == "GCT 3"
