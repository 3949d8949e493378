"""Ids that the knowledge base lacks are compared by its cross-references, if this is asked for."""

import json
from pathlib import Path

import pytest
from kb_files import made_kb

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.evaluation.run import ids_by_xrefs, with_ids_by_xrefs
from spacy_bioel.types import AnnotatedText, Concept, Mention

CONCEPTS = [
    Concept("MESH:C1", ("C7 deficiency",), xrefs=("OMIM:610102", "UMLS:C0001", "SNOMEDCT_US:7")),
    Concept("MESH:C2", ("alkaptonuria",), xrefs=("OMIM:203500", "DOID:9270")),
    Concept("MESH:C3", ("ochronosis",), xrefs=("DOID:9270", "MESH:C1")),
    Concept("MESH:C9", (), replaced_by="MESH:C1"),
]


@pytest.fixture
def kb(tmp_path) -> KnowledgeBase:
    return made_kb(tmp_path / "kb", CONCEPTS)


def write_gold(path: Path, ids: dict[str, str]) -> Path:
    """Write texts, each with an id of "C7 deficiency" at its beginning."""
    rows = [
        {"id": text, "text": text, "mentions": [{"start": 0, "end": 13, "label": "D", "ids": [id]}]}
        for text, id in ids.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("OMIM:610102", "MESH:C1"),
        ("OMIM:203500", "MESH:C2"),
        ("omim:203500", "MESH:C2"),  # prefixes in any spelling
        ("C0001", "MESH:C1"),
        ("UMLS_CUI:C0001", "MESH:C1"),
        ("SCTID:7", "MESH:C1"),
        ("DOID:9270", "DOID:9270"),  # of two concepts: it is neither
        ("MESH:C1", "MESH:C1"),  # the knowledge base has it, whatever C3 refers to
        ("MESH:C9", "MESH:C1"),  # retired
        ("OMIM:1", "OMIM:1"),
        ("7", "7"),
    ],
)
def test_ids_by_cross_references(kb, id, expected):
    assert ids_by_xrefs(kb)(id) == expected


def test_cross_references_of_joined_knowledge_bases(kb, tmp_path):
    more = [Concept("X:1", ("gout",), xrefs=("OMIM:138900",)), Concept("X:2", ("tic",), xrefs=())]
    build_kb([*more, Concept("X:3", ("C7D",), xrefs=("OMIM:610102",))], tmp_path / "more")
    joined = JoinedKnowledgeBase([kb, KnowledgeBase.open(tmp_path / "more")])
    same = ids_by_xrefs(joined)
    assert (same("OMIM:138900"), same("OMIM:203500")) == ("X:1", "MESH:C2")
    assert same("OMIM:610102") == "OMIM:610102"  # C1 and X:3


def test_only_ids_that_are_stated_to_be_equal_are_replaced(kb):
    ids = ("OMIM:203500", "OMIM:610102", "DOID:9270", "OMIM:5")
    text = AnnotatedText("1", "aa", (Mention(0, 2, "Disease", ids),))
    (mapped,) = with_ids_by_xrefs([text], kb)
    assert mapped.mentions[0].ids == ("MESH:C2", "MESH:C1", "DOID:9270", "OMIM:5")
    assert text.mentions[0].ids == ids  # the corpus is left as it is


def test_evaluate_by_cross_references(bioel, kb, tmp_path):
    texts = {"C7 deficiency is rare.": "OMIM:610102", "C7 deficiency is bad.": "DOID:9270"}
    gold = write_gold(tmp_path / "gold.jsonl", texts)
    argv = ("evaluate", kb.path, gold, "--protocol", "end_to_end")
    # Without the option, the knowledge base has none of the ids.
    assert "[B077]" in bioel(*argv, status=2).err
    found = bioel(*argv, "--xrefs", "--json", "-").json
    (row,) = [r for r in found if r["metric"] == "recall" and not r["label"]]
    assert (row["value"], row["xrefs"]) == (50.0, True)
    done = bioel(*argv, "--xrefs", "--errors", tmp_path / "errors.tsv")
    assert "xrefs: True" in done.err + done.out
    errors = (tmp_path / "errors.tsv").read_text().splitlines()
    assert len(errors) == 2 and "DOID:9270" in errors[1]
    # Ids of the knowledge base are scored alike.
    gold = write_gold(tmp_path / "own.jsonl", {"C7 deficiency is rare.": "MESH:C1"})
    scores = [
        [(r["protocol"], r["metric"], r["value"]) for r in bioel(*argv).json]
        for argv in (
            ("evaluate", kb.path, gold, "--json", "-"),
            ("evaluate", kb.path, gold, "--json", "-", "--xrefs"),
        )
    ]
    assert scores[0] == scores[1]
    build_kb([Concept("MESH:C1", ("C7 deficiency",))], tmp_path / "none")
    assert "[B630]" in bioel("evaluate", tmp_path / "none", gold, "--xrefs", status=2).err
