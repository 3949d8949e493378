"""The spans found in a document so far, and why each change to them was made.

Whatever finds mentions, such as a detector, entity rules or a dictionary, changes a `FoundSpans`.
Explanations show its log, so that they always agree with decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from spacy.tokens import Doc
from spacy.util import filter_spans

from spacy_bioel.types import ScoredSpan, SpanKey


class SpanChange(NamedTuple):
    """Spans before and after a step, and why it dropped or added some.

    name (str): The knowledge base name that matches the span, or that it stands for; or "".
    """

    before: Sequence[ScoredSpan]
    after: Sequence[ScoredSpan]
    why: str
    name: str = ""


class InvalidSpan(ValueError):
    """A span that is not one, or that is not within its document."""

    def __init__(self, span: object, n_tokens: int) -> None:
        super().__init__(f"{span!r} in a document of {n_tokens} tokens")
        self.span, self.n_tokens = span, n_tokens


class FoundSpans:
    """The spans in a document that may become mentions.

    Iterating yields (start token, end token, label, probability) in the order of the text. Of spans
    with the same tokens and label, the most probable is kept.

    names (dict[SpanKey, str]): For spans that stand for a name ("HTN"), the name to look up.
    excluded (Collection[str]): Lower-case words that are not mentions.
    why (str): The reason for changes without one.
    n_changes (int): How often spans have been dropped or added.
    log (list): What was changed, in order; functions return changes that only explanations need.
    """

    def __init__(
        self,
        doc: Doc,
        spans: Iterable[ScoredSpan] = (),
        *,
        excluded: Collection[str] = (),
    ) -> None:
        self.doc, self.excluded = doc, excluded
        self.names: dict[SpanKey, str] = {}
        self.why = ""
        self.n_changes = 0
        self.log: list[SpanChange | Callable[[], Iterable[SpanChange]]] = []
        self._spans: dict[SpanKey, ScoredSpan] = {}
        self._at_token: dict[int, dict[SpanKey, ScoredSpan]] | None = None
        for span in spans:
            self._put(span)

    def __iter__(self) -> Iterator[ScoredSpan]:
        return iter(sorted(self._spans.values()))

    def __len__(self) -> int:
        return len(self._spans)

    def overlapping(self, start: int, end: int) -> list[ScoredSpan]:
        """Return the spans that contain any of these tokens, in no particular order."""
        if self._at_token is None:
            self._at_token = {}
            for span in self._spans.values():
                self._put_at_tokens(span)
        at_token = self._at_token
        return list({s: None for i in range(start, end) for s in at_token.get(i, {}).values()})

    def add(
        self,
        span: ScoredSpan,
        why: str = "",
        *,
        name: str = "",
        stands_for: str = "",
        instead_of: Iterable[ScoredSpan] = (),
    ) -> None:
        """Add a span, and drop others for the same reason.

        name (str): The knowledge base name that the span matches, for explanations.
        stands_for (str): The name to look up instead of the span's text.
        instead_of (Iterable[ScoredSpan]): Often `overlapping(start, end)`; nothing else is dropped.
        RAISES InvalidSpan: If the span does not have four values, or is not in the document.
        """
        if not _is_scored_span(span, len(self.doc)):
            raise InvalidSpan(span, len(self.doc))
        dropped = self._forget(instead_of)
        self._put(span)
        if stands_for:
            self.names[span[:3]] = stands_for
        self._record(SpanChange(dropped, (span,), why or self.why, name or stands_for))

    def add_places(
        self,
        places: Iterable[tuple[int, int]],
        label: str,
        *,
        probability: float = 0.99,
        why: str = "",
    ) -> None:
        """Add spans by characters, in place of the spans that overlap them.

        If places overlap, the longest is used, widened to whole tokens. Spans with another label
        and a probability of 1 stay, and nothing is added over them: the user wants them, or they
        are unambiguous names.

        places (Iterable): Start and end of each mention, in characters.
        """
        spans = (self.doc.char_span(*p, label, alignment_mode="expand") for p in places)
        for span in filter_spans(filter(None, spans)):
            near = self.overlapping(span.start, span.end)
            if not any(s[3] == 1 and s[2] != label for s in near):
                self.add((span.start, span.end, label, probability), why, instead_of=near)

    def drop(self, spans: Iterable[ScoredSpan], why: str = "") -> None:
        """Drop spans; those that are not there are ignored."""
        if dropped := self._forget(spans):
            self._record(SpanChange(dropped, (), why or self.why))

    def become(self, spans: Sequence[ScoredSpan], why: str = "") -> None:
        """Replace all spans; `why` some of them were dropped or added."""
        before, self._spans, self._at_token = self._spans, {}, None
        for span in spans:
            self._put(span)
        self._record(
            SpanChange(tuple(before.values()), tuple(self._spans.values()), why or self.why)
        )

    def reject(self, span: ScoredSpan, why: str, name: str = "") -> None:
        """Record why a span that was not there has not been added either."""
        self.log.append(SpanChange((span,), (), why, name))

    def _record(self, change: SpanChange) -> None:
        self.n_changes += 1
        self.log.append(change)

    def _put(self, span: ScoredSpan) -> None:
        key = span[:3]
        if key in self._spans and self._spans[key][3] >= span[3]:
            return
        self._spans[key] = span
        if self._at_token is not None:
            self._put_at_tokens(span)

    def _put_at_tokens(self, span: ScoredSpan) -> None:
        assert self._at_token is not None
        for token in range(span[0], span[1]):
            self._at_token.setdefault(token, {})[span[:3]] = span

    def _forget(self, spans: Iterable[ScoredSpan]) -> list[ScoredSpan]:
        """Remove the spans that are there, and return them."""
        removed = [span for span in spans if self._spans.pop(span[:3], None)]
        for span in removed:
            self.names.pop(span[:3], None)
            for token in range(span[0], span[1]) if self._at_token is not None else ():
                del self._at_token[token][span[:3]]  # type: ignore[index]
        return removed


def _is_scored_span(span: object, n_tokens: int) -> bool:
    match span:
        case (int(start), int(end), str(), float() | int() as probability):
            return 0 <= start < end <= n_tokens and 0 <= probability <= 1
    return False
