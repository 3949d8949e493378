"""The abbreviations of a Doc, for both pipes."""

from __future__ import annotations

from spacy.tokens import Doc

from spacy_bioel.text.abbreviations import find_abbreviations


def long_forms(doc: Doc) -> dict[str, str]:
    """Short forms that the document defines; scispacy's detector is believed if it ran."""
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return {short.text: str(short._.long_form) for short in doc._.abbreviations}
    return {short: found.long for short, found in find_abbreviations(doc.text).items()}
