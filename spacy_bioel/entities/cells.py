"""Cell lines whose names are also names of genes: "PC9 and H1975 cells" are not PCSK9."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_bioel.doc import SpansByToken, text_of
from spacy_bioel.entities import RULE_PROBABILITY
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import CELL_LINE, GENE, ScoredSpan

_CELLS = re.compile(
    r"(?<![\w-])([A-Z][\w./-]{1,12})(?=(?:(?:, | and | or |, and |/)[A-Z0-9][\w./-]{1,12}){0,5}"
    r" (?:(?!(?:in|of|and|or|by|to|was)\b)[a-z]+ ){0,2}(?:cells?|cell[ -]lines?|xenografts?)\b)"
)


def with_cell_lines(
    doc: Doc, spans: Sequence[ScoredSpan], kb: KnowledgeBase
) -> Sequence[ScoredSpan]:
    """Make names of cell lines before "cells" mentions, also if they are mentions of genes.

    kb (KnowledgeBase): The knowledge base of cell lines.
    """
    matches = list(_CELLS.finditer(text_of(doc)))
    rows = kb.lookup_names(normalize_names([match[1] for match in matches]))
    by_token = SpansByToken(spans)
    for match, row in zip(matches, rows.tolist(), strict=True):
        if row < 0 or (span := doc.char_span(*match.span(1))) is None:
            continue
        near = by_token.overlapping(span.start, span.end)
        is_gene = all(s[2] == GENE and s[3] < 1 and s[:2] == (span.start, span.end) for s in near)
        if is_gene and (near or any(map(str.isdigit, span.text))):
            by_token.replace(near, (span.start, span.end, CELL_LINE, RULE_PROBABILITY))
    return sorted(by_token)
