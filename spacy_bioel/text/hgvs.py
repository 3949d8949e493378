"""Sequence variants in the notation of HGVS (https://hgvs-nomenclature.org)."""

from __future__ import annotations

import re

from spacy_bioel.types import VARIANT

_FLAGS = re.IGNORECASE | re.ASCII  # or "İ" would be an "i", and "٣" a digit
_THREE = {
    "A": "Ala", "R": "Arg", "N": "Asn", "D": "Asp", "C": "Cys", "Q": "Gln", "E": "Glu", "G": "Gly",
    "H": "His", "I": "Ile", "L": "Leu", "K": "Lys", "M": "Met", "F": "Phe", "P": "Pro", "S": "Ser",
    "T": "Thr", "W": "Trp", "Y": "Tyr", "V": "Val", "X": "Ter", "*": "Ter",
}  # fmt: skip
_NAMED = {three.upper(): three for three in _THREE.values()} | {"STOP": "Ter"}
_ACID = f"(?:{'|'.join(_NAMED)}|[{''.join(_THREE)}])".replace("*", r"\*")
_START = r"(?:(?P<p>p)\.)?\(?"
_PROTEIN = re.compile(
    rf"{_START}(?P<old>{_ACID})[ -]?(?P<at>\d+)[ -]?"
    rf"(?:(?P<new>{_ACID})|(?P<change>fs|del|dup))(?:X\d+|\*\d+|Ter\d+)?\)?",
    _FLAGS,
)
_DELETED = re.compile(rf"(?:Δ|Delta[ -]?|del[ -]?)(?P<old>{_ACID})[ -]?(?P<at>\d+)", _FLAGS)
_PLACE = r"[-*]?\d+(?:[+-]\d+)?"
_DNA = re.compile(
    rf"(?P<kind>[cgmnr])\.\s?(?P<at>{_PLACE}(?:_{_PLACE})?)\s?"
    r"(?:(?P<old>[ACGTU])\s?(?:>|-+>|→|/)\s?(?P<new>[ACGTU])"
    r"|(?P<change>delins|del|dup|ins|inv)(?P<bases>[ACGTU]*))",
    _FLAGS,
)
_BASES = set("ACGT")


def hgvs_of(mention: str, label: str) -> str | None:
    """`to_hgvs` of a mention that is labelled as a variant; None for any other."""
    return to_hgvs(mention) if label == VARIANT else None


def to_hgvs(text: str) -> str | None:
    """The HGVS form of a variant as texts write it; None: it has none, or several.

    "V600E", "Val600Glu" -> "p.Val600Glu"; "R97fs" -> "p.Arg97fs"; "ΔF508" -> "p.Phe508del";
    "c.1799 T-->A" -> "c.1799T>A". The reference sequence is not known. Letters that are bases too,
    as in "C677T", may be of DNA or of a protein; DNA is recognised by its prefix.
    """
    text = text.strip()
    if found := _DNA.fullmatch(text):
        return _dna(found)
    if found := _DELETED.fullmatch(text):
        return f"p.{_acid(found['old'])}{found['at']}del"
    if found := _PROTEIN.fullmatch(text):
        letters = [found["old"].upper(), (found["new"] or "").upper()]
        if not found["p"] and letters[0] in _BASES and letters[1] in {*_BASES, ""}:
            return None
        change = _acid(found["new"]) if found["new"] else found["change"].lower()
        return f"p.{_acid(found['old'])}{found['at']}{change}"
    return None


def _dna(found: re.Match[str]) -> str:
    start = f"{found['kind'].lower()}.{found['at']}"
    if found["old"]:
        return f"{start}{found['old'].upper()}>{found['new'].upper()}"
    change = found["change"].lower()
    # What was deleted or doubled is said by the place.
    return start + change + (found["bases"].upper() if "ins" in change else "")


def _acid(letters: str) -> str:
    return _NAMED.get(letters.upper()) or _THREE[letters.upper()]
