"""Sequence variants in forms that nothing else has: HGVS, rs numbers, and short forms of changes of
proteins and of DNA ("T790M", "F508del", "185delAG").
"""

from __future__ import annotations

import re

_ACIDS = "Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val|Ter"
_ACID = "[ACDEFGHIKLMNPQRSTVWY]"
_BASES = "[ACGT]"
_AT = r"[-*]?\d+(?:[+-]\d+)?"
_CHANGED = rf"(?:delins|del|dup|ins|inv){_BASES}*(?:ins{_BASES}+)?"
_SHIFT = r"fs(?:(?:\*|X|Ter)\d+)?"
_ARROW = r"\s?(?:-*>|→|&gt;)\s?"
_FORMS = [
    r"rs[1-9]\d{2,9}",
    rf"[cgmn]\.{_AT}(?:_{_AT})?\s?(?:{_BASES}{_ARROW}{_BASES}|{_CHANGED})",
    rf"(?:p\.)?(?:{_ACIDS})\d+(?:(?:{_ACIDS})(?:{_SHIFT})?|{_SHIFT}|del|dup|\*|X|=)",
    rf"p\.\((?:{_ACIDS}|{_ACID})\d+(?:(?:{_ACIDS}|[A-Z*])(?:{_SHIFT})?|{_SHIFT}|del|dup|=)\)",
    rf"p\.{_ACID}\d+(?:[A-Z*](?:{_SHIFT})?|{_SHIFT}|del|dup|=)",
    rf"{_ACID}\d+(?:{_SHIFT}|del|dup)",
    # Not the proteins S100A and S100B, nor "T47D", a cell line, and others of two digits.
    rf"(?!S100[ABPZG]\b){_ACID}\d{{3,4}}(?:{_ACID}|X|\*)",
    r"(?:[Δ∆]|(?i:delta)[ -]?)F508",
    rf"IVS\d+\s?[+-]\s?\d+\s?{_BASES}{_ARROW}{_BASES}",
    rf"{_AT}(?:_{_AT})?(?:{_BASES}{_ARROW}{_BASES}|(?:del|ins|dup){_BASES}+)",
    rf"{_BASES}\d{{3,5}}{_BASES}",
]
_VARIANT = re.compile(rf"(?<![\w.+-])(?:{'|'.join(_FORMS)})(?![\w*]|[.-]\w)")


def find_variant_forms(text: str) -> list[tuple[int, int]]:
    """Find the variants that are written so, as (start, end)."""
    return [match.span() for match in _VARIANT.finditer(text)]
