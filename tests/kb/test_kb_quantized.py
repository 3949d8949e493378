from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.kb.vectors.index import ExactIndex
from spacy_bioel.kb.vectors.quantized import quantize


def test_sixteen_bits_of_each_number() -> None:
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
def test_numbers_are_off_by_half_a_step(dim: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((500, dim))
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 32512
    assert (np.abs(quantize(vectors).take(slice(None)) - vectors) < 0.51 * steps).all()


def test_next_to_nothing_is_zero_and_nothing_is_nothing() -> None:
    assert quantize(np.full((1, 2), 1e-41, np.float32)).take(slice(None)).tolist() == [[0, 0]]
    assert quantize(np.zeros((0, 5))).shape == (0, 5)


def test_products_are_without_the_fine_part() -> None:
    vectors = quantize(np.array([[2032, -999], [0, 1], [1, 1]]))
    queries = np.array([[1, 0], [0, 2], [0, 0]], np.float32)
    found = vectors.products(queries, block_rows=2)(0, 2)
    assert found.dtype == np.float32 and found.shape == (2, 3)
    # 16 codes are 2032 and -992 of the first row: of each query, only ratios mean something.
    assert found[1] == pytest.approx([0, -found[0, 1] / 992, 0])
    assert found[0, 0] > 0 > found[0, 1]
    many = quantize(np.ones((5000, 2))).products(queries, block_rows=5000)(1, 4998)
    assert many.shape == (4997, 3) and (many == many[0]).all() and not many[:, 2].any()


def test_the_nearest_is_that_of_float32() -> None:
    random = np.random.default_rng(0)
    # 4,000 vectors in 400 groups, whose members are nearly as far from a query as each other.
    groups = random.standard_normal((400, 192))
    vectors = unit(np.repeat(groups, 10, axis=0) + 0.8 * random.standard_normal((4000, 192)))
    queries = unit(np.repeat(groups, 5, axis=0) + 0.5 * random.standard_normal((2000, 192)))
    expected = (queries @ vectors.T).argmax(axis=1)
    quantized = quantize(vectors)
    found, _ = ExactIndex(quantized).search(queries, 1)
    assert (found[:, 0] == expected).mean() >= 0.999
    by_codes = quantized.products(queries, block_rows=4000)(0, 4000).argmax(axis=0)
    assert (by_codes == expected).mean() < 0.99  # what the fine part is for


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
