"""Sequence variants: what looks like one, and its form in HGVS (https://hgvs-nomenclature.org)."""

from __future__ import annotations

import re

from spacy_bioel.types import VARIANT

# British -> American, inside words; MeSH and most ontologies prefer the American spelling.
_AMERICAN = (
    (re.compile(r"ae(?=m|d|t|c|g|s|l|n)"), "e"),
    (re.compile(r"oe(?=a|d|s|t|m|n)"), "e"),
    (re.compile(r"(?<=[a-z]{3})our\b"), "or"),
    (re.compile(r"(?<=[a-z]{3})our(?=s\b)"), "or"),
    (re.compile(r"(?<=[a-z]{3})isation"), "ization"),
    (re.compile(r"sulph"), "sulf"),
)
_NUMERALS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii", "xiii")
_ARABIC = {roman: str(number) for number, roman in enumerate(_NUMERALS, start=1)}
_ROMAN = {arabic: roman for roman, arabic in _ARABIC.items()}
# A single letter is a numeral only after one of these words.
_NUMBERED = {"type", "stage", "grade", "class", "factor", "group", "phase", "syndrome", "disease"}
_POSSESSIVE = re.compile(r"(?<=\w) s\b")
_PLURALS = (("ies", "y"), ("xes", "x"), ("s", ""), ("ses", "sis"), ("ses", "s"))
_NO_PLURALS = ("ss", "us", "is")


def spelling_variants(name: str) -> list[str]:
    """Spelling variants of a normalised name, the likeliest first.

    The variants are American spelling, singular, Roman or Arabic numerals, and plural.

    name (str): Normalised name.
    RETURNS (list[str]): Variants, without `name` itself.
    """
    spelled = american(name)
    plain = _POSSESSIVE.sub("", spelled)  # "parkinson s disease"
    variants = [spelled, plain, *_singulars(name), *_singulars(spelled), *_renumbered(name)]
    variants += [] if not name or name.endswith("s") else [name + "s", spelled + "s"]
    return [v for v in dict.fromkeys(variants) if v and v != name]


def american(name: str) -> str:
    """A normalised name in American spelling."""
    for pattern, replacement in _AMERICAN:
        name = pattern.sub(replacement, name)
    return name


def _singulars(name: str) -> list[str]:
    if name.endswith(_NO_PLURALS):
        return []
    return [
        name.removesuffix(ending) + replacement
        for ending, replacement in _PLURALS
        if name.endswith(ending) and len(name) > len(ending) + 3
    ]


def _as_arabic(word: str, before: str) -> str:
    return _ARABIC.get(word, "") if len(word) > 1 or before in _NUMBERED else ""


def _renumbered(name: str) -> list[str]:
    words = name.split()
    pairs = list(zip(["", *words], words, strict=False))
    arabic = " ".join(_as_arabic(word, before) or word for before, word in pairs)
    roman = " ".join(_ROMAN.get(word, word) for word in words)
    return [arabic, roman]


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
