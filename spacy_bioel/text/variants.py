"""Spelling variants of a normalised name, to look up if the name itself is unknown."""

from __future__ import annotations

import re

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
