"""Spelling variants of a normalised name: what to look up when the name itself is not there."""

from __future__ import annotations

import re

# British -> American, inside words; MeSH and most ontologies prefer the American spelling.
_AMERICAN = (
    (re.compile(r"ae(?=m|d|t|c|g|s|l|n)"), "e"),
    (re.compile(r"oe(?=d|s|t|m|n)"), "e"),
    (re.compile(r"(?<=[a-z]{3})our\b"), "or"),
    (re.compile(r"(?<=[a-z]{3})our(?=s\b)"), "or"),
    (re.compile(r"(?<=[a-z]{3})isation"), "ization"),
    (re.compile(r"sulph"), "sulf"),
)
_PLURALS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ses", "sis"), ("s", ""))


def spelling_variants(name: str) -> list[str]:
    """Other spellings of a normalised name, the likeliest first: singular, plural, American.

    name (str): As `normalize_name` returns it.
    RETURNS (list[str]): Without `name` itself.
    """
    american = name
    for pattern, replacement in _AMERICAN:
        american = pattern.sub(replacement, american)
    variants = [american, _singular(name), _singular(american), name + "s", american + "s"]
    return [v for v in dict.fromkeys(variants) if v and v != name]


def _singular(name: str) -> str:
    for ending, replacement in _PLURALS:
        if name.endswith(ending) and len(name) > len(ending) + 3 and not name.endswith("ss"):
            return name.removesuffix(ending) + replacement
    return name
