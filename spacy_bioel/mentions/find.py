"""Find mentions: `find` runs a sequence of steps that change each document's spans.

`bioel_mentions` begins with the spans that its network has scored (`steps_of_detector`).
`bioel_names`, or a linker that adds names, begins with the mentions that the documents already
have (`steps_of_linker`).

A step may change each document's `FoundSpans`, which log what was dropped or added, and why. If
spans overlap:

* Words that the user includes replace the spans that they overlap; later steps may drop the words.
  Spans that are exactly an excluded word are dropped, even if the word is included as well.
* When rules add a span, they decide which spans it replaces. Rules may also drop spans.
* In the detector, unless `allow_overlap` is set, the spans with the greatest total weight are kept;
  spans from rules and included words compete as well.
* A short form may replace or drop spans with the same tokens, and is not added over other spans.
* An unambiguous name is not added over a longer mention, and replaces the mentions inside it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from math import log
from typing import Any

from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import UnambiguousNames, is_in_capitals
from spacy_bioel.doc import long_forms, text_of, texts_of
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.found import FoundSpans
from spacy_bioel.text.normalize import BLANK_LINE, has_whole_brackets, normalize_names, on_one_line
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import ScoredSpan

# Words for people, which BioRED annotates as organisms; used for the `label_people` setting.
PEOPLE = ("patient", "patients", "man", "men", "woman", "women")
# Minimum probability of scored spans; less probable spans are dropped before smoothing.
MIN_SCORED_PROBABILITY = 0.05
_BRACKETS = re.compile(r"[()\[\]]")
# Markup, and "Denies" at the start of sentences in clinical notes; training texts contain neither.
_NEVER_IN_MENTIONS = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>|\b[Dd]en(?:y|ies|ied|ying)\b")
# White space between the words of a name; may contain a line break but not a blank line.
_SPACE_IN_NAME = r"(?:[^\S\r\n]++(?:\r?\n[^\S\r\n]*+)?|\r?\n[^\S\r\n]*+)"
# Keep probabilities at least this far from 0 and 1, so that log-odds stay finite.
_MIN_DISTANCE_FROM_CERTAIN = 1e-7
# Weights are integer multiples of this unit, so that sums are exact and ties can be detected.
_WEIGHT_UNIT = 1e-9

Step = Callable[[Sequence[FoundSpans]], None]


def find(found: Sequence[FoundSpans], steps: Sequence[Step]) -> Sequence[FoundSpans]:
    """Run the steps on each document's spans, and return the changed spans.

    RAISES BioelError: [B497, B498] if rules fail.
    """
    for step in steps:
        step(found)
    return found


def steps_of_detector(settings: Mapping[str, Any], rules: RuleSet) -> list[Step]:
    """Return the steps that turn scored spans into mentions.

    settings (Mapping): The settings of `bioel_mentions`.
    """
    threshold: float = settings["threshold"]
    include, exclude = word_lists(settings)
    below = f"below the threshold of {threshold:g}"
    drop_excluded = _each(drop_words, "by the word list `exclude`", words=exclude)
    steps: list[Step] = [
        _each(trim_borders, "markup or a denial is not part of a mention"),
        _each(drop_several_paragraphs, "contains a blank line"),
        _each(drop_function_words, "a function word, in a text in capitals"),
        _each(drop_half_brackets, "contains an unmatched bracket"),
        _each(keep_probable, below, min_probability=min(threshold, MIN_SCORED_PROBABILITY)),
        _each(smooth_over_document, weight=settings["document_smoothing"]),
        _each(keep_probable, below, min_probability=threshold),
        drop_excluded,
        _each(add_words, "by the word list `include`", include=include),
        rules.propose,
        drop_excluded,
        _each(keep_probable, below, min_probability=threshold),
    ]
    if not settings["allow_overlap"]:
        steps.append(
            _each(
                drop_overlaps, "overlaps mentions with a greater total weight", threshold=threshold
            )
        )
    if settings["abbreviations"]:
        steps.append(_add_defined_forms)
    return steps


def steps_of_linker(names: UnambiguousNames, rules: RuleSet, *, abbreviations: bool) -> list[Step]:
    """Return the steps that add unambiguous names, short forms and spans from rules."""
    forms: list[Step] = [_add_defined_forms] if abbreviations else []
    return [names.propose, *forms, rules.propose]


def _each(change: Callable[..., list[ScoredSpan]], why: str = "", **arguments: Any) -> Step:
    """Build a step that changes each document's spans independently."""

    def step(found: Sequence[FoundSpans]) -> None:
        for of_doc in found:
            spans = of_doc.spans
            if (changed := change(of_doc.doc, spans, **arguments)) != spans:
                of_doc.become(changed, why)

    return step


def _add_defined_forms(found: Sequence[FoundSpans]) -> None:
    for of_doc in found:
        add_defined_forms(of_doc)


def keep_probable(
    doc: Doc, spans: Sequence[ScoredSpan], *, min_probability: float
) -> list[ScoredSpan]:
    return [span for span in spans if span[3] >= min_probability]


def drop_several_paragraphs(doc: Doc, spans: list[ScoredSpan]) -> list[ScoredSpan]:
    """Drop spans that contain a blank line."""
    is_in_paragraph = BLANK_LINE.search(text_of(doc)) is None
    return spans if is_in_paragraph else _keep_texts(doc, spans, lambda t: not BLANK_LINE.search(t))


def drop_function_words(doc: Doc, spans: list[ScoredSpan]) -> list[ScoredSpan]:
    """Drop function words if the whole text is in capitals: "WAS" is then not a gene."""
    if not is_in_capitals(text_of(doc)):
        return spans
    return _keep_texts(doc, spans, lambda text: text.lower() not in STOP_WORDS)


def drop_half_brackets(doc: Doc, spans: list[ScoredSpan]) -> list[ScoredSpan]:
    """Drop spans with an unmatched bracket."""
    has_brackets = _BRACKETS.search(text_of(doc))
    return _keep_texts(doc, spans, has_whole_brackets) if has_brackets else spans


def _keep_texts(
    doc: Doc, spans: Sequence[ScoredSpan], condition: Callable[[str], bool]
) -> list[ScoredSpan]:
    """Keep the spans whose text meets a condition."""
    pairs = zip(spans, texts_of(doc, spans), strict=True)
    return [span for span, text in pairs if condition(text)]


def smooth_over_document(
    doc: Doc, spans: Sequence[ScoredSpan], *, weight: float
) -> list[ScoredSpan]:
    """Move each span's probability towards the maximum for the same words with the same label.

    If a document clearly mentions a drug in one sentence, the same words in other sentences
    probably mean the drug too.

    weight (float): From 0 (no change) to 1 (all spans get the highest probability).
    """
    if not weight:
        return list(spans)
    words = normalize_names(texts_of(doc, spans))
    highest: dict[tuple[str, str], float] = {}
    for word, (*_, label, p) in zip(words, spans, strict=True):
        highest[word, label] = max(p, highest.get((word, label), 0.0))
    return [
        (start, end, label, p + weight * (highest[word, label] - p))
        for word, (start, end, label, p) in zip(words, spans, strict=True)
    ]


def trim_borders(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Trim tokens that are never part of a mention: "<b>melanoma</b>" becomes "melanoma", and
    "Denies fever" becomes "fever"."""
    trimmed: set[int] = set()
    for match in _NEVER_IN_MENTIONS.finditer(text_of(doc)):
        if (span := doc.char_span(*match.span(), alignment_mode="expand")) is not None:
            trimmed.update(range(span.start, span.end))
    if not trimmed:
        return list(spans)
    return [
        (tokens[0], tokens[-1] + 1, label, p)
        for start, end, label, p in spans
        if (tokens := [i for i in range(start, end) if i not in trimmed])
    ]


def drop_overlaps(
    doc: Doc, mentions: Sequence[ScoredSpan], *, threshold: float
) -> list[ScoredSpan]:
    """Choose the non-overlapping mentions with the greatest total weight.

    The weight of a mention is its log-odds minus the log-odds of the threshold. Two mentions can
    therefore win over a more probable mention that overlaps both, and a mention at the threshold
    adds nothing. The algorithm is exact weighted interval scheduling by dynamic programming,
    O(n log n).

    Among choices of equal weight, the one that covers more tokens wins, then the one that ends
    earlier, compared from the last mention back. For the same tokens, the first label wins.

    mentions (Sequence): Mentions at or above the threshold.
    RETURNS (list): The chosen mentions, in order of their start.
    """
    spans = sorted(mentions, key=lambda m: (m[1], m[0], m[2]))
    ends = [end for _, end, *_ in spans]
    threshold_log_odds = _log_odds(threshold)
    best = [(0, 0)]  # weight and token count of the best choice among the first 0, 1, ... spans
    n_spans_before = []  # how many spans end before each span starts; -1: the span is not chosen
    for start, end, _, p in spans:
        n_before = bisect_right(ends, start)
        weight, n_tokens = best[n_before]
        weight += round((_log_odds(p) - threshold_log_odds) / _WEIGHT_UNIT)
        with_span = weight, n_tokens + end - start
        n_spans_before.append(n_before if with_span > best[-1] else -1)
        best.append(max(with_span, best[-1]))
    chosen = []
    n = len(spans)
    while n:
        if n_spans_before[n - 1] < 0:
            n -= 1
        else:
            chosen.append(spans[n - 1])
            n = n_spans_before[n - 1]
    return chosen[::-1]


def _log_odds(p: float) -> float:
    p = min(max(p, _MIN_DISTANCE_FROM_CERTAIN), 1 - _MIN_DISTANCE_FROM_CERTAIN)
    return log(p) - log(1 - p)


def word_lists(cfg: Mapping[str, Any]) -> tuple[dict[str, Sequence[str]], frozenset[str]]:
    """Return the included words by label, and the excluded words lowercased, without line breaks.

    The `label_people` setting adds words for people to one of the two lists.
    """
    include, exclude, label_people = dict(cfg["include"]), cfg["exclude"], cfg.get("label_people")
    if label_people:
        include["Species"] = [*include.get("Species", ()), *PEOPLE]
    if label_people is False:
        exclude = [*exclude, *PEOPLE]
    return include, frozenset(on_one_line(words.lower()) for words in exclude)


def drop_words(doc: Doc, spans: list[ScoredSpan], *, words: Collection[str]) -> list[ScoredSpan]:
    """Drop spans (with any label) whose entire text is one of these words."""
    if not words:
        return spans
    return _keep_texts(doc, spans, lambda text: on_one_line(text.lower()) not in words)


def add_words(
    doc: Doc, spans: list[ScoredSpan], *, include: Mapping[str, Sequence[str]]
) -> list[ScoredSpan]:
    """Add spans for the included words, ignoring case, and drop the spans they overlap.

    include (Mapping): Words by label. The added spans have probability 1.
    """
    included = []
    for label, words in include.items():
        for match in _words_pattern(tuple(words)).finditer(text_of(doc)) if words else ():
            if (span := doc.char_span(*match.span())) is not None:
                included.append((span.start, span.end, label, 1.0))
    if not included:
        return spans
    covered = {token for start, end, *_ in included for token in range(start, end)}
    kept = [span for span in spans if covered.isdisjoint(range(*span[:2]))]
    return sorted([*kept, *included], key=lambda span: span[:3])


@cache
def _words_pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern for any of these words, allowing line breaks within multi-word terms."""
    longest_first = sorted(words, key=len, reverse=True)
    escaped = (map(re.escape, words.split()) for words in longest_first if words.strip())
    alternatives = "|".join(map(_SPACE_IN_NAME.join, escaped))
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


def add_defined_forms(found: FoundSpans) -> None:
    """Add every occurrence of a short form that the document defines for a mention, such as "AKI"
    in "acute kidney injury (AKI)", with the mention's label and probability.

    Mentions with the same tokens are replaced, or dropped if the document defines the short form
    as something that is not a mention. An occurrence that overlaps any other mention is not added,
    and neither is an excluded word.
    """
    doc, spans, why = found.doc, found.spans, "by a short form that the document defines"
    forms = long_forms(doc)
    if not (forms and spans):
        return
    texts = map(on_one_line, texts_of(doc, spans))
    mention_of_text = {text: span[2:] for text, span in zip(texts, spans, strict=True)}
    mention_of_pair = {pair: mention_of_text.get(on_one_line(pair[1])) for pair in forms.pairs()}
    short_forms = dict.fromkeys(short for (short, _), m in mention_of_pair.items() if m)
    for short, char_spans in find_forms(text_of(doc), short_forms).items():
        if on_one_line(short.lower()) in found.excluded:
            continue
        for char_span in char_spans:
            if (span := doc.char_span(*char_span)) is None:
                continue
            near = found.overlapping(span.start, span.end)
            if all(s[:2] == (span.start, span.end) for s in near):
                if mention := mention_of_pair[short, forms.at(char_span[0], short) or ""]:
                    found.add((span.start, span.end, *mention), why, instead_of=near)
                else:
                    found.drop(near, "a short form of something that is not a mention")
