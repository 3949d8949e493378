"""Short forms of mentions, where the document defines them: "acute kidney injury (AKI)"."""

from __future__ import annotations

from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_bioel.pipeline.mentions.decoding import ScoredSpan
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import on_one_line


def add_short_forms(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """The mentions, and all places of the short forms that the document defines for one of them,
    with its label and probability.

    A mention in the same place gives way to it; others that overlap the place do not.
    """
    forms = long_forms(doc)
    if not (forms and spans):
        return list(spans)
    meant = {on_one_line(doc[start:end].text): (label, p) for start, end, label, p in spans}
    found = ((short, meant.get(on_one_line(long))) for short, long in forms.items())
    defined = {short: label_p for short, label_p in found if label_p}
    chosen = list(spans)
    for short, places in find_short_forms(doc.text, defined).items():
        for place in places:
            if (span := doc.char_span(*place)) is None:
                continue
            near = [s for s in chosen if s[0] < span.end and span.start < s[1]]
            if all(s[:2] == (span.start, span.end) for s in near):
                chosen = [s for s in chosen if s not in near]
                chosen.append((span.start, span.end, *defined[short]))
    return sorted(chosen, key=lambda s: s[:3])
