"""Shorthand of clinical notes: short forms that documents use and nowhere define."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import srsly

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names

_PATH = Path(__file__).parents[1] / "assets" / "shorthand.json"


def shorthand_beside(kb: KnowledgeBase) -> dict[str, str]:
    """From short form, as notes have it, to long form, but for forms that are names themselves."""
    shorthand = _clinical_shorthand()
    rows = kb.lookup_names(normalize_names(list(shorthand)))
    return {
        short: long for (short, long), row in zip(shorthand.items(), rows, strict=True) if row < 0
    }


@cache
def _clinical_shorthand() -> dict[str, str]:
    return srsly.read_json(_PATH)
