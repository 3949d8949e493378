"""Words that a user says are mentions, and words that are none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from spacy.tokens import Doc

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.pipeline.mentions.decoding import ScoredSpan
from spacy_bioel.text.normalize import on_one_line

# White space between words, without a blank line.
_SPACE = r"(?:[^\S\r\n]++(?:\r?\n[^\S\r\n]*+)?|\r?\n[^\S\r\n]*+)"


def check_lists(always: Any, never: Any) -> None:
    """RAISES BioelError: [B336] when these are no values of the settings."""
    labelled = isinstance(always, dict) and all(isinstance(label, str) for label in always)
    lists = [*always.values(), never] if labelled else [None]
    for words in lists:
        if not isinstance(words, list | tuple) or not all(isinstance(w, str) and w for w in words):
            raise BioelError(Errors.B336.format(always=always, never=never))


def check_labels(always: Mapping[str, object], labels: Sequence[str]) -> None:
    """Warn [W322] of word lists for labels that a model has not learned."""
    if unknown := sorted(set(always) - set(labels)):
        message = Warnings.W322.format(unknown=unknown, known=", ".join(labels))
        warnings.warn(message, stacklevel=2)


def apply_lists(
    doc: Doc,
    spans: Sequence[ScoredSpan],
    *,
    always: Mapping[str, Sequence[str]],
    never: Sequence[str],
) -> list[ScoredSpan]:
    """Spans without those that are never mentions, and with those that always are.

    always (Mapping): Label -> words; case does not count. Their probability is 1, and no other
        span overlaps them.
    never (Sequence[str]): Words that are no mention, of whatever label; case does not count.
    """
    excluded = {on_one_line(words.lower()) for words in never}
    found = [
        (span.start, span.end, label, 1.0)
        for label, words in always.items()
        if words
        for match in _pattern(tuple(words)).finditer(doc.text)
        if (span := doc.char_span(*match.span())) is not None
    ]
    taken = {token for start, end, *_ in found for token in range(start, end)}
    kept = [
        (start, end, label, p)
        for start, end, label, p in spans
        if not (excluded and on_one_line(doc[start:end].text.lower()) in excluded)
        and taken.isdisjoint(range(start, end))
    ]
    return sorted([*kept, *found], key=lambda span: span[:3]) if found else kept


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    split = (map(re.escape, words.split()) for words in longest_first if words.strip())
    any_of = "|".join(map(_SPACE.join, split))
    return re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)
