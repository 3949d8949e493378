"""The abbreviations of a Doc, for both pipes."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from spacy.tokens import Doc

from spacy_bioel.text.abbreviations import find_abbreviations

# Shared by both pipes. The text of a document does not change.
_FOUND: WeakKeyDictionary[Doc, dict[str, str]] = WeakKeyDictionary()


def long_forms(doc: Doc) -> dict[str, str]:
    """Short forms that the document defines; scispacy's detector is believed if it ran."""
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return dict(_read(short) for short in doc._.abbreviations)
    if doc not in _FOUND:
        abbreviations = find_abbreviations(doc.text)
        _FOUND[doc] = {short: found.long for short, found in abbreviations.items()}
    return _FOUND[doc]


def _read(short: Any) -> tuple[str, str]:
    """Short and long form of one of scispacy's: a span, or a dict with make_serializable = True."""
    if isinstance(short, dict):
        return str(short["short_text"]), str(short["long_text"])
    return short.text, str(short._.long_form)
