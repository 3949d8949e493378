"""Beginnings of sentences, by punctuation: good enough to cut a long text at."""

from __future__ import annotations

from collections.abc import Sequence


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
