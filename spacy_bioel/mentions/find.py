"""How a text becomes spans: `find` runs steps, each from the spans of documents to other spans.

Two pipes find mentions. `bioel_mentions` begins with the spans that its network has scored
(`steps_of_detector`), and `bioel_linker`, if it adds names, with the mentions that documents have
then (`steps_of_linker`).

A step changes each `FoundSpans`, which logs what was dropped or added, and why. If spans overlap:

* Words that the user includes drop whatever they overlap, and no step adds spans over them.
* Rules decide for each span that they add which others it replaces.
* Of the detector's spans, those with the greatest total weight remain (`drop_overlaps`).
* Short forms replace only spans of the same words.
* Unambiguous names are not added over longer mentions, and replace mentions that are part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spacy_bioel.dictionary.unambiguous import UnambiguousNames
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.found import FoundSpans
from spacy_bioel.mentions.selection import (
    MIN_SCORED_PROBABILITY,
    add_defined_forms,
    apply_lists,
    drop_function_words,
    drop_half_brackets,
    drop_overlaps,
    drop_several_paragraphs,
    keep_probable,
    smooth_over_document,
    trim_borders,
    word_lists,
)
from spacy_bioel.types import ScoredSpan

Step = Callable[[Sequence[FoundSpans]], None]


def find(found: Iterable[FoundSpans], steps: Iterable[Step]) -> list[FoundSpans]:
    """Run steps on the spans of documents, and return them.

    RAISES BioelError: [B497, B498] if rules fail.
    """
    found = list(found)
    for step in steps:
        step(found)
    return found


def steps_of_detector(settings: Mapping[str, Any], rules: RuleSet) -> list[Step]:
    """Return the steps from all spans with a score to mentions.

    settings (Mapping): The settings of `bioel_mentions`.
    """
    threshold: float = settings["threshold"]
    include, exclude = word_lists(settings)
    below, listed = (
        f"below the threshold of {threshold:g}",
        "by the word lists `include` and `exclude`",
    )
    steps: list[Step] = [
        _each(trim_borders, "trimmed by markup or a denial"),
        _each(drop_several_paragraphs, "contains a blank line"),
        _each(drop_function_words, "a function word, in a text in capitals"),
        _each(drop_half_brackets, "contains half of a pair of brackets"),
        _each(keep_probable, below, min_probability=min(threshold, MIN_SCORED_PROBABILITY)),
        _each(smooth_over_document, weight=settings["document_smoothing"]),
        _each(keep_probable, below, min_probability=threshold),
        _each(apply_lists, listed, include=include, exclude=exclude),
        rules.propose,
        _each(apply_lists, listed, include={}, exclude=exclude),
    ]
    if not settings["allow_overlap"]:
        steps.append(_each(drop_overlaps, "overlaps likelier mentions", threshold=threshold))
    if settings["abbreviations"]:
        steps.append(_add_defined_forms)
    return steps


def steps_of_linker(names: UnambiguousNames, rules: RuleSet, *, abbreviations: bool) -> list[Step]:
    """Return the steps from mentions to those with unambiguous names and with spans from rules."""
    forms: list[Step] = [_add_defined_forms] if abbreviations else []
    return [names.propose, *forms, rules.propose]


def _each(change: Callable[..., list[ScoredSpan]], why: str = "", **arguments: Any) -> Step:
    """Return a step that changes the spans of each document alone."""

    def step(found: Sequence[FoundSpans]) -> None:
        for of_doc in found:
            spans = list(of_doc)
            if (changed := change(of_doc.doc, spans, **arguments)) != spans:
                of_doc.become(changed, why)

    return step


def _add_defined_forms(found: Sequence[FoundSpans]) -> None:
    for of_doc in found:
        add_defined_forms(of_doc)
