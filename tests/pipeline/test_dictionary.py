from __future__ import annotations

from pathlib import Path

import pytest
from tiny import blank, links

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.mentions.dictionary import longest_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Acute kidney failure and kidney failure", ["Acute kidney failure", "kidney failure"]),
        ("type-2 diabetes or diabetes", ["type-2 diabetes", "diabetes"]),
        ("ASPIRIN/paracetamol (metformin)", ["ASPIRIN", "paracetamol", "metformin"]),
        ("17β‐estradiol, 17β-Estradiol", ["17β‐estradiol", "17β-Estradiol"]),
        ("heart attack-", ["heart attack"]),
        ("heart - attack", ["heart - attack"]),
        ("heart attac", []),
        ("", []),
        ("- , .", []),
    ],
)
def test_longest_names(kb: KnowledgeBase, text: str, expected: list[str]) -> None:
    assert [span.text for span in longest_names(blank().make_doc(text), kb)] == expected


def test_a_pipeline_with_nothing_but_a_knowledge_base(kb_folder: Path) -> None:
    nlp = blank()
    nlp.add_pipe("bioel_linker", config={"kb": str(kb_folder), "mentions": "kb"})
    doc = nlp("Naloxone-induced hypertension after a heart attack.")
    assert links(doc) == [
        ("Naloxone", "MESH:D009270"),
        ("hypertension", "MESH:D006973"),
        ("heart attack", "MESH:D009203"),
    ]
    assert doc.ents == ()
    assert links(nlp(doc)) == links(doc)
