"""Dense search: exact search is by definition, and faster ways give its rows and its scores."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from kb_files import flip, forge, forge_array, place_of, vectors_of

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import faiss_index as ann
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import checksums_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import open_vectors, stored_vectors, write_vectors
from spacy_bioel.kb.vectors import ExactIndex, quantize
from spacy_bioel.types import Concept

# Quantised vectors, and exact search.


def test_sixteen_bits_of_each_number():
    # The largest number of a row is 32512 = 127 * 256; 640 = 3 * 256 - 128; -999 = -4 * 256 + 25.
    vectors = quantize(np.array([[32512, 640, -999], [0, 0.5, -0.5], [0, 0, 0]]))
    assert vectors.codes.tolist() == [[127, 3, -4], [0, 127, -127], [0, 0, 0]]
    assert vectors.fine.tolist() == [[128, 0, 153], [128, 128, 128], [128, 128, 128]]
    assert vectors.scales.tolist() == [1, np.float32(0.5) / np.float32(32512), 0]
    assert (vectors.codes.dtype, vectors.fine.dtype) == (np.int8, np.uint8)
    assert (vectors.shape, len(vectors)) == ((3, 3), 3)
    assert vectors.take(np.array([2, 0])).tolist() == [[0, 0, 0], [32512, 640, -999]]
    assert vectors.take(np.array([[1], [1]])).shape == (2, 1, 3)
    assert vectors.take(slice(1, 9)).dtype == np.float32
    # Next to nothing is zero, and nothing is nothing.
    assert quantize(np.full((1, 2), 1e-41, np.float32)).take(slice(None)).tolist() == [[0, 0]]
    assert quantize(np.zeros((0, 5))).shape == (0, 5)


@pytest.mark.parametrize("dim", [1, 7, 192])
def test_numbers_are_off_by_half_a_step(dim):
    vectors = np.random.default_rng(0).standard_normal((500, dim))
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 32512
    assert (np.abs(quantize(vectors).take(slice(None)) - vectors) < 0.51 * steps).all()


VECTORS = quantize(np.array([[1, 0], [0, 1], [0.6, 0.8], [1, 0], [-1, 0], [0, 1], [1, 0]]))
QUERIES = np.array([[1, 0], [0, 2]], dtype=np.float32)


def test_more_wanted_than_there_is_and_nothing_to_search():
    rows, scores = ExactIndex(quantize(np.eye(2))).search(QUERIES, 30)
    assert rows[:, :3].tolist() == [[0, 1, -1], [1, 0, -1]]
    assert (rows[:, 2:] == -1).all()
    assert (scores[:, 2:] == -np.inf).all()
    index = ExactIndex(VECTORS)
    assert index.search(np.zeros((0, 2), np.float32), 3)[0].shape == (0, 3)
    assert index.search(QUERIES, 0)[1].shape == (2, 0)
    assert ExactIndex(quantize(np.zeros((0, 2)))).search(QUERIES, 1)[0].tolist() == [[-1], [-1]]
    with pytest.raises(BioelError, match=r"\[B036\].*\(1, 3\).*\(n_queries, 2\)"):
        index.search(np.ones((1, 3), np.float32), 1)


@pytest.mark.parametrize("block_rows", [37, 512, 5000])
def test_same_as_sorting_all_scores(block_rows, monkeypatch):
    random = np.random.default_rng(0)
    numbers = random.standard_normal((3000, 16))
    numbers[::3] = numbers[0]  # a thousand ties
    vectors = quantize(numbers)
    stored = vectors.unscaled(slice(None)).astype(np.float64) * vectors.scales[:, None]
    queries = random.standard_normal((100, 16)).astype(np.float32)
    exact = (queries.astype(np.float64) @ stored.T).astype(np.float32)
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :10]
    monkeypatch.setattr("spacy_bioel.kb.vectors._ROWS_PER_BLOCK", block_rows)
    index = ExactIndex(vectors)
    rows, scores = index.search(queries, 10)
    assert (rows == expected).all()
    assert scores == pytest.approx(np.take_along_axis(exact, expected, axis=1), rel=1e-6)
    alone, of_alone = index.search(queries[31:32], 10)
    assert (alone[0].tolist(), of_alone[0].tolist()) == (rows[31].tolist(), scores[31].tolist())


def test_coarse_codes_of_earlier_versions_are_ignored(kb, folder):
    def encode(names):
        return np.array([[len(name), name.count("c"), 1, 0] for name in names], dtype=np.float32)

    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    home, codes = vectors_of(folder, "9f3a"), open_vectors(folder, fingerprint="9f3a").codes

    def add_coarse(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        coarse = {"coarse": np.ones((6, 2), np.int8), "projection": np.ones((4, 2), np.float32)}
        arrays |= coarse
        about["checksums"] |= checksums_of(coarse)
        about["coarse"] = True

    forge(home, add_coarse)
    again = KnowledgeBase.open(folder)
    again.verify(homes=True)
    assert (open_vectors(again, fingerprint="9f3a").codes == codes).all()
    assert write_vectors(again, encode, fingerprint="9f3a", dim=4).copied == 6


# An index of faiss.

N, DIM = 1000, 16


def encode(names) -> np.ndarray:
    """Encode names by the counts and positions of their letters."""
    vectors = np.zeros((len(names), DIM), np.float32)
    for row, name in enumerate(names):
        for place, letter in enumerate(name):
            vectors[row, ord(letter) % DIM] += 1 + place / 8
    return vectors


write = partial(write_vectors, encode=encode, fingerprint="9f3a", dim=DIM)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    random = np.random.default_rng(0)
    names = {"".join(chr(97 + i) for i in random.integers(0, 26, 12)) for _ in range(N)}
    folder = tmp_path_factory.mktemp("many") / "kb"
    build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(sorted(names))], folder)
    return folder


@pytest.fixture
def many(base, tmp_path, monkeypatch) -> KnowledgeBase:
    """A thousand names, and an index for more than 500."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(ann, "ANN_NAMES", 500)
    KnowledgeBase.open(base).save_to(tmp_path / "many")
    return KnowledgeBase.open(tmp_path / "many")


def test_the_index_is_built_measured_and_opened(many):
    built = write(many).ann
    assert built is not None and many.path is not None
    assert stored_vectors(many)[0].about["ann"] == built
    assert (built["kind"], built["queries"]) == ("IVF126,PQ8x4fsr", N)
    assert 0.9 < built["recall@10"] <= 1 and 0.9 < built["recall@1"] <= 1
    many.verify(homes=True)
    vectors = open_vectors(many, fingerprint="9f3a")
    index = ann.choose_index(vectors)
    assert isinstance(index, ann.FaissIndex)
    assert index.steps == built["steps"] == [[126, -1]]  # all lists
    queries = vectors.take(np.arange(0, N, 7))
    rows, scores = index.search(queries, 5)
    expected_rows, expected_scores = ExactIndex(vectors).search(queries, 5)
    assert (rows.dtype, scores.dtype) == (np.int64, np.float32)
    assert rows[:, 0].tolist() == list(range(0, N, 7))
    assert (rows == expected_rows).mean() > 0.9
    # Scores are those of exact search, to the last bit.
    same = rows == expected_rows
    assert np.array_equal(scores[same], expected_scores[same])
    with pytest.raises(BioelError, match=r"\[B036\]"):
        index.search(np.ones((1, 3), np.float32), 1)
    # More results are wanted than there are in one list.
    index.steps = [[1, -1]]
    rows, scores = index.search(encode(["abc"]), N)
    n_found = int((rows >= 0).sum())
    assert 0 < n_found < N
    assert (rows[0, n_found:] == -1).all() and (scores[0, n_found:] == -np.inf).all()
    assert index.search(np.zeros((0, DIM), np.float32), 3)[0].shape == (0, 3)


def test_an_odd_number_of_dimensions(many):
    built = write_vectors(many, lambda names: encode(names)[:, 1:], fingerprint="9f3a", dim=15).ann
    assert built is not None and built["kind"] == "IVF126,PQ15x4fsr"
    assert built["recall@1"] > 0.9


class Lists:
    """Mock of an index with row 0 in the first list and row 1 in the second."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def search(self, queries: np.ndarray, k: int, *, params: Any) -> tuple[None, np.ndarray]:
        self.asked.append((params.nprobe, len(queries)))
        rows = np.full((len(queries), k), -1)
        rows[:, : params.nprobe] = np.arange(params.nprobe)
        return None, rows


def test_queries_without_a_name_that_is_near_look_at_more_lists():
    pytest.importorskip("faiss")
    lists = Lists()
    index = ann.FaissIndex(quantize(np.array([[1, 0], [0, 1]])), lists, [(1, 0.7), (2, -1)])
    queries = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8]], np.float32)
    rows, scores = index.search(queries, 1)
    assert lists.asked == [(1, 3), (2, 1)]
    assert rows.tolist() == [[0], [0], [1]]
    assert scores[:, 0] == pytest.approx([1, 0.8, 0.8])
    alone = [index.search(query[None], 1) for query in queries]
    assert np.array_equal(rows, np.concatenate([row for row, _ in alone]))
    assert np.array_equal(scores, np.concatenate([score for _, score in alone]))


def test_threads_that_search_one_index_do_not_share_the_number_of_lists(many, monkeypatch):
    import faiss

    write(many)
    vectors = open_vectors(many, fingerprint=None)
    shared = faiss.deserialize_index(np.asarray(vectors.ann))
    few, all_lists = (ann.FaissIndex(vectors, shared, [[n, -1]]) for n in (1, 126))
    queries = vectors.take(np.arange(0, N, 100))
    expected = [index.search(queries, 5)[0].tolist() for index in (few, all_lists)]
    assert expected[0] != expected[1]
    monkeypatch.setattr(shared, "search", after_others(shared.search))
    start = Barrier(2, timeout=60)

    def search(which: int) -> bool:
        start.wait()
        found = [(few, all_lists)[which].search(queries, 5)[0].tolist() for _ in range(50)]
        return found == [expected[which]] * 50

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(search, range(2)))


def after_others(search: Callable) -> Callable:
    """Search after other threads had their turn."""

    def wait_and_search(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0)
        return search(*args, **kwargs)

    return wait_and_search


def test_how_near_is_near_enough():
    nearest = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    assert ann.near_enough(nearest, nearest) == -1
    one_missed = np.array([0.85, 0.8, 0.7, 0.6], np.float32)
    assert ann.near_enough(one_missed, nearest) == -1
    # One miss, at 0.85, is allowed; above 0.65, no other query missed its nearest name.
    three_missed = np.array([0.85, 0.8, 0.64999, 0.5], np.float32)
    assert ann.near_enough(three_missed, nearest) == 0.65


def test_a_damaged_index_is_not_given_to_faiss(many):
    write(many)
    assert many.path is not None
    path, vectors = vectors_of(many.path), open_vectors(many, fingerprint=None)
    assert vectors.ann is not None
    whole = bytes(vectors.ann)
    for damaged in (whole[:50] + b"\xff" + whole[51:], b""):
        vectors.ann = np.frombuffer(damaged, np.uint8)
        with pytest.raises(BioelError, match=r"\[B184\].*its checksum is .*bioel kb compact KB"):
            ann.choose_index(vectors)
    flip(path, place_of(path, "ann").stop - 1)
    with pytest.raises(BioelError, match=r"\[B024\] ann in vectors/9f3a\.\w+\.safetensors"):
        many.verify(homes=True)
    forge_array(path, "ann", None)
    with pytest.raises(BioelError, match=r"\[B033\] ann in vectors/.*found nothing"):
        open_vectors(many, fingerprint=None)


def test_the_index_goes_with_the_names(many, monkeypatch):
    write(many)
    monkeypatch.setattr(ann, "ANN_NAMES", 2000)
    assert write(many).ann is None
    assert open_vectors(many, fingerprint=None).ann is None
    assert "ann" not in stored_vectors(many)[0].file.arrays


def test_a_disk_that_fills_up_during_encoding(many, monkeypatch):
    import faiss

    def no_room(*args) -> None:
        raise RuntimeError("write error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(faiss, "write_index", no_room)
        with pytest.raises(BioelError, match=r"\[B182\].*No space left"):
            write(many)
    assert write(many).encoded == N


def test_without_faiss(kb, monkeypatch):
    monkeypatch.setattr(ann, "ANN_NAMES", 5)
    monkeypatch.setattr(ann, "has_faiss", lambda: False)
    assert write(kb).ann is None
    vectors = open_vectors(kb, fingerprint=None)
    with pytest.warns(UserWarning, match=r"\[W180\] All 6 names"):
        assert isinstance(ann.choose_index(vectors), ExactIndex)
