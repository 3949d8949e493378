"""Equivalent concepts of several vocabularies do not halve each other's score."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kb_files import made_kb
from tiny import blank

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import repeats, softmax_with_equivalents
from spacy_bioel.types import Concept

SMALL = {"dim": 16, "blocks": 1, "filters": 4}
MALARIA = Concept("M:1", ("Malaria",), xrefs=("UMLS:C24530",))
OTHERS = [Concept(f"M:{i}", (name,)) for i, name in ((6, "Cough"), (7, "Fever"))]
# The same disease in another vocabulary, and another one of that name.
SAME = Concept("H:1", ("Malaria",), xrefs=("SCTID:61", "umls_cui:C24530"))
ANOTHER = Concept("H:1", ("Malaria",), xrefs=("UMLS:C999",))


def kb(folder: Path, *concepts: Concept) -> str:
    build_kb(concepts, folder)
    return str(folder)


def candidates(kb: Any, mentions: str) -> list[tuple[str, float]]:
    nlp = blank()
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "Thing", "pattern": "malaria"}])
    nlp.add_pipe("bioel_linker", config={"kb": kb, "model": SMALL, "mentions": mentions})
    doc = nlp("Cough, fever or malaria.")
    (span,) = [span for span in doc.spans["bioel"] if span.text == "malaria"]
    return [(c.id, c.score) for c in span._.candidates]


@pytest.mark.parametrize("mentions", ["ents", "dictionary"])
def test_equivalents_score_like_one_concept_alone(mentions, tmp_path):
    mine = kb(tmp_path / "mine", MALARIA, *OTHERS)
    ((_, alone),) = candidates(mine, mentions)
    joined = [mine, kb(tmp_path / "same", SAME)]
    merged = kb(tmp_path / "merged", MALARIA, *OTHERS, SAME)
    for both in (joined, merged):
        (first, one), (second, other) = candidates(both, mentions)
        assert {first, second} == {"M:1", "H:1"}
        assert one == other > 0.95 * alone > 0.85
    # The same id in two knowledge bases is one concept.
    ((_, twice),) = candidates([mine, kb(tmp_path / "again", MALARIA)], mentions)
    assert twice > 0.95 * alone
    # Homonyms in one knowledge base compete.
    homonyms = candidates(kb(tmp_path / "homonyms", MALARIA, *OTHERS, ANOTHER), mentions)
    assert [score < 0.5 for _, score in homonyms] == [True, True]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> KnowledgeBase:
    concepts = [
        Concept("A:1", ("a",), xrefs=("MSH:D1", "ICD:7")),
        Concept("A:2", ("b",), xrefs=("ICD:7",)),
        Concept("B:1", ("c",), xrefs=("icd:7",)),
        Concept("C0001", ("d",), xrefs=()),
        Concept("D:1", ("e",), xrefs=("UMLS:C0001",)),
        Concept("MESH:D1", ("f",), xrefs=()),
    ]
    folder = tmp_path_factory.mktemp("kb")
    return made_kb(folder / "kb", concepts)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["A:1", "MESH:D1"], [False, True]),  # an id under another spelling
        (["MESH:D1", "A:1"], [False, True]),
        (["A:1", "A:2"], [False, False]),  # of one vocabulary
        (["A:1", "B:1"], [False, True]),
        (["C0001", "D:1"], [False, True]),
        (["A:1", "D:1"], [False, False]),
        (["A:1", "B:1", "MESH:D1", "D:1"], [False, True, True, False]),
    ],
)
def test_which_concepts_are_equivalent(vocabulary, ids, expected):
    concepts = vocabulary.find_all(ids)
    shares = np.linspace(0.5, 0.1, len(ids))  # the first is the most probable
    groups = np.zeros(len(ids), dtype=np.int64)
    assert repeats(vocabulary, concepts, shares, groups).tolist() == expected
    # Nothing is repeated in different groups, or with low probabilities.
    assert not repeats(vocabulary, concepts, shares, np.arange(len(ids))).any()
    assert not repeats(vocabulary, concepts, shares / 100, groups).any()


def test_only_the_most_probable_equivalent_counts(vocabulary):
    concepts = vocabulary.find_all(["A:1", "MESH:D1", "D:1", "A:1", "A:2"])
    scores = np.log([3.0, 1.0, 1.0, 3.0, 1.0])
    groups = np.array([0, 0, 0, 1, 1])
    shares = softmax_with_equivalents(vocabulary, concepts, scores, groups)
    # Shares of 3 + 1 + 1 (NIL): the second is equivalent to the first. Same for the other group.
    assert shares.tolist() == pytest.approx([0.6, 0.2, 0.2, 0.6, 0.2])
    alone = softmax_with_equivalents(vocabulary, concepts[:3:2], scores[:3:2], groups[:3:2])
    assert alone.tolist() == pytest.approx([0.6, 0.2])
