"""Overlapping windows over long texts, for networks with a maximum number of word pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Borders before a piece; higher ones are better to cut at.
INSIDE, TOKEN, SENTENCE = 0, 1, 2


class Window(NamedTuple):
    """Window over pieces: the network reads [start, end), the vectors of [first, last) are used."""

    start: int
    end: int
    first: int
    last: int


def split_windows(borders: Sequence[int], *, size: int, overlap: int) -> list[Window]:
    """Split pieces into windows of at most `size` pieces that together use every piece once.

    A window ends at the last sentence border of its second half, else at the last token border,
    else where it is full. The next window starts up to `overlap` pieces earlier, so that all pieces
    have text on both sides. In the overlap, each window is used for the half that is farther from
    its border.

    borders (Sequence[int]): Border before each piece: INSIDE, TOKEN or SENTENCE.
    size (int): Maximum number of pieces, at least 2.
    overlap (int): Maximum number of pieces in common, at most half of `size`.
    RETURNS (list[Window]): Windows from left to right; none without pieces.
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
    """Latest or earliest of the best borders from `low` to `high`."""
    places = range(high, low - 1, -1) if latest else range(low, high + 1)
    return max(places, key=lambda i: borders[i])


def begins_sentence(tokens: Sequence[str]) -> list[bool]:
    """Whether a sentence begins with a token, the first included.

    One begins after a full stop, an exclamation or question mark, or a line break, unless with a
    small letter.
    """
    begins: list[bool] = []
    has_ended = False
    for text in tokens:
        begins.append(not begins or (has_ended and not text[0].islower()))
        ends = text in (".", "!", "?") or "\n" in text
        has_ended = ends or (has_ended and text.isspace())
    return begins
