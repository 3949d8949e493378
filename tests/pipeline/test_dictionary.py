from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from spacy.tokens import Doc
from tiny import blank

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.mentions.dictionary import longest_names
from spacy_bioel.types import Concept


def kb_of(folder: Path, names: Iterable[str]) -> KnowledgeBase:
    build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(names)], folder)
    return KnowledgeBase.open(folder)


def found(text: str, kb: KnowledgeBase) -> list[str]:
    return [span.text for span in longest_names(blank().make_doc(text), kb)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Acute kidney failure and kidney failure", ["Acute kidney failure", "kidney failure"]),
        ("type-2 diabetes or diabetes", ["type-2 diabetes", "diabetes"]),
        ("ASPIRIN/paracetamol (metformin)", ["ASPIRIN", "paracetamol", "metformin"]),
        ("17β‐estradiol, 17β-Estradiol", ["17β‐estradiol", "17β-Estradiol"]),
        ("heart - attack", ["heart - attack"]),
        ("heart\nattack", ["heart\nattack"]),
        ("heart\n \nattack", []),
        ("acute\n\nkidney failure", ["kidney failure"]),
        ("", []),
    ],
)
def test_longest_names(kb: KnowledgeBase, text: str, expected: list[str]) -> None:
    assert found(text, kb) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Lung disease (COPD) was there.", ["Lung disease (COPD)"]),
        ("(Dry) cough, cough [dry].", ["(Dry) cough", "cough [dry]"]),
        ("Lung disease (COPD was there.", []),  # the longest name alone is looked at
        ("Dry) cough", []),
    ],
)
def test_no_name_has_half_a_pair_of_brackets(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    names = ("Lung disease (COPD)", "Lung disease", "(dry) cough", "cough (dry)")
    assert found(text, kb_of(tmp_path / "kb", names)) == expected


LONG = "N-(1-methyl-4-phenyl-1,2,3,6-tetrahydro-pyridin-2-yl)-3-oxo-butan-amide"
NAMES = ("IL-2h", "drug 10mg", "drug", LONG, "N", "mg", "5 days", "don't", "β10mg", "été 5mg")


@pytest.fixture(scope="module")
def odd_kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """Names that the tokenizer cuts within a word, and one of 16 words in 32 tokens."""
    return kb_of(tmp_path_factory.mktemp("odd") / "kb", NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("of IL-2h and il 2h", ["IL-2h", "il 2h"]),
        ("IL-2 h", []),
        ("drug 10mg, drug 10 mg", ["drug 10mg", "drug"]),
        ("a drug10mg", []),
        (f"the {LONG}.", [LONG]),
        (f"the {LONG[:-6]}", []),
        ("don't β10mg", ["don't", "β10mg"]),
        ("e\u0301te\u0301 5mg", ["e\u0301te\u0301 5mg"]),
    ],
)
def test_names_that_are_other_words_than_tokens(
    odd_kb: KnowledgeBase, text: str, expected: list[str]
) -> None:
    assert found(text, odd_kb) == expected


def test_names_are_found_between_the_tokens_of_another_tokenizer(odd_kb: KnowledgeBase) -> None:
    words = ["do", "n't", "IL-2h", "drug-free", "5", "days"]
    doc = Doc(blank().vocab, words, spaces=[False, True, True, True, True, False])
    assert [span.text for span in longest_names(doc, odd_kb)] == ["don't", "IL-2h", "5 days"]


def test_names_found_with_an_ontology_have_a_label(tmp_path: Path) -> None:
    """The type of the concept, or the name of the knowledge base: `doc.ents` takes them."""
    concepts = [Concept("X:1", ("aspirin",), ("Drug", "Thing")), Concept("X:2", ("fever",))]
    build_kb(concepts, tmp_path / "kb", source="mine.obo.gz")  # as within a pipeline
    build_kb([Concept("X:2", ("fever",))], tmp_path / "plain")
    for kb, expected in (("kb", ["Drug", "mine"]), ("plain", ["plain"])):
        nlp = blank()
        nlp.add_pipe("bioel_linker", config={"kb": str(tmp_path / kb), "mentions": "kb"})
        doc = nlp("Aspirin for fever.")
        doc.ents = list(doc.spans["bioel"])
        assert [ent.label_ for ent in doc.ents] == expected
        nlp.get_pipe("bioel_linker").cfg["nil_threshold"] = 1.0
        doc = nlp("Aspirin for fever.")
        assert [span.label_ for span in doc.spans["bioel"]] == expected
