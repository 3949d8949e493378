"""From spans with probabilities to the mentions of a document, step by step, each with a reason."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from math import log
from typing import Any

from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import is_in_capitals
from spacy_bioel.doc import likeliest, long_forms, text_of, texts_of
from spacy_bioel.entities import RuleSet
from spacy_bioel.explanation import Trace
from spacy_bioel.text.normalize import BLANK_LINE, has_whole_brackets, normalize_names, on_one_line
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import ScoredSpan

Step = Callable[[Sequence[ScoredSpan]], list[ScoredSpan]]


# Spans of at least this probability may become mentions by the words of the rest of the document.
DOUBTFUL = 0.05
# Tags, and "Denies" at the start of a sentence of a note, which no training text has.
_NO_PART = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>|\b[Dd]en(?:y|ies|ied|ying)\b")
_BRACKET = re.compile(r"[()\[\]]")
# Probabilities are kept this far from 0 and 1, where log-odds are infinite.
_CLIP = 1e-7
# Weights are whole numbers of this unit: their sums are exact, so that equal choices are equal.
_UNIT = 1e-9


# What BioRED marks as organisms, of all words for people; for the setting `label_people`.
PEOPLE = ("patient", "patients", "man", "men", "woman", "women")
# White space between words, without a blank line.
_SPACE = r"(?:[^\S\r\n]++(?:\r?\n[^\S\r\n]*+)?|\r?\n[^\S\r\n]*+)"


def select_mentions(
    docs: Sequence[Doc],
    spans: Sequence[Sequence[ScoredSpan]],
    cfg: Mapping[str, Any],
    rules: RuleSet | None = None,
    traces: Sequence[Trace] | None = None,
) -> list[list[ScoredSpan]]:
    """Choose the mentions of each document among its scored spans.

    Words that users include or exclude come before the rules for kinds of text, and those that they
    exclude once more behind them.
    """
    chosen = [
        _take_steps(spans[i], _first_steps(doc, cfg), traces[i] if traces else None)
        for i, doc in enumerate(docs)
    ]
    if rules is not None:
        chosen = rules.find(docs, chosen, traces)
    return [
        _take_steps(chosen[i], _last_steps(doc, cfg), traces[i] if traces else None)
        for i, doc in enumerate(docs)
    ]


def _take_steps(
    spans: Sequence[ScoredSpan], steps: Iterable[tuple[str, Step]], trace: Trace | None
) -> list[ScoredSpan]:
    """Take one step after the other, each with the reason of the spans that it drops or adds."""
    chosen = list(spans)
    for reason, step in steps:
        before, chosen = chosen, step(chosen)
        if trace is not None:
            trace.changed(before, chosen, reason)
    return chosen


def _keep_likely(least: float) -> Step:
    return lambda spans: [span for span in spans if span[3] >= least]


def _keep_texts(doc: Doc, condition: Callable[[str], bool]) -> Step:
    """Keep the spans whose text meets a condition."""

    def keep(spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
        pairs = zip(spans, texts_of(doc, spans), strict=True)
        return [span for span, text in pairs if condition(text)]

    return keep


def _first_steps(doc: Doc, cfg: Mapping[str, Any]) -> list[tuple[str, Step]]:
    """List the steps from all spans to those that are likely."""
    threshold: float = cfg["threshold"]
    below, whole = f"below the threshold of {threshold:g}", text_of(doc)

    steps: list[tuple[str, Step]] = [
        ("by the borders of markup or a denial", partial(trim_borders, doc))
    ]
    if BLANK_LINE.search(whole):
        steps.append(
            ("a blank line in it", _keep_texts(doc, lambda text: not BLANK_LINE.search(text)))
        )
    if is_in_capitals(whole):
        is_word = "a function word, in a text in capitals"
        steps.append((is_word, _keep_texts(doc, lambda text: text.lower() not in STOP_WORDS)))
    steps += [
        ("half of a pair of brackets", _keep_texts(doc, _has_whole_brackets)),
        (below, _keep_likely(min(threshold, DOUBTFUL))),
        ("", partial(agree, doc, weight=cfg["document_smoothing"])),
        (below, _keep_likely(threshold)),
    ]
    include, exclude = word_lists(cfg)
    if include or exclude:
        lists = partial(apply_lists, doc, include=include, exclude=exclude)
        steps.append(("by the word lists `include` and `exclude`", lists))
    return steps


def _last_steps(doc: Doc, cfg: Mapping[str, Any]) -> list[tuple[str, Step]]:
    """List the steps from likely spans, and those of rules, to the mentions."""
    threshold, steps = cfg["threshold"], list[tuple[str, Step]]()
    if exclude := word_lists(cfg)[1]:
        lists = partial(apply_lists, doc, include={}, exclude=exclude)
        steps.append(("by the word lists `include` and `exclude`", lists))
    if not cfg["allow_overlap"]:
        steps.append(("overlaps likelier mentions", partial(drop_overlaps, threshold=threshold)))
    if cfg["abbreviations"]:
        defined_forms = partial(add_defined_forms, doc)
        steps.append(("by a short form that the document defines", defined_forms))
    return steps


def _has_whole_brackets(text: str) -> bool:
    return not _BRACKET.search(text) or has_whole_brackets(text)


def agree(doc: Doc, spans: Sequence[ScoredSpan], *, weight: float) -> list[ScoredSpan]:
    """Move each span's probability towards the highest of the same words in the document, by the
    weight: a document that clearly names a drug in one sentence names it in the others too.
    """
    if not weight:
        return list(spans)
    words = normalize_names(texts_of(doc, spans))
    pairs = list(zip(words, spans, strict=True))
    highest: dict[tuple[str, str], float] = {}
    for word, (*_, label, p) in pairs:
        highest[word, label] = max(p, highest.get((word, label), 0.0))
    return [
        (start, end, x, p + weight * (highest[word, x] - p)) for word, (start, end, x, p) in pairs
    ]


def trim_borders(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Trim from the borders of spans what is in no name: "melanoma" of "<b>melanoma</b>", and
    "fever" of "Denies fever"."""
    found = [
        doc.char_span(*m.span(), alignment_mode="expand") for m in _NO_PART.finditer(text_of(doc))
    ]
    dropped = {token.i for span in found if span is not None for token in span}
    if not dropped:
        return list(spans)
    kept = [([i for i in range(*s[:2]) if i not in dropped], *s[2:]) for s in spans]
    return likeliest([(own[0], own[-1] + 1, label, p) for own, label, p in kept if own])


def drop_overlaps(mentions: Sequence[ScoredSpan], *, threshold: float) -> list[ScoredSpan]:
    """Choose the mentions without overlaps whose weights have the greatest sum.

    The weight of a mention is the excess of its log-odds over those of the threshold, so that two
    likely mentions may win over a likelier one that overlaps both, and one at the threshold adds
    nothing. Exact weighted interval scheduling by dynamic programming, O(n log n).

    Of choices of equal weight, the one that covers more tokens; of these, the one that ends
    earlier, compared from the last mention back; for the same tokens, the first label.

    mentions (Sequence): All at or above the threshold.
    RETURNS (list): In order of their start.
    """
    spans = sorted(mentions, key=lambda m: (m[1], m[0], m[2]))
    ends = [end for _, end, *_ in spans]
    floor = _log_odds(threshold)
    best = [(0, 0)]  # weight and tokens of the best choice among the first 0, 1, ... spans
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


def word_lists(cfg: Mapping[str, Any]) -> tuple[dict[str, Sequence[str]], Sequence[str]]:
    """Words that are always mentions, by label, and those that never are."""
    include, exclude, label_people = dict(cfg["include"]), cfg["exclude"], cfg.get("label_people")
    if label_people:
        include["Species"] = [*include.get("Species", ()), *PEOPLE]
    return include, [*exclude, *PEOPLE] if label_people is False else exclude


def apply_lists(
    doc: Doc,
    spans: Sequence[ScoredSpan],
    *,
    include: Mapping[str, Sequence[str]],
    exclude: Sequence[str],
) -> list[ScoredSpan]:
    """Drop excluded mentions and add forced ones. Case is ignored.

    include (Mapping): Label -> words. Their probability is 1, and no other span overlaps them.
    exclude (Sequence[str]): Words that are not a mention of any label.
    """
    excluded = {on_one_line(words.lower()) for words in exclude}
    found = [
        (span.start, span.end, label, 1.0)
        for label, words in include.items()
        if words
        for match in _pattern(tuple(words)).finditer(text_of(doc))
        if (span := doc.char_span(*match.span())) is not None
    ]
    taken = {token for start, end, *_ in found for token in range(start, end)}
    kept = [
        span
        for span, text in zip(spans, texts_of(doc, spans) if excluded else repeat(""), strict=False)
        if not (excluded and on_one_line(text.lower()) in excluded)
        and taken.isdisjoint(range(*span[:2]))
    ]
    return sorted([*kept, *found], key=lambda span: span[:3]) if found else kept


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    split = (map(re.escape, words.split()) for words in longest_first if words.strip())
    any_of = "|".join(map(_SPACE.join, split))
    return re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)


def add_defined_forms(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Add every occurrence of the short forms that the document defines for a mention, with the
    label and probability of the mention: "acute kidney injury (AKI)".

    A mention in the same place is replaced; one that overlaps the place in part stays, alone.
    """
    forms = long_forms(doc)
    if not (forms and spans):
        return list(spans)
    texts = map(on_one_line, texts_of(doc, spans))
    meant = {text: span[2:] for text, span in zip(texts, spans, strict=True)}
    found = ((short, meant.get(on_one_line(long))) for short, long in forms.items())
    defined = {short: label_p for short, label_p in found if label_p}
    chosen = list(spans)
    for short, places in find_forms(text_of(doc), defined).items():
        for place in places:
            if (span := doc.char_span(*place)) is None:
                continue
            near = [s for s in chosen if s[0] < span.end and span.start < s[1]]
            if all(s[:2] == (span.start, span.end) for s in near):
                chosen = [s for s in chosen if s not in near]
                chosen.append((span.start, span.end, *defined[short]))
    return sorted(chosen, key=lambda s: s[:3])
