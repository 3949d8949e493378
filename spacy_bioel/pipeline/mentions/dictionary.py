"""Mentions without a trained detector: the longest names of a knowledge base in a text."""

from __future__ import annotations

import numpy as np
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.keys import span_keys
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

MAX_WIDTH = 12
_MIN_CHARS = 3


def longest_names(doc: Doc, kb: KnowledgeBase) -> list[Span]:
    """Spans that are names of concepts, none inside another, left to right.

    Very short names ("p", "at") are mostly something else in running text and are left out.
    """
    tokens = [normalize_name(token.text) for token in doc]
    rows = kb.lookup(span_keys(tokens, MAX_WIDTH))
    spans: list[Span] = []
    start = 0
    while start < len(doc):
        # A first or last token without a word would stretch the span over punctuation.
        widths = [
            width + 1
            for width in np.flatnonzero(rows[start] >= 0).tolist()
            if tokens[start] and tokens[start + width]
        ]
        span = doc[start : start + max(widths)] if widths else None
        if span is not None and len(span.text) >= _MIN_CHARS:
            spans.append(span)
            start = span.end
        else:
            start += 1
    return spans
