"""Short names of genes with their usual meanings, and little-known genes."""

from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Span, SpanGroup
from tiny import blank

from spacy_bioel.entities.genes import create_genes_v1
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.entities.usual_names import usual_names
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.kb.edit import NameEdit, edit_names
from spacy_bioel.types import Concept

pytestmark = pytest.mark.filterwarnings("ignore:.*W323")
HUMAN, MOUSE = "NCBITaxon:9606", "NCBITaxon:10090"


def gene(id: int, *names: str, organism: str = HUMAN) -> Concept:
    return Concept(f"NCBIGene:{id}", names, types=("Gene", organism))


GENES = [
    gene(1, "PLOD1", "LH"),
    gene(2, "LHB", "luteinizing hormone subunit beta"),
    gene(3, "CGA"),
    gene(4, "ESR1", "estrogen receptor 1"),
    gene(5, "GAPDH"),
    gene(6, "RAF1"),
    gene(7, "ZHX2", "RAF"),
    gene(8, "FTH1"),
    gene(9, "FTL"),
    gene(10, "OXT"),
    gene(11, "EGFR", "XQ1", "epidermal growth factor receptor"),  # well known
    gene(12, "QQQ7", "XZ2", "quite rare kinase"),  # unknown
    gene(16, "Raf1", organism=MOUSE),
    gene(17, "SLC5A5", "sodium iodide symporter"),
    gene(18, "SLC6A3", "dopamine transporter"),
    gene(19, "SLC2A1", "glucose transporter 1"),
    gene(20, "CASR", "calcium-sensing receptor"),
    gene(21, "XDH", "xanthine oxidase"),
]
OTHERS = [
    Concept(HUMAN, ("human", "patients"), types=("Species",)),
    Concept(MOUSE, ("mice",), types=("Species",)),
]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    return made(tmp_path_factory.mktemp("usual"))


def made(folder: Path) -> Language:
    build_kb(GENES, folder / "genes")
    build_kb(OTHERS, folder / "others")
    return pipeline_of(folder)


def pipeline_of(folder: Path) -> Language:
    kb = {"Gene": str(folder / "genes"), "Species": str(folder / "others")}
    pipeline = blank()
    settings = {"evidence": {"dense": False}, "nil_threshold": 0.4}
    config = {"kb": {**kb, "Chemical": kb["Species"]}, "mentions": "spans+dictionary", **settings}
    pipeline.add_pipe("bioel_linker", config=config)
    return pipeline


def links(nlp: Language, text: str, **labels: str) -> dict[str, tuple[str, ...]]:
    doc = nlp.make_doc(text)
    spans = [Span(doc, t.i, t.i + 1, label=labels[t.text]) for t in doc if t.text in labels]
    doc.spans["bioel"] = SpanGroup(doc, spans=spans, attrs={"scores": [0.9] * len(spans)})
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    found: dict[str, Any] = {s.text: s._.cuis for s in doc.spans["bioel"] if s.label_ == "Gene"}
    return {name: tuple(id.removeprefix("NCBIGene:") for id in ids) for name, ids in found.items()}


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("LH rose in the patients.", "LH", ("2", "3")),
        ("RAF was active in the patients.", "RAF", ("6",)),
        ("Raf protein was active in mice .", "Raf", ("16",)),
        ("The patients lacked ferritin protein.", "ferritin", ("8", "9")),
    ],
)
def test_usual_meaning(nlp, text, name, expected):
    assert links(nlp, text, **{name: "Gene"}, mice="Species")[name] == expected


def test_a_defined_name_has_its_own_meaning(nlp):
    text = "Lysyl hydroxylase (LH) is PLOD1; LH is low."
    assert links(nlp, text, LH="Gene").get("LH", ()) in ((), ("1",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Silencing of ER slowed growth.", {"ER": ("4",)}),
        ("ER-positive tumors grew.", {"ER": ("4",)}),
        ("He came to the ER at night.", {}),
        ("Stress of the ER was seen.", {}),
        ("We used GAPDH as a control.", {"GAPDH": ("5",)}),
        ("mRNA levels of oxytocin fell.", {"oxytocin": ("10",)}),
        ("Labour was induced with oxytocin.", {}),
        ("LH receptor expression fell.", {}),
        ("Basal LH was low.", {"LH": ("2", "3")}),
        ("Plasma LH levels fell.", {"LH": ("2", "3")}),
        ("The LH surge came late.", {"LH": ("2", "3")}),
        ("He moved from LH to the north.", {}),
        ("Plasma oxytocin levels fell.", {}),  # a word: a chemical, too
    ],
)
def test_missed_names_are_found_next_to_words_for_genes(nlp, text, expected):
    assert links(nlp, text) == expected


def test_names_of_chemicals_are_genes_next_to_words_for_genes(nlp):
    assert links(nlp, "Expression of oxytocin fell.", oxytocin="Chemical") == {"oxytocin": ("10",)}
    assert links(nlp, "A dose of oxytocin was given.", oxytocin="Chemical") == {}


@pytest.mark.parametrize(
    ("chemical", "text", "expected"),
    [
        (
            "iodide",
            "The sodium iodide symporter.",
            {"sodium iodide symporter": "17"},
        ),
        ("dopamine", "The dopamine transporter was lost.", {"dopamine transporter": "18"}),
        (
            "dopamine",
            "Some dopamine transporters.",
            {"dopamine transporters": "18"},
        ),
        ("glucose", "The glucose transporter 1 protein.", {"glucose transporter 1": "19"}),
        ("glucose", "The glucose transporter 9 protein.", {}),
        ("calcium", "We saw calcium-sensing receptor loss.", {"calcium-sensing receptor": "20"}),
        ("xanthine", "A xanthine oxidase inhibitor.", {"xanthine oxidase": "21"}),
        ("dopamine", "The dopamine transport was lost.", {}),
        ("dopamine", "Dopamine, transporter and pump.", {}),
    ],
)
def test_proteins_that_are_called_by_a_chemical(nlp, chemical, text, expected):
    found = {name: ids for name, ids in links(nlp, text, **{chemical: "Chemical"}).items()}
    assert found == {name: (id,) for name, id in expected.items()}


def test_a_little_known_gene_needs_another_name_in_the_document(nlp):
    assert links(nlp, "XZ2 was measured.", XZ2="Gene")["XZ2"] == ()
    assert links(nlp, "XZ2 or QQQ7 was measured.", XZ2="Gene")["XZ2"] == ("12",)
    assert links(nlp, "XZ2, a quite rare kinase.", XZ2="Gene")["XZ2"] == ("12",)
    assert links(nlp, "XQ1 was measured.", XQ1="Gene")["XQ1"] == ("11",)
    assert links(nlp, "QQQ7 was measured.", QQQ7="Gene")["QQQ7"] == ("12",)


def test_a_short_form_of_something_else_is_not_the_gene(nlp):
    assert links(nlp, "Xeno quality 1 (XQ1) rose, and XQ1 fell.", XQ1="Gene") == {}
    text = "The xeno quality 1 receptor (XQ1R) rose, and XQ1 fell."
    assert links(nlp, text, XQ1="Gene")["XQ1"] == ("11",)


def test_the_table_can_be_switched_off(nlp):
    linker = nlp.get_pipe("bioel_linker")
    before = linker.entities
    linker.entities = RuleSet({"genes": create_genes_v1(usual_names=False)})
    try:
        assert links(nlp, "RAF rose, and GAPDH.", RAF="Gene")["RAF"] != ("6",)
        assert links(nlp, "Silencing of ER slowed growth.") == {}
    finally:
        linker.entities = before


def test_names_that_a_user_added_keep_their_meaning(tmp_path):
    made(tmp_path)
    edit_names(tmp_path / "genes", {"NCBIGene:12": NameEdit(add=("ferritin",))})
    nlp = pipeline_of(tmp_path)
    assert links(nlp, "Serum ferritin protein rose.", ferritin="Gene")["ferritin"] == ("12",)


def test_the_symbols_are_human_genes():
    kb = starter_kb("starter:genes")
    assert len(usual_names()) <= 400
    for name, usual in usual_names().items():
        for symbol in usual.symbols:
            _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([symbol]))
            human = [r for r in concepts[is_preferred].tolist() if HUMAN in kb.types_of(r)]
            assert len(human) == 1, (name, symbol)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Cells were washed in PBS and counted.", "PBS"),
        ("The RAF9 gene (catalogue number RAF9) was cloned.", "none"),
        ("We bought antibodies (cat. no. QX1234) from a company.", "QX1234"),
        ("This was registered as NCT01234567 in 2012.", "NCT01234567"),
        ("The kit (Cat. No. R1234C) was used.", "Cat"),
        ("It came from a company (cat # S600K).", "cat"),
    ],
)
def test_names_that_are_not_genes(nlp, text, name):
    assert name not in links(nlp, text, **{name: "Gene"})


def test_a_defined_name_may_be_a_gene(nlp):
    text = "PLOD1-binding subunit (PBS) was cloned; PBS is a protein."
    assert "PBS" in links(nlp, text, PBS="Gene")
