"""Short forms in a Doc and what they stand for: its own, and those of clinical notes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import srsly
from spacy.tokens import Doc

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.abbreviations import find_abbreviations, find_short_binomials
from spacy_bioel.text.normalize import normalize_names

# Shared by both pipes. The text of a document does not change.
_FOUND: WeakKeyDictionary[Doc, dict[str, str]] = WeakKeyDictionary()


def long_forms(doc: Doc) -> dict[str, str]:
    """Short forms that the document defines, and short names of species that it writes out
    ("F. johnsoniae"); scispacy's detector is believed if it ran.
    """
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return dict(_read(short) for short in doc._.abbreviations)
    if doc not in _FOUND:
        text = doc.text  # which spaCy puts together each time
        _FOUND[doc] = find_short_binomials(text) | find_abbreviations(text)
    return _FOUND[doc]


def forms_to_write_out(
    doc: Doc, *, abbreviations: bool, shorthand: Mapping[str, str]
) -> dict[str, str]:
    """From short to long form: shorthand that the document has, and what it defines itself.

    abbreviations (bool): Whether its own definitions count. They go before shorthand.
    """
    text = doc.text
    found = {short: long for short, long in shorthand.items() if short in text}
    return found | long_forms(doc) if abbreviations else found


def _read(short: Any) -> tuple[str, str]:
    """Short and long form of one of scispacy's: a span, or a dict with make_serializable = True."""
    if isinstance(short, dict):
        return str(short["short_text"]), str(short["long_text"])
    return short.text, str(short._.long_form)


_PATH = Path(__file__).parents[1] / "assets" / "shorthand.json"


def shorthand_beside(kb: KnowledgeBase) -> dict[str, str]:
    """From short form, as notes have it, to long form, except forms that are names themselves."""
    shorthand = _clinical_shorthand()
    rows = kb.lookup_names(normalize_names(list(shorthand)))
    return {
        short: long for (short, long), row in zip(shorthand.items(), rows, strict=True) if row < 0
    }


@cache
def _clinical_shorthand() -> dict[str, str]:
    return srsly.read_json(_PATH)
