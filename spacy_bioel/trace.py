"""The trace of a document: why spans became mentions, or did not, written while it is decided.

An explanation is read from the trace, so that it cannot differ from what was done. Whoever adds,
drops or widens spans says so here, if there is a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spacy.tokens import Doc

from spacy_bioel.types import ScoredSpan

Place = tuple[int, int, str]  # start token, end token, label


@dataclass(frozen=True, slots=True)
class Considered:
    """A span that might have become a mention, by character offsets.

    label (str): "" where names are found with a knowledge base.
    reason (str): "" for a mention that was simply likely enough.
    name (str): The name in the knowledge base that it matches; "" with a trained detector.
    """

    start: int
    end: int
    text: str
    label: str
    probability: float
    is_mention: bool
    reason: str = ""
    name: str = ""


class Trace:
    """What happened to the spans of one document.

    lowest (float): Least probability of the spans that a detector reports.
    """

    def __init__(self, doc: Doc, *, lowest: float = 0.0) -> None:
        self.doc, self.lowest = doc, lowest
        self._added: dict[Place, tuple[str, str]] = {}
        self._others: list[Considered] = []

    @property
    def n_said(self) -> int:
        """How many reasons were recorded."""
        return len(self._added) + len(self._others)

    def changed(self, before: Iterable[ScoredSpan], after: Iterable[ScoredSpan], why: str) -> None:
        """Record the spans that a step has dropped, and those that it has added."""
        spans, kept = {span[:3]: span for span in before}, {span[:3] for span in after}
        for place, span in spans.items():
            if place not in kept:
                self.drop(span, why)
        self._added |= dict.fromkeys(kept - spans.keys(), (why, ""))

    def add(self, place: Place, why: str, name: str = "") -> None:
        """Record why a span was added. name (str): That it has in the knowledge base."""
        self._added[place] = why, name

    def has_added(self, place: Place) -> bool:
        """Whether a step has added a span."""
        return place in self._added

    def drop(self, span: ScoredSpan, why: str, name: str = "") -> None:
        """Record why a span is not a mention."""
        self._others.append(self._considered(span, False, why, name))

    def record(self, considered: Iterable[Considered]) -> None:
        """Record spans whose fate is known already."""
        self._others += considered

    def considered(self, mentions: Iterable[ScoredSpan]) -> list[Considered]:
        """List what was considered, in the order of the text. mentions: Those of the end."""
        known = {(c.start, c.end, c.label) for c in self._others if c.is_mention}
        found = [
            self._considered(span, True, *self._added.get(span[:3], ("", ""))) for span in mentions
        ]
        new = [c for c in found if (c.start, c.end, c.label) not in known]
        return sorted(
            {*new, *self._others}, key=lambda c: (c.start, c.end, c.label, not c.is_mention, c.name)
        )

    def _considered(self, span: ScoredSpan, is_mention: bool, why: str, name: str) -> Considered:
        start, end, label, probability = span
        place = self.doc[start:end]
        chars = place.start_char, place.end_char, place.text
        return Considered(*chars, label, round(probability, 4), is_mention, why, name)
