"""Search by coarse codes, the first half of the principal components."""

import numpy as np
import pytest
from kb_files import forge_array, vectors_of

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files as writing_module
from spacy_bioel.kb import vectors as coarse_module
from spacy_bioel.kb.faiss_index import choose_index
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import open_vectors, write_vectors
from spacy_bioel.kb.vectors import ExactIndex, TwoStageIndex, coarse_codes_of, quantize


def names_and_queries():
    """Return 40,000 unit vectors, mostly in a third of their dimensions, and noisy queries."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((40_000, 48)) * np.where(np.arange(48) < 16, 1, 0.3)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[::400] + 0.05 * random.standard_normal((100, 48))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return quantize(vectors), queries.astype(np.float32)


def test_results_are_those_of_exact_search():
    vectors, queries = names_and_queries()
    vectors.coarse = coarse_codes_of(vectors)
    assert (vectors.coarse.codes.shape, vectors.coarse.codes.dtype) == ((40_000, 24), np.int8)
    rows, scores = TwoStageIndex(vectors).search(queries, 10)
    exact, of_exact = ExactIndex(vectors).search(queries, 10)
    assert rows[:, 0].tolist() == list(range(0, 40_000, 400))
    assert (rows == exact).all(axis=1).sum() >= 95
    same = rows == exact
    assert (scores[same] == of_exact[same]).all()
    alone = [TwoStageIndex(vectors).search(query[None], 10) for query in queries]
    assert [one[0][0].tolist() for one in alone] == rows.tolist()
    assert TwoStageIndex(vectors).search(queries[:0], 10)[0].shape == (0, 10)


def test_few_vectors_are_compared_in_full():
    vectors = quantize(np.eye(3))
    assert coarse_codes_of(vectors) is None
    assert type(choose_index(vectors)) is ExactIndex


def encode(names):
    return np.array([[len(name), name.count("c"), 1, 0] for name in names], dtype=np.float32)


def test_coarse_codes_are_made_of_stored_vectors(kb, folder, monkeypatch):
    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    assert open_vectors(folder, fingerprint="9f3a").coarse is None
    monkeypatch.setattr(coarse_module, "MIN_COARSE_NAMES", 2)
    monkeypatch.setattr(writing_module, "MIN_COARSE_NAMES", 2)
    done = write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    assert (done.encoded, done.copied) == (0, 6)
    vectors = open_vectors(folder, fingerprint="9f3a")
    assert (vectors.coarse.codes.shape, vectors.coarse.projection.shape) == ((6, 2), (4, 2))
    assert type(choose_index(vectors)) is TwoStageIndex
    home = vectors_of(folder, "9f3a")
    assert write_vectors(kb, encode, fingerprint="9f3a", dim=4).copied == 6
    assert vectors_of(folder, "9f3a") == home  # nothing to do
    KnowledgeBase.open(folder).verify(homes=True)


@pytest.mark.parametrize("name", ["coarse", "projection"])
def test_missing_coarse_codes(kb, folder, monkeypatch, name):
    monkeypatch.setattr(coarse_module, "MIN_COARSE_NAMES", 2)
    monkeypatch.setattr(writing_module, "MIN_COARSE_NAMES", 2)
    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    forge_array(vectors_of(folder, "9f3a"), name, None)
    with pytest.raises(BioelError, match=rf"\[B033\] {name} in vectors/9f3a"):
        open_vectors(KnowledgeBase.open(folder), fingerprint="9f3a")
