"""Windows: literal cuts of small texts, and properties of all cuts."""

import random
from itertools import pairwise

import pytest
from tables import cases

from spacy_bioel.plugins.contextual.document_transformer import (
    INSIDE,
    SENTENCE,
    TOKEN,
    Window,
    split_windows,
)
from spacy_bioel.text.sentences import begins_sentence

KINDS = {"s": SENTENCE, "t": TOKEN, "i": INSIDE}


def split(borders: str, *, size: int, overlap: int) -> list[Window]:
    return split_windows([KINDS[kind] for kind in borders], size=size, overlap=overlap)


@pytest.mark.parametrize(("borders", "size", "overlap", "expected"), cases(__file__, "cuts"))
def test_cuts(borders, size, overlap, expected):
    assert split(borders, size=size, overlap=overlap) == [*expected]


@pytest.mark.parametrize(("size", "overlap"), [(2, 0), (2, 1), (6, 2), (30, 8), (510, 128)])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 31, 100, 5000])
def test_every_piece_is_used_once_and_has_context(n, size, overlap):
    borders = random.Random(n).choices([INSIDE, TOKEN, SENTENCE], weights=[8, 4, 1], k=n)
    windows = split_windows(borders, size=size, overlap=overlap)
    used = [piece for _, _, first, last in windows for piece in range(first, last)]
    assert used == list(range(n))
    assert all(0 < end - start <= size for start, end, *_ in windows)
    assert all(start <= first < last <= end for start, end, first, last in windows)
    assert windows[0].start == 0 and windows[-1].end == n
    for one, other in pairwise(windows):
        assert overlap // 2 <= one.end - other.start <= overlap
        # A border has half of what they share on either side.
        assert one.end - one.last >= overlap // 4
        assert other.first - other.start >= overlap // 4
        assert other.start > one.start
    assert all(end - start > size // 2 for start, end, *_ in windows[:-1])


def test_sentences_begin_after_full_stops_and_line_breaks():
    tokens = ["aspirin", "helps", ".", " ", "AKI", "is", "rare", "!", "he", "\n", "Gout", "E.", "C"]
    begins = begins_sentence(tokens)
    assert [t for t, b in zip(tokens, begins, strict=True) if b] == ["aspirin", " ", "AKI", "Gout"]
    assert begins_sentence([]) == []
