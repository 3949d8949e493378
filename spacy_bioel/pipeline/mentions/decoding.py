"""From spans with probabilities to mentions: what a document agrees on, and what may overlap."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from math import log

from spacy.tokens import Doc

from spacy_bioel.text.normalize import normalize_name

# Start token, end token (exclusive), label, probability.
ScoredSpan = tuple[int, int, str, float]

_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
# Probabilities are kept this far from 0 and 1, where log-odds are infinite.
_CLIP = 1e-7
# Weights are whole numbers of this unit: their sums are exact, so that equal choices are equal.
_UNIT = 1e-9


def agree(doc: Doc, spans: Sequence[ScoredSpan], *, weight: float) -> list[ScoredSpan]:
    """Move each span's probability towards the highest of the same words in the document.

    A document that clearly names a drug in one sentence names it in the others too.

    weight (float): 0: not at all; 1: all the way.
    """
    if not weight:
        return list(spans)
    words = [normalize_name(doc[start:end].text) for start, end, *_ in spans]
    highest: dict[tuple[str, str], float] = {}
    for key, (_, _, label, p) in zip(words, spans, strict=True):
        highest[key, label] = max(p, highest.get((key, label), 0.0))
    return [
        (start, end, label, p + weight * (highest[key, label] - p))
        for key, (start, end, label, p) in zip(words, spans, strict=True)
    ]


def outside_markup(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Spans without the tokens of tags at their borders: "melanoma" of "<b>melanoma</b>"."""
    if "<" not in doc.text:
        return list(spans)
    tags = (doc.char_span(*m.span(), alignment_mode="expand") for m in _TAG.finditer(doc.text))
    of_tags = {token.i for tag in tags if tag is not None for token in tag}
    kept: dict[tuple[int, int, str], float] = {}
    for start, end, label, p in spans:
        own = [i for i in range(start, end) if i not in of_tags]
        if own:
            place = (own[0], own[-1] + 1, label)
            kept[place] = max(p, kept.get(place, 0.0))
    return [(*place, p) for place, p in kept.items()]


def has_whole_brackets(text: str) -> bool:
    """Whether each bracket has its other half in the text, unlike that of "IGF-I) receptor"."""
    return all(_is_whole(text, *pair) for pair in ("()", "[]"))


def _is_whole(text: str, opening: str, closing: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == opening) - (character == closing)
        if depth < 0:
            return False
    return depth == 0


def drop_overlaps(mentions: Sequence[ScoredSpan], *, threshold: float) -> list[ScoredSpan]:
    """The choice of mentions that do not overlap whose weights have the greatest sum.

    The weight of a mention is what its log-odds exceed those of the threshold by, so that two
    likely mentions may win over a likelier one that overlaps both, and one at the threshold adds
    nothing. Weighted interval scheduling by dynamic programming, O(n log n); exact.

    Of choices of equal weight, the one that covers more tokens; of these, the one that ends
    earlier, compared from the last mention back; for the same tokens, the first label.

    mentions (Sequence): All at or above the threshold; others are not chosen.
    threshold (float): Probability from which on a span is a mention.
    RETURNS (list): In order of their start.
    """
    spans = sorted(mentions, key=lambda m: (m[1], m[0], m[2]))
    ends = [end for _, end, *_ in spans]
    floor = _log_odds(threshold)
    best = [(0, 0)]  # weight and tokens of the best choice among the first 0, 1, 2, ... spans
    before = []  # of each span, how many others end before it starts; -1: it is not chosen
    for start, end, _, p in spans:
        n_before = bisect_right(ends, start)
        weight, tokens = best[n_before]
        with_it = (weight + round((_log_odds(p) - floor) / _UNIT), tokens + end - start)
        before.append(n_before if with_it > best[-1] else -1)
        best.append(max(with_it, best[-1]))
    chosen = []
    n = len(spans)
    while n:
        if before[n - 1] >= 0:
            chosen.append(spans[n - 1])
        n = before[n - 1] if before[n - 1] >= 0 else n - 1
    return chosen[::-1]


def _log_odds(p: float) -> float:
    p = min(max(p, _CLIP), 1 - _CLIP)
    return log(p) - log(1 - p)
