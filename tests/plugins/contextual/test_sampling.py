"""Sampling for training: names of the pool, synonyms, and mined negatives."""

import numpy as np
import pytest

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.searches import NamePool
from spacy_bioel.linking.training import NameSampler
from spacy_bioel.plugins.contextual.dual_encoder import CandidateSampler
from spacy_bioel.settings import TrainingSettings

ALIAS_TABLE = AliasTable(
    {"heart attack": {"MESH:D009203": 2}, "chill": {"MESH:D003139": 1, "MESH:GONE": 1}}
)
# Names of both concepts, with the homonym "cold".
GOLD_NAMES = ["cold", "common cold", "heart attack", "myocardial infarction"]


def sampler(kb: KnowledgeBase, **settings: int) -> NameSampler:
    training = {"synonyms": 0, "negatives": 0} | settings
    return NameSampler(kb, ALIAS_TABLE, TrainingSettings.of(training))


def by_letters(names) -> np.ndarray:
    """Encode names by how often each letter occurs."""
    counts = np.array([[name.count(chr(97 + i)) for i in range(26)] for name in names], "f")
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


@pytest.mark.parametrize(("size", "n_names"), [(1, 2), (4, 4), (6, 4), (7, 7), (1000, 75)])
def test_the_pool_has_the_names_of_gold_concepts_first(kb, size, n_names):
    pool = NamePool(kb, ALIAS_TABLE.ids, size=size)
    assert len(pool.names) == len(pool.rows) == n_names
    assert size < 4 or set(GOLD_NAMES) <= set(pool.names)


def test_the_pool_answers_with_rows_and_vectors_of_its_names_alone(kb):
    pool = NamePool(kb, ALIAS_TABLE.ids, size=4)
    names = pool.encoded(by_letters)
    rows, cosines = names.search(by_letters(["heart attack"]), 5)
    assert kb.name(int(rows[0, 0])) == "heart attack"
    assert cosines[0, 0] == pytest.approx(1.0, abs=1e-2)
    assert rows[0, 4] == -1
    outside = int(np.setdiff1d(np.arange(kb.n_names), pool.rows)[-1])
    found = names.take(np.array([outside, int(pool.rows[1])]))
    assert found.dtype == np.float32
    assert not found[0].any()
    np.testing.assert_allclose(found[1], by_letters([pool.names[1]])[0], atol=1e-3)


def test_a_draw_has_each_mention_with_a_name_of_its_concept(kb):
    infarction, cold = (int(row) for row in kb.find_all(["MESH:D009203", "MESH:D003139"]))
    names, concepts = sampler(kb).draw([("mi", infarction), ("mi", infarction), ("chill", cold)])
    assert names[0] == "mi" and names[2] == "chill"
    assert names[1] in ("heart attack", "myocardial infarction")
    assert names[3] in ("cold", "common cold")
    assert concepts.tolist() == [infarction, infarction, cold, cold]


def test_synonyms_are_pairs_of_one_concept_and_equal_with_equal_seeds(kb):
    first, second = (sampler(kb, synonyms=8) for _ in range(2))
    for _ in range(3):
        names, concepts = first.draw([])
        assert len(set(names)) == len(names) >= 8
        assert second.draw([])[0] == names
        for name, concept in zip(names, concepts, strict=True):
            assert concept in kb.concepts_of_names(kb.lookup_names([name]))[1]
    names, concepts = sampler(kb).draw([])
    assert names == [] and concepts.shape == (0,)


def test_mined_negatives_are_of_other_concepts(kb):
    name_sampler = sampler(kb, negatives=3)
    pool = NamePool(kb, name_sampler.alias_table.ids, size=1000)
    name_sampler.mine(by_letters, pool.encoded(by_letters))
    infarction = kb.find("MESH:D009203")
    names, concepts = name_sampler.draw([("heart attack", infarction)])
    right = [name for name, concept in zip(names, concepts, strict=True) if concept == infarction]
    assert set(right) <= {"heart attack", "myocardial infarction"}
    assert 1 <= len(names) - len(right) <= 3


def test_mentions_are_compared_with_right_mined_and_random_names(kb):
    infarction, cold = kb.find_all(["MESH:D009203", "MESH:D003139"])
    name_sampler = CandidateSampler(kb, n_candidates=3, seed=0)
    strings, concepts = ["attack of the heart", "cold"], np.array([infarction, cold])
    name_sampler.remember(strings, concepts, by_letters(strings))
    names = NamePool(kb, ALIAS_TABLE.ids, size=1000).encoded(by_letters)
    name_sampler.mine(names)
    for _ in range(5):
        rows = name_sampler.draw(strings, concepts)
        assert len(rows) == len(set(rows.tolist())) <= 2 * (1 + 3 + 3)
        drawn = [set(kb.concepts_of_names(np.array([row]))[1].tolist()) for row in rows]
        assert any(infarction in owners for owners in drawn)
        assert any(cold in owners for owners in drawn)
    # The homonym "cold" is nearest to the second mention, but a right name: not a negative.
    mined = [kb.name(int(row)) for row in name_sampler._mined["cold", int(cold)]]
    assert len(mined) == 3 and not {"cold", "common cold"} & set(mined)


def test_nothing_is_mined_before_mentions_have_vectors(kb):
    name_sampler = CandidateSampler(kb, n_candidates=2, seed=0)
    name_sampler.mine(NamePool(kb, ALIAS_TABLE.ids, size=9).encoded(by_letters))
    assert 1 <= len(name_sampler.draw([], np.zeros(0, dtype=np.int64))) <= 2
