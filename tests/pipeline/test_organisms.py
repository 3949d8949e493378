"""Genes of the organisms that a document names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span
from tiny import blank

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.types import Concept

HUMAN, MOUSE = "NCBITaxon:9606", "NCBITaxon:10090"
GENES = [
    Concept("NCBIGene:1", ("ABC1", "alpha protein"), types=("Gene", HUMAN)),
    Concept("NCBIGene:2", ("XYZ2",), types=("Gene", HUMAN)),
]
OF_MICE = [Concept("NCBIGene:11", ("Abc1", "alpha protein"), types=("Gene", MOUSE))]
ORGANISMS = [
    Concept(HUMAN, ("human", "patients"), types=("Species",)),
    Concept(MOUSE, ("mouse", "mice"), types=("Species",)),
]


def made(folder: Path, genes: list[Concept], **settings: Any) -> Language:
    build_kb(genes, folder / "genes")
    build_kb(ORGANISMS, folder / "organisms")
    kb = {"Gene": str(folder / "genes"), "Species": str(folder / "organisms")}
    nlp = blank()
    config = {"kb": kb, "evidence": {"dense": False}, "nil_threshold": 0.4} | settings
    nlp.add_pipe("bioel_linker", config=config)
    return nlp


@pytest.fixture
def human(tmp_path: Path) -> Language:
    return made(tmp_path, GENES)


@pytest.fixture
def both(tmp_path: Path) -> Language:
    return made(tmp_path, GENES + OF_MICE)


def linked(nlp: Language, text: str) -> list[str]:
    """Ids of the genes ABC1, XYZ2 and "alpha protein" in a text that may name organisms."""
    doc = nlp.make_doc(text)
    labels = {"ABC1": "Gene", "XYZ2": "Gene"} | dict.fromkeys(
        ("human", "patients", "mouse", "mice"), "Species"
    )
    spans = [Span(doc, t.i, t.i + 1, label=labels[t.text]) for t in doc if t.text in labels]
    doc.spans["bioel"] = spans
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    return [span.kb_id_ for span in doc.spans["bioel"] if span.label_ == "Gene"]


IN_MICE = "In mice and mouse cells"


@pytest.mark.parametrize(
    ("genes", "text", "expected"),
    [
        # Where no organism is named, nothing is known.
        ("human", "ABC1 binds XYZ2", ["NCBIGene:1", "NCBIGene:2"]),
        ("human", f"{IN_MICE} ABC1 binds XYZ2", ["NIL", "NIL"]),
        ("human", "In patients ABC1 binds XYZ2", ["NCBIGene:1", "NCBIGene:2"]),
        # The organism that stands before counts most.
        ("human", f"{IN_MICE} of mice and mice human ABC1 binds XYZ2", ["NCBIGene:1", "NIL"]),
        # Genes of several organisms compete.
        ("both", f"{IN_MICE} ABC1 is low", ["NCBIGene:11"]),
        ("both", "In patients ABC1 is low", ["NCBIGene:1"]),
        # People count where they are no mentions; "Mice" is not found: the case.
        ("human", "Mice and mice with ABC1", ["NCBIGene:1"]),
        ("human", "mice and mice with ABC1", ["NIL"]),
        ("human", "mice and mice with ABC1 , women and Women and a man", ["NCBIGene:1"]),
    ],
)
def test_genes_of_the_organisms_that_are_named(
    request: pytest.FixtureRequest, genes: str, text: str, expected: list[str]
) -> None:
    assert linked(request.getfixturevalue(genes), text) == expected


def test_training_mentions_of_one_organism_do_not_decide(both: Language) -> None:
    linker: Any = both.get_pipe("bioel_linker")
    linker.statistics = MentionStatistics({"abc1": {"NCBIGene:1": 50}})
    assert linked(both, "In mice and mouse cells ABC1 is low") == ["NCBIGene:11"]
    assert linked(both, "the mouse ABC1") == ["NCBIGene:11"]
    assert linked(both, "ABC1 is low") == ["NCBIGene:1"]


def test_scores_are_probabilities(both: Language) -> None:
    doc = both.make_doc("In mice ABC1 is low")
    doc.spans["bioel"] = [Span(doc, 1, 2, label="Species"), Span(doc, 2, 3, label="Gene")]
    doc = both.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    scores = [c.score for c in doc.spans["bioel"][1]._.candidates]
    assert sorted(scores, reverse=True) == scores
    assert len(scores) == 2 and 0.4 < sum(scores) <= 1


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    nlp = made(tmp_path, GENES, evidence={"dense": False, "organism": False})
    assert linked(nlp, "In mice and mouse cells ABC1 binds XYZ2") == ["NCBIGene:1", "NCBIGene:2"]


def test_alone_and_in_a_batch(human: Language) -> None:
    def marked(text: str) -> Doc:
        doc = human.make_doc(text)
        doc.spans["bioel"] = [
            Span(doc, t.i, t.i + 1, label="Species" if t.text == "mice" else "Gene")
            for t in doc
            if t.text in ("mice", "ABC1")
        ]
        return doc

    texts = ["ABC1", "mice and mice with ABC1", "", "ABC1 again"]
    found = human.pipe([marked(text) for text in texts])
    ids = [[s.kb_id_ for s in doc.spans["bioel"] if s.label_ == "Gene"] for doc in found]
    assert ids == [["NCBIGene:1"], ["NIL"], [], ["NCBIGene:1"]]


def test_what_stands_before_a_composite_stands_before_its_parts(tmp_path: Path) -> None:
    mouse = [*OF_MICE, Concept("NCBIGene:12", ("Xyz2",), types=("Gene", MOUSE))]
    nlp = made(tmp_path, GENES + mouse)
    doc = nlp.make_doc("mouse ABC1 and XYZ2")
    doc.spans["bioel"] = [Span(doc, 0, 1, label="Species"), Span(doc, 1, 4, label="Gene")]
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    assert doc.spans["bioel"][1]._.cuis == ("NCBIGene:11", "NCBIGene:12")
