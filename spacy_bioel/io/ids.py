"""Concept ids in the form of all other layers: CURIEs, and bare CUIs for UMLS."""

from __future__ import annotations

import re

# From spellings of a vocabulary in sources to prefixes of this package. CTD has "DO:DOID:0001816".
_SPELLINGS = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": "", "cellosaurus": ""}
_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")


def curie(raw: str, prefix: str = "") -> str:
    """Convert one id to a CURIE.

    raw (str): Id in the source, e.g. "D003920", "MESH:D003920", "UMLS:C0011849".
    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH". With "MESH", six digits are an
        OMIM number: the disease corpora mix the two, and no MeSH id is a plain number.
    RETURNS (str): CURIE, e.g. "MESH:D003920"; the bare CUI for UMLS.
    """
    raw = raw.strip()
    if ":" not in raw:
        if not prefix or not raw:
            return raw
        if prefix.lower() == "mesh" and _OMIM_NUMBER.fullmatch(raw):
            prefix = "OMIM"
        raw = f"{prefix}:{raw}"
    vocabulary, local = raw.split(":", 1)
    return _SPELLINGS.get(vocabulary.lower(), f"{vocabulary}:") + local.strip()


def split_ids(raw: str, prefix: str = "") -> tuple[str, ...]:
    """Split a field of ids at "|", "+", ";" and ",".

    raw (str): Field, e.g. "D000001|D000002"; "-1", "-", "NIL" and "CUI-less" mean no id.
    prefix (str): Vocabulary of ids without a prefix.
    RETURNS (tuple[str, ...]): Distinct CURIEs, in the order of the field.
    """
    parts = (part.strip() for part in _SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: list[str]) -> tuple[str, ...]:
    """Strip names, and drop empty and repeated ones."""
    stripped = (name.strip() for name in names)
    return tuple(dict.fromkeys(name for name in stripped if name))
