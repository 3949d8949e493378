"""From spaCy's Examples to gold mentions, and from annotated texts to Docs with gold spans.

spaCy's own projection of spans drops `kb_id`, so gold is realigned here by character offsets, and
what does not fit the tokens is counted, never lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example

from spacy_bioel.types import ANNOTATES, AnnotatedText

GOLD_KEY = "bioel_gold"
SPANS_KEY = "bioel"
NIL = "NIL"


@dataclass(frozen=True, slots=True)
class GoldSpan:
    """A gold mention on the tokens of a predicted Doc: tokens [start, end)."""

    start: int
    end: int
    label: str
    ids: tuple[str, ...]


@dataclass
class Alignment:
    """How many gold mentions there were, how many were widened to whole tokens, and the lost."""

    n: int = 0
    widened: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, other: Alignment) -> None:
        self.n += other.n
        self.widened += other.widened
        self.lost += other.lost


def split_ids(kb_id: str) -> tuple[str, ...]:
    """The ids in a `kb_id_`: several for a composite, none for "" and "NIL"."""
    return () if kb_id in ("", NIL) else tuple(kb_id.split("|"))


def add_gold(
    doc: Doc, text: AnnotatedText, *, widen: bool = False, key: str = GOLD_KEY
) -> Alignment:
    """Write the gold mentions of `text` to a span group, doc.spans["bioel_gold"].

    widen (bool): Stretch a mention that cuts a token to whole tokens; otherwise it is lost.
    """
    alignment = Alignment(n=len(text.mentions))
    spans = []
    for mention in text.mentions:
        kb_id = "|".join(mention.ids)
        to_span = partial(
            doc.char_span, mention.start, mention.end, label=mention.label, kb_id=kb_id
        )
        span = to_span()
        if span is None and widen:
            span = to_span(alignment_mode="expand")
            alignment.widened += span is not None
        if span is None:
            surface = text.text[mention.start : mention.end]
            alignment.lost.append(f"{text.id}:{mention.start}-{mention.end} {surface!r}")
        else:
            spans.append(span)
    attrs: dict[str, Any] = {ANNOTATES: list(text.annotates)} if text.annotates else {}
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)
    return alignment


def annotated_labels(doc: Doc, *, key: str = GOLD_KEY) -> tuple[str, ...]:
    """Labels that were looked for in a document, see `AnnotatedText`."""
    return tuple(doc.spans[key].attrs.get(ANNOTATES, ())) if key in doc.spans else ()


def with_gold_mentions(doc: Doc, text: AnnotatedText, *, spans_key: str = SPANS_KEY) -> Doc:
    """Put the places and labels of gold mentions, never their ids, where the linker looks."""
    spans = [
        doc.char_span(m.start, m.end, label=m.label, alignment_mode="expand") for m in text.mentions
    ]
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, spans=[s for s in spans if s is not None])
    return doc


def gold_spans(example: Example, *, key: str = GOLD_KEY) -> Iterator[GoldSpan]:
    """Gold mentions of an example on the tokens of its predicted Doc, by character offsets."""
    if key not in example.reference.spans:
        return
    for span in example.reference.spans[key]:
        aligned = example.predicted.char_span(span.start_char, span.end_char)
        if aligned is not None:
            yield GoldSpan(aligned.start, aligned.end, span.label_, split_ids(span.kb_id_))


def mention_spans(doc: Doc, mentions: str, *, spans_key: str = SPANS_KEY) -> list[Span]:
    """The spans of a Doc that a linker is to link.

    mentions (str): "spans", "ents", or "auto": the span group if it is there, else doc.ents.
    """
    if mentions == "spans" or (mentions == "auto" and spans_key in doc.spans):
        return list(doc.spans[spans_key]) if spans_key in doc.spans else []
    return list(doc.ents)
