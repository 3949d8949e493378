"""Other ways to write the name of a gene."""

from __future__ import annotations

import re

from spacy_bioel.text.normalize import normalize_names

# What a name may have around it: "human TERT gene", "p-AKT", "hTERT".
_BEFORE = re.compile(
    r"(?:(?:human|mouse|murine|rat|bovine|yeast|zebrafish|drosophila|wild[- ]type|mutant|mutated|"
    r"recombinant|phosphorylated|phospho|phosphor|endogenous|soluble|anti|p|pro)[- ])+",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:[- ](?:genes?|proteins?|mrnas?|transcripts?|products?|polypeptides?|molecules?|null))+$"
    r"|(?<=^(?-i:[A-Z][a-z][a-z])\d)p$|(?<=^(?-i:[A-Z][a-z][a-z])\d\d)p$",  # Gdt1p, of yeast
    re.IGNORECASE,
)
PREFIX = re.compile(r"[hmr](?=[A-Z][A-Za-z]*[A-Z0-9])")
_JOINT = re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_MOST = 4  # words that are written together


def other_spellings(name: str) -> list[str]:
    """Normalised, the nearest first: without what is around it, together ("IL-2", "IL2"), and
    apart ("p 53")."""
    forms = [name]
    for pattern in (_AFTER, _BEFORE, PREFIX):
        found = pattern.search(forms[-1]) if pattern is _AFTER else pattern.match(forms[-1])
        if found and len(found.group()) < len(forms[-1]):
            forms.append(forms[-1][: found.start()] + forms[-1][found.end() :])
    spelled: dict[str, None] = {}
    for form in normalize_names(forms):
        words = form.split()
        spelled[form] = None
        if 1 < len(words) <= _MOST:
            spelled["".join(words)] = None
            for i in range(1, len(words)):
                spelled[" ".join([*words[: i - 1], words[i - 1] + words[i], *words[i + 1 :]])] = (
                    None
                )
        spelled[_JOINT.sub(" ", form)] = None
    return [form for form in spelled if len(form) > 1]
