"""Concept ids as every other layer knows them: CURIEs, and bare CUIs for UMLS."""

from __future__ import annotations

import re

# How sources spell a vocabulary -> how this project does. CTD writes "DO:DOID:0001816".
_SPELLINGS = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": ""}
_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")


def curie(raw: str, prefix: str = "") -> str:
    """Write one id as a CURIE.

    raw (str): The id as the source has it, e.g. "D003920", "MESH:D003920", "UMLS:C0011849".
    prefix (str): Vocabulary of ids that name none, e.g. "MESH". With "MESH", six digits are an
        OMIM number: the disease corpora mix the two, and no MeSH id is a plain number.
    RETURNS (str): E.g. "MESH:D003920"; the bare CUI for UMLS.
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
    """Cut a field of ids at "|", "+", ";" and ",".

    raw (str): E.g. "D000001|D000002"; "-1", "-", "NIL" and "CUI-less" stand for no id.
    prefix (str): Vocabulary of ids that name none.
    RETURNS (tuple[str, ...]): CURIEs, each once, in the order of the field.
    """
    parts = (part.strip() for part in _SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: list[str]) -> tuple[str, ...]:
    """The names stripped, each once, in order, without the empty ones."""
    stripped = (name.strip() for name in names)
    return tuple(dict.fromkeys(name for name in stripped if name))
