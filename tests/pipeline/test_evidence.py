"""The table of evidence against one computed by hand, and the decision made from it."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.pipeline.evidence import (
    FEATURES,
    SOURCES,
    Candidates,
    gather_candidates,
)
from spacy_bioel.pipeline.fusion import Fusion, default_fusion, fit_fusion, rank, share
from spacy_bioel.pipeline.memory import Memory
from spacy_bioel.pipeline.spelling import Found
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Heart attack", "MI")),
    Concept("X:2", ("Cold", "common cold")),
    Concept("X:3", ("Cold temperature", "cold")),
    Concept("X:4", ("Anemia",)),
    Concept("X:9", (), replaced_by="X:3"),
)
NAMES = ["Heart attack", "MI", "Cold", "common cold", "Cold temperature", "Anemia"]
ITSELF = {"exact": 1.0, "dense": 1.0, "nearest": 1.0, "sparse": 1.0, "alike": 1.0}
PRIOR_2, PRIOR_3 = log(1 + 3), log(1 + 1)


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    build_kb(CONCEPTS, folder)
    kb = KnowledgeBase.open(folder)
    assert [kb.name(row) for row in range(kb.n_names)] == NAMES
    return kb


@pytest.fixture
def memory() -> Memory:
    """ "Flu" was X:2 three times, X:3 once (by its retired id), and four times something lost."""
    return Memory({"flu": {"X:2": 3, "X:9": 1, "GONE:1": 4}})


def found(*rows: tuple[list[int], list[float]]) -> Found:
    return np.array([r for r, _ in rows]), np.array([c for _, c in rows], dtype=np.float32)


def table(
    queries: list[str],
    kb: KnowledgeBase,
    memory: Memory,
    *,
    dense: Found | None = None,
    recalled: Found | None = None,
) -> dict[tuple[str, str], dict[str, float]]:
    """(query, concept id) -> features that are not zero, where the name is from and which it is."""
    candidates = gather_candidates(
        queries,
        kb,
        memory=memory,
        prior=memory.prior(kb),
        dense=dense,
        recalled=recalled,
        spelling=kb.ngrams,
        k=3,
    )
    result = {}
    for row in range(len(candidates.query)):
        features = {
            name: pytest.approx(float(value), abs=1e-4)
            for name, value in zip(FEATURES, candidates.features[row], strict=True)
            if value
        }
        sources = "+".join(s for bit, s in SOURCES.items() if candidates.sources[row] & bit)
        name = candidates.name[row]
        about = {"sources": sources, "name": kb.name(name) if name >= 0 else None}
        key = queries[candidates.query[row]], kb.concept_id(candidates.concept[row])
        result[key] = features | about
    return result


def test_an_exact_name_of_two_concepts(kb: KnowledgeBase, memory: Memory) -> None:
    about = {"sources": "exact", "name": "Cold"}
    assert table(["cold"], kb, memory) == {
        ("cold", "X:2"): ITSELF | {"preferred": 1.0, "unique": 0.5, "prior": PRIOR_2} | about,
        ("cold", "X:3"): ITSELF | {"unique": 0.5, "prior": PRIOR_3} | about,
    }


def test_a_spelling_variant_is_looked_up_where_the_name_is_absent(
    kb: KnowledgeBase, memory: Memory
) -> None:
    found = table(["anaemia", "heart attacks"], kb, memory)
    # "alike" is 1: by 3-grams this name is the nearest; the cosine itself is below 0.8.
    variant = {"exact": 0.8, "unique": 0.8, "preferred": 0.8, "dense": 0.8, "nearest": 0.8}
    assert found["anaemia", "X:4"] == variant | {
        "sparse": 0.8, "alike": 1.0, "sources": "exact+sparse", "name": "Anemia",
    }  # fmt: skip
    assert found["heart attacks", "X:1"]["exact"] == 0.8


def test_memory_shares_its_string_between_concepts(kb: KnowledgeBase, memory: Memory) -> None:
    assert table(["flu"], kb, memory) == {
        ("flu", "X:2"): {
            "memory": 3 / 8, "seen": log(1 + 3), "recalled": 3 / 8, "recalled_dense": 3 / 8,
            "prior": PRIOR_2, "sources": "memory", "name": None,
        },
        ("flu", "X:3"): {
            "memory": 1 / 8, "seen": log(1 + 1), "recalled": 1 / 8, "recalled_dense": 1 / 8,
            "prior": PRIOR_3, "sources": "memory", "name": None,
        },
    }  # fmt: skip


def test_dense_search(kb: KnowledgeBase, memory: Memory) -> None:
    # Names 5 (X:4), 2 (X:2 and X:3), 3 (X:2 again, worse); two are equally near.
    dense = found(([5, 2, 3], [0.9, 0.9, 0.4]), ([-1, -1, -1], [0.0, 0.0, 0.0]))
    recalled = found(([0], [0.5]), ([-1], [0.0]))
    near = {"dense": 0.9, "nearest": 1.0}
    from_flu = {"recalled_dense": 0.5 * 3 / 8, "prior": PRIOR_2, "sources": "memory+dense"}
    assert table(["zzz", "qqq"], kb, memory, dense=dense, recalled=recalled) == {
        ("zzz", "X:2"): near | from_flu | {"name": "Cold"},
        ("zzz", "X:3"): near
        | {
            "recalled_dense": 0.5 * 1 / 8,
            "prior": PRIOR_3,
            "sources": "memory+dense",
            "name": "Cold",
        },
        ("zzz", "X:4"): near | {"sources": "dense", "name": "Anemia"},
    }


def test_negative_cosines_are_no_evidence(kb: KnowledgeBase, memory: Memory) -> None:
    dense = found(([5], [-0.3]))
    assert table(["zzz"], kb, memory, dense=dense) == {
        ("zzz", "X:4"): {"nearest": 1.0, "sources": "dense", "name": "Anemia"}
    }


def test_search_by_spelling_is_for_unseen_strings(kb: KnowledgeBase, memory: Memory) -> None:
    found = table(["cold temperatur", "flus"], kb, memory)
    assert found["cold temperatur", "X:3"]["sources"] == "sparse"
    assert found["cold temperatur", "X:3"]["alike"] == 1.0
    # The training string "flu" is like "flus", and was X:2 more often than X:3.
    near = found["flus", "X:2"]["recalled"].expected
    assert 0.3 * 3 / 8 <= near < 3 / 8
    assert found["flus", "X:3"]["recalled"] == near / 3


def test_nothing_is_known(kb: KnowledgeBase) -> None:
    assert table(["zzz", "qqq"], kb, Memory()) == {}
    assert table([], kb, Memory()) == {}


def test_prior(kb: KnowledgeBase, memory: Memory) -> None:
    assert memory.prior(kb).tolist() == pytest.approx([0, PRIOR_2, PRIOR_3, 0])


def candidates(query: list[int], concept: list[int]) -> Candidates:
    n = len(query)
    return Candidates(
        np.array(query),
        np.array(concept),
        np.full(n, -1),
        np.zeros((n, len(FEATURES)), np.float32),
        np.zeros(n, np.uint8),
    )


def test_ranking_breaks_ties_by_the_lower_id() -> None:
    table = candidates([0, 0, 0, 1, 2, 2], [7, 3, 5, 4, 2, 1])
    scores = np.array([0.5, 0.5, 0.9, 0.1, 0.3, 0.3])
    assert rank(table, scores, top=2).tolist() == [2, 1, 3, 5, 4]
    assert rank(table, scores, top=1).tolist() == [2, 3, 5]
    assert rank(candidates([], []), np.zeros(0), top=3).tolist() == []


def test_score_is_logistic() -> None:
    features = np.zeros((2, len(FEATURES)), np.float32)
    features[1, FEATURES.index("exact")] = 0.5
    weights = dict.fromkeys(FEATURES, 0.0) | {"bias": -1.0, "exact": 4.0}
    assert score(features, weights).tolist() == pytest.approx(
        [1 / (1 + exp(1.0)), 1 / (1 + exp(-1.0))]
    )


def test_there_is_a_default_weight_for_every_feature() -> None:
    assert set(DEFAULT_WEIGHTS) == {"bias", *FEATURES}


def test_fitted_weights_tell_right_from_wrong() -> None:
    generator = np.random.default_rng(0)
    features = generator.random((200, len(FEATURES))).astype(np.float32)
    right = features[:, FEATURES.index("dense")] > 0.5
    weights = fit_weights(features, right)
    assert max(weights, key=weights.__getitem__) == "dense"
    assert ((score(features, weights) > 0.5) == right).mean() > 0.9
