"""Short names of species that a document writes out elsewhere: "F. johnsoniae"."""

from __future__ import annotations

import re

_SHORT = re.compile(r"(?<!\w)([A-Z])\.\s?([a-z]{3,})(?!\w)")


def find_short_binomials(text: str) -> dict[str, str]:
    """From short form, as written, to the genus and epithet that stand in the same text."""
    found: dict[str, str] = {}
    for match in _SHORT.finditer(text):
        short, initial, epithet = match.group(), *match.groups()
        if short not in found:
            long = re.search(rf"(?<!\w){initial}[a-z]{{2,}} {epithet}(?!\w)", text)
            if long is not None:
                found[short] = long.group()
    return found
