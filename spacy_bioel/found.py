"""The spans found in a document so far, and the reason for each change to them.

All sources of mentions (detectors, entity rules and dictionaries) update a `FoundSpans`, and its
log is used for explanations.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_bioel.types import ScoredSpan, SpanKey


class SpanChange(NamedTuple):
    """A change to a document's spans: the spans before, the spans after, and the reason.

    name (str): The knowledge base name that the span matches or stands for; or "".
    """

    before: Sequence[ScoredSpan]
    after: Sequence[ScoredSpan]
    why: str
    name: str = ""


class InvalidSpan(ValueError):
    """Raised for a value that is not a span in its document; args: the value and token count."""


class FoundSpans:
    """The spans in a document that may become mentions.

    spans (list[ScoredSpan]): The spans, in text order. A change replaces this list. If several
        spans have the same tokens and label, only the most probable one is kept.
    names (dict[SpanKey, str]): For spans that stand for a name ("HTN"), the name to look up.
    meant (dict[SpanKey, float]): For spans that match a dictionary name, the probability that the
        name is meant.
    has_unambiguous (bool): Whether unambiguous names have been looked for.
    excluded (Collection[str]): Words that are not mentions, in lower case and without line breaks.
    why (str): The default reason for a change.
    n_changes (int): Number of changes in the log, excluding rejections.
    log (list): Changes and rejections in order, or functions that return them when called.
    """

    def __init__(
        self, doc: Doc, spans: Iterable[ScoredSpan] = (), *, excluded: Collection[str] = ()
    ) -> None:
        self.doc, self.excluded = doc, excluded
        self.spans = _likeliest(spans)
        self.names: dict[SpanKey, str] = {}
        self.meant: dict[SpanKey, float] = {}
        self.has_unambiguous = False
        self.why, self.n_changes = "", 0
        self.log: list[SpanChange | Callable[[], Iterable[SpanChange]]] = []
        self._longest = max((end - start for start, end, *_ in self.spans), default=0)

    def to_spans(self) -> list[Span]:
        return [Span(self.doc, *span[:3]) for span in self.spans]

    def overlapping(self, start: int, end: int) -> list[ScoredSpan]:
        """Return the spans that overlap tokens [start, end)."""
        first = bisect_left(self.spans, (start - self._longest, 0, "", 0.0))
        last = bisect_left(self.spans, (end, 0, "", 0.0))
        return [span for span in self.spans[first:last] if span[1] > start]

    def add(
        self,
        span: ScoredSpan,
        why: str = "",
        *,
        name: str = "",
        stands_for: str = "",
        instead_of: Iterable[ScoredSpan] = (),
    ) -> None:
        """Add a span, and drop the spans that it replaces.

        name (str): The knowledge base name that the span matches, for explanations.
        stands_for (str): The name to look up instead of the span's text.
        instead_of (Iterable[ScoredSpan]): Spans to drop, often `overlapping(start, end)`.
        RAISES InvalidSpan: If the span does not have four values, or lies outside the document.
        """
        if not _is_scored_span(span, len(self.doc)):
            raise InvalidSpan(span, len(self.doc))
        dropped, key = self._remove(instead_of), span[:3]
        same = bisect_left(self.spans, (*key, 0.0))
        if self.spans[same : same + 1] and self.spans[same][:3] == key:
            span = max(span, self.spans.pop(same))
        insort(self.spans, span)
        self._longest = max(self._longest, span[1] - span[0])
        if stands_for:
            self.names[key] = stands_for
        self._record(SpanChange(dropped, (span,), why or self.why, name or stands_for))

    def add_places(
        self,
        places: Iterable[tuple[int, int]],
        label: str,
        *,
        probability: float = 0.99,
        why: str = "",
    ) -> None:
        """Add spans at character offsets, replacing spans that overlap them.

        If several places overlap, only the longest is used, widened to whole tokens. No span is
        added over spans with another label and a probability of 1, which were set by the user or
        are unambiguous names.

        places (Iterable): Start and end of each mention, in characters.
        """
        spans = (self.doc.char_span(*p, label, alignment_mode="expand") for p in places)
        for span in filter_spans(filter(None, spans)):
            near = self.overlapping(span.start, span.end)
            if not any(s[3] == 1 and s[2] != label for s in near):
                self.add((span.start, span.end, label, probability), why, instead_of=near)

    def drop(self, spans: Iterable[ScoredSpan], why: str = "") -> None:
        """Drop spans regardless of their probability, ignoring any that are not in `self.spans`."""
        if dropped := self._remove(spans):
            self._record(SpanChange(dropped, (), why or self.why))

    def become(self, spans: Iterable[ScoredSpan], why: str = "") -> None:
        """Replace all spans, and log why."""
        before, self.spans = self.spans, _likeliest(spans)
        self._longest = max((end - start for start, end, *_ in self.spans), default=0)
        kept = {span[:3] for span in self.spans} if self.names or self.meant else ()
        self.names = {key: name for key, name in self.names.items() if key in kept}
        self.meant = {key: p for key, p in self.meant.items() if key in kept}
        self._record(SpanChange(before, self.spans, why or self.why))

    def reject(self, span: ScoredSpan, why: str, name: str = "") -> None:
        """Log why a span was not added."""
        self.log.append(SpanChange((span,), (), why, name))

    def _record(self, change: SpanChange) -> None:
        self.n_changes += 1
        self.log.append(change)

    def _remove(self, spans: Iterable[ScoredSpan]) -> list[ScoredSpan]:
        """Replace `self.spans` with a copy without these spans, and return the removed spans."""
        self.spans, removed = self.spans.copy(), []
        for span in spans:
            key: SpanKey = span[:3]
            place = bisect_left(self.spans, (*key, 0.0))
            if self.spans[place : place + 1] and self.spans[place][:3] == key:
                removed.append(self.spans.pop(place))
                self.names.pop(key, None)
                self.meant.pop(key, None)
        return removed


def _likeliest(spans: Iterable[ScoredSpan]) -> list[ScoredSpan]:
    """Sort spans; if several have the same tokens and label, keep only the most probable."""
    return sorted({span[:3]: span for span in sorted(spans)}.values())


def _is_scored_span(span: object, n_tokens: int) -> bool:
    match span:
        case (int(start), int(end), str(), float() | int() as probability):
            return 0 <= start < end <= n_tokens and 0 <= probability <= 1
    return False
