"""Choice among scored spans: word lists, short forms that the document defines, overlaps."""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any

from spacy.tokens import Doc

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import BLANK_LINE, normalize_names, on_one_line

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


def add_short_forms(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """The mentions, and all places of the short forms that the document defines for one of them,
    with its label and probability.

    A mention in the same place gives way to it; others that overlap the place do not.
    """
    forms = long_forms(doc)
    if not (forms and spans):
        return list(spans)
    meant = {on_one_line(doc[start:end].text): (label, p) for start, end, label, p in spans}
    found = ((short, meant.get(on_one_line(long))) for short, long in forms.items())
    defined = {short: label_p for short, label_p in found if label_p}
    chosen = list(spans)
    for short, places in find_short_forms(doc.text, defined).items():
        for place in places:
            if (span := doc.char_span(*place)) is None:
                continue
            near = [s for s in chosen if s[0] < span.end and span.start < s[1]]
            if all(s[:2] == (span.start, span.end) for s in near):
                chosen = [s for s in chosen if s not in near]
                chosen.append((span.start, span.end, *defined[short]))
    return sorted(chosen, key=lambda s: s[:3])


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
    words = normalize_names([doc[start:end].text for start, end, *_ in spans])
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


Step = Callable[[Sequence[ScoredSpan]], list[ScoredSpan]]
# Spans of at least this probability may become mentions by the words of the rest of the document.
DOUBTFUL = 0.05


@dataclass(frozen=True, slots=True)
class Considered:
    """Span that may have become a mention.

    start, end (int): Character offsets.
    label (str): The label that it would have had; "" where names are found with a knowledge base.
    probability (float): That it is a mention.
    is_mention (bool): Whether it became one.
    reason (str): Of that; "" for a mention that simply was likely enough.
    name (str): The name of the knowledge base that it is, or nearly is; "" by a trained detector.
    """

    start: int
    end: int
    text: str
    label: str
    probability: float
    is_mention: bool
    reason: str = ""
    name: str = ""


def choosing_steps(doc: Doc, cfg: Mapping[str, Any]) -> list[tuple[str, Step]]:
    """The steps by the settings of `bioel_mentions`, and the reason of the spans that each drops or
    adds."""
    threshold: float = cfg["threshold"]
    below = f"below the threshold of {threshold:g}"
    has_paragraphs = BLANK_LINE.search(doc.text) is not None
    steps: list[tuple[str, Step]] = [
        ("by the borders of markup", lambda spans: outside_markup(doc, spans)),
        (
            "a blank line in it",
            lambda spans: [
                s
                for s in spans
                if not (has_paragraphs and BLANK_LINE.search(doc[s[0] : s[1]].text))
            ],
        ),
        (
            "half of a pair of brackets",
            lambda spans: [s for s in spans if has_whole_brackets(doc[s[0] : s[1]].text)],
        ),
        (below, lambda spans: [s for s in spans if s[3] >= min(threshold, DOUBTFUL)]),
        ("", lambda spans: agree(doc, spans, weight=cfg["consistency"])),
        (below, lambda spans: [span for span in spans if span[3] >= threshold]),
    ]
    if cfg["always"] or cfg["never"]:
        steps.append(
            (
                "by the word lists `always` and `never`",
                lambda spans: apply_lists(doc, spans, always=cfg["always"], never=cfg["never"]),
            )
        )
    if not cfg["allow_overlap"]:
        steps.append(
            (
                "overlaps likelier mentions",
                lambda spans: drop_overlaps(spans, threshold=threshold),
            )
        )
    if cfg["abbreviations"]:
        steps.append(
            (
                "by a short form that the document defines",
                lambda spans: add_short_forms(doc, spans),
            )
        )
    return steps


def choose_mentions(
    doc: Doc, spans: Sequence[ScoredSpan], cfg: Mapping[str, Any]
) -> list[ScoredSpan]:
    """The mentions among the spans of a document."""
    chosen = list(spans)
    for _, step in choosing_steps(doc, cfg):
        chosen = step(chosen)
    return chosen


def consider_spans(
    doc: Doc, spans: Sequence[ScoredSpan], cfg: Mapping[str, Any]
) -> list[Considered]:
    """Every span with its fate, in the order of the text."""
    reasons: dict[tuple[int, int, str], str] = {}
    chosen, dropped = list(spans), []
    for reason, step in choosing_steps(doc, cfg):
        before, chosen = {span[:3]: span for span in chosen}, step(chosen)
        after = {span[:3] for span in chosen}
        dropped += [(span, reason) for place, span in before.items() if place not in after]
        reasons |= {place: reason for place in after - before.keys()}
    fates = [(span, True, reasons.get(span[:3], "")) for span in chosen]
    fates += [(span, False, reason) for span, reason in dropped]
    considered = []
    for (start, end, label, p), is_mention, reason in sorted(fates, key=lambda fate: fate[0][:3]):
        span = doc[start:end]
        considered.append(
            Considered(
                span.start_char, span.end_char, span.text, label, round(p, 4), is_mention, reason
            )
        )
    return considered
