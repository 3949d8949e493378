"""Short names of species that a document writes out elsewhere: "F. johnsoniae"."""

from __future__ import annotations

import re

_SHORT = re.compile(r"(?<!\w)([A-Z])\.\s?([a-z]{3,})(?!\w)")
_LONG = re.compile(r"(?<!\w)(([A-Z])[a-z]{2,} ([a-z]{3,}))(?!\w)")


def find_short_binomials(text: str) -> dict[str, str]:
    """From short form, as written, to the genus and epithet that stand first in the same text."""
    shorts = list(_SHORT.finditer(text))
    if not shorts:
        return {}
    longs: dict[tuple[str, str], str] = {}
    for match in _LONG.finditer(text):
        long, *key = match.groups()
        longs.setdefault((key[0], key[1]), long)
    return {
        match.group(): longs[match.group(1), match.group(2)]
        for match in shorts
        if (match.group(1), match.group(2)) in longs
    }
