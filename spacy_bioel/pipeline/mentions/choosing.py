"""From spans with probabilities to the mentions of a document, step by step, each with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spacy.tokens import Doc

from spacy_bioel.pipeline.mentions.decoding import (
    ScoredSpan,
    agree,
    drop_overlaps,
    has_whole_brackets,
    outside_markup,
)
from spacy_bioel.pipeline.mentions.defined import add_short_forms
from spacy_bioel.pipeline.mentions.lists import apply_lists
from spacy_bioel.text.normalize import BLANK_LINE

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
