from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.kb.columns.keys import name_key, name_keys, span_keys, word_key


def test_keys_are_the_same_on_every_machine():
    # little-endian BLAKE2b of 8 bytes; the key of two words is first * base + second mod 2^64
    assert word_key("cold") == 0xEA1476E06061B475
    assert name_key("cold") == 0xEA1476E06061B475
    assert name_key("common cold") == 0x4D56A86978BD2CC5
    assert name_key("") == 0
    assert name_keys(["", "cold"]).tolist() == [0, 0xEA1476E06061B475]
    assert name_keys([]).shape == (0,)


@pytest.mark.parametrize(
    ("tokens", "max_width", "names"),
    [
        ([], 3, []),
        (["a", "b"], 1, [["a"], ["b"]]),
        (["a", "b", "c"], 2, [["a", "a b"], ["b", "b c"], ["c", ""]]),
        (["a", "", "b"], 3, [["a", "a", "a b"], ["", "b", ""], ["b", "", ""]]),
        (["", ""], 2, [["", ""], ["", ""]]),
        (["a b", "c"], 2, [["a b", "a b c"], ["c", ""]]),
        (["c", "a b", "d"], 3, [["c", "c a b", "c a b d"], ["a b", "a b d", ""], ["d", "", ""]]),
        (["a", "b"], 5, [["a", "a b", "", "", ""], ["b", "", "", "", ""]]),
    ],
)
def test_span_keys_are_the_keys_of_the_joined_words(tokens, max_width, names):
    keys = span_keys(tokens, max_width)
    assert keys.dtype == np.uint64
    assert keys.shape == (len(tokens), max_width)
    assert keys.tolist() == [[name_key(name) for name in row] for row in names]


def test_word_order_matters():
    assert name_key("a b") != name_key("b a")
