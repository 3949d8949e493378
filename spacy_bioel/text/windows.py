"""Long texts as overlapping windows, for networks that read a limited number of pieces at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# How good a place is to cut before a piece.
INSIDE, TOKEN, SENTENCE = 0, 1, 2


class Window(NamedTuple):
    """Pieces [start, end) are read; of these the vectors of [first, last) are used."""

    start: int
    end: int
    first: int
    last: int


def split_windows(borders: Sequence[int], *, size: int, overlap: int) -> list[Window]:
    """Windows of at most `size` pieces that together use every piece once.

    A window ends at the last sentence border of its second half, else at the last border of a
    token, else where it is full. The next one goes back by up to `overlap` pieces, so that all
    pieces have context on both sides: in the overlap, each window is used for the half that is
    farther from its own end.

    borders (Sequence[int]): INSIDE, TOKEN or SENTENCE for each piece: what a cut before it cuts.
    size (int): At least 2.
    overlap (int): At most half of `size`.
    """
    windows: list[Window] = []
    n, start, first = len(borders), 0, 0
    while start + size < n:
        end = _best_cut(borders, start + size // 2 + 1, start + size, latest=True)
        after = _best_cut(borders, end - overlap, end - overlap // 2, latest=False)
        middle = (after + end) // 2
        windows.append(Window(start, end, first, middle))
        start, first = after, middle
    return [*windows, Window(start, n, first, n)] if n else []


def _best_cut(borders: Sequence[int], low: int, high: int, *, latest: bool) -> int:
    """Of the places from `low` to `high`, the latest or earliest of those that cut the least."""
    places = range(high, low - 1, -1) if latest else range(low, high + 1)
    return max(places, key=lambda i: borders[i])
