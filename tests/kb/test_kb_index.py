"""Quantised vectors, and exact search among them."""

import numpy as np
import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.vectors import ExactIndex, quantize


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


@pytest.mark.parametrize("dim", [1, 7, 192])
def test_numbers_are_off_by_half_a_step(dim):
    vectors = np.random.default_rng(0).standard_normal((500, dim))
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 32512
    assert (np.abs(quantize(vectors).take(slice(None)) - vectors) < 0.51 * steps).all()


def test_next_to_nothing_is_zero_and_nothing_is_nothing():
    assert quantize(np.full((1, 2), 1e-41, np.float32)).take(slice(None)).tolist() == [[0, 0]]
    assert quantize(np.zeros((0, 5))).shape == (0, 5)


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


VECTORS = quantize(np.array([[1, 0], [0, 1], [0.6, 0.8], [1, 0], [-1, 0], [0, 1], [1, 0]]))
QUERIES = np.array([[1, 0], [0, 2]], dtype=np.float32)
INF = float("inf")


@pytest.mark.parametrize("block_rows", [1, 2, 3, 100])
def test_best_rows_and_ties(block_rows):
    index = ExactIndex(VECTORS, block_rows=block_rows)
    rows, scores = index.search(QUERIES, 4)
    assert rows.tolist() == [[0, 3, 6, 2], [1, 5, 2, 0]]
    np.testing.assert_allclose(scores, [[1, 1, 1, 0.6], [2, 2, 1.6, 0]], atol=1e-3)
    assert (rows.dtype, scores.dtype) == (np.int64, np.float32)
    assert len(index) == 7


def test_more_wanted_than_there_is():
    rows, scores = ExactIndex(quantize(np.eye(2))).search(QUERIES, 30)
    assert rows[:, :3].tolist() == [[0, 1, -1], [1, 0, -1]]
    assert (rows[:, 2:] == -1).all()
    assert (scores[:, 2:] == -INF).all()


def test_nothing_to_search():
    assert ExactIndex(VECTORS).search(np.zeros((0, 2), np.float32), 3)[0].shape == (0, 3)
    assert ExactIndex(VECTORS).search(QUERIES, 0)[1].shape == (2, 0)
    assert ExactIndex(quantize(np.zeros((0, 2)))).search(QUERIES, 1)[0].tolist() == [[-1], [-1]]


@pytest.mark.parametrize("block_rows", [37, 512, 5000])
def test_same_as_sorting_all_scores(block_rows):
    random = np.random.default_rng(0)
    numbers = random.standard_normal((3000, 16))
    numbers[::3] = numbers[0]  # a thousand ties
    vectors = quantize(numbers)
    stored = vectors.whole(slice(None)).astype(np.float64) * vectors.scales[:, None]
    queries = random.standard_normal((300, 16)).astype(np.float32)
    exact = (queries.astype(np.float64) @ stored.T).astype(np.float32)
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :10]
    rows, scores = ExactIndex(vectors, block_rows=block_rows).search(queries, 10)
    assert (rows == expected).all()
    assert scores == pytest.approx(np.take_along_axis(exact, expected, axis=1), rel=1e-6)


def test_scores_do_not_depend_on_the_batch():
    random = np.random.default_rng(1)
    index = ExactIndex(quantize(random.standard_normal((1000, 48))), block_rows=300)
    queries = random.standard_normal((64, 48)).astype(np.float32)
    rows, scores = index.search(queries, 7)
    for i in (0, 31, 63):
        one_rows, one_scores = index.search(queries[i : i + 1], 7)
        assert one_rows[0].tolist() == rows[i].tolist()
        assert one_scores[0].tolist() == scores[i].tolist()


def test_shapes_that_do_not_fit():
    index = ExactIndex(VECTORS)
    with pytest.raises(BioelError, match=r"\[B036\].*\(1, 3\).*\(n_queries, 2\)"):
        index.search(np.ones((1, 3), np.float32), 1)
