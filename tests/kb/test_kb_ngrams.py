from __future__ import annotations

import numpy as np
import pytest

from spacy_bioel.kb.words import ngrams

NAMES = ["ab", "", "abc", "b", "ab b"]


def code(gram: str) -> int:
    return int.from_bytes(gram.encode(), "big")


@pytest.mark.parametrize("block", [1, 2, 100])
def test_postings_do_not_depend_on_blocks(monkeypatch, block):
    monkeypatch.setattr(ngrams, "_BLOCK", block)
    codes, offsets, rows, norms = ngrams.build_postings(NAMES)
    found = {
        int(codes[i]).to_bytes(3, "big").decode(): rows[offsets[i] : offsets[i + 1]].tolist()
        for i in range(len(codes))
    }
    assert found == {
        " ab": [0, 2, 4], " b ": [3, 4], "ab ": [0, 4], "abc": [2], "bc ": [2],
    }  # fmt: skip
    assert codes.tolist() == sorted(map(code, found))
    assert [a.dtype.name for a in (codes, offsets, rows, norms)] == [
        "uint32", "int64", "int32", "float32",
    ]  # fmt: skip
    # " ab" is in 3 of 5 names: ln(6 / 4) + 1; "ab " in 2: ln(6 / 3) + 1.
    assert norms[0] == pytest.approx(np.hypot(1.405465, 1.693147), rel=1e-5)
    assert norms[1] == 0


def test_no_names():
    assert [a.tolist() for a in ngrams.build_postings([])] == [[], [0], [], []]


def test_the_highest_of_many_are_those_of_all():
    values = np.arange(4000) * 7 % 4000  # each number once
    found = ngrams._highest(values, 10)
    assert sorted(values[found].tolist()) == list(range(3990, 4000))
    # Of every eighth value all are high, so that they say nothing of the others.
    values[::8] += 10_000
    assert sorted(values[ngrams._highest(values, 2)].tolist()) == [13984, 13992]
    assert ngrams._highest(np.ones(4000), 10).tolist() == list(range(4000))  # all are equal
