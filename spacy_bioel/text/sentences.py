"""?"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NO_ENDS = frozenset("dr mr mrs ms prof st vs no approx dept fig e.g i.e al".split())
# Where a sentence may end: after a full stop and white space, or at the end of a line.
_ENDS = re.compile(r"(?P<stop>[.!?]+[\"')\]]*)\s+|(?<![ \t])[ \t]*\r?\n[ \t]*")
_WORD_BEFORE = re.compile(r"[\w.]*\Z")
_INITIAL = re.compile(r"\b(?:dr|mr|mrs|ms|prof)\.?\s+[a-z]\Z", re.I)  # "Dr. J. Smith"


_ITEM = re.compile(r"[-*•·|]|[^\n\t]{1,40}\t\S|\(?\d{1,2}[.)]\s|[A-Z][A-Za-z/&' -]{1,48}:")


_SHORT = 0.7  # part of the longest line from which on a line is full, and goes on in the next one


def sentence_borders(text: str) -> list[int]:
    """Where sentences begin, except the first.

    A line that is hard-wrapped goes on in the next one. A sentence ends with its line before an
    empty line, an item of a list or a header, and after a line that is not full, unless the next
    one begins with a small letter.
    """
    lines = [len(line) for line in text.split("\n")]
    full = _SHORT * max(lines)
    borders: list[int] = []
    line_start = 0
    for match in _ENDS.finditer(text):
        at = match.end()
        if match["stop"]:
            before = text[max(0, match.start() - 8) : match.start()]
            word = found.group().lower() if (found := _WORD_BEFORE.search(before)) else ""
            is_short = word in _NO_ENDS or bool(_INITIAL.search(before))
            if word == "no":  # "No. 5", but "Fever: no."
                is_short = text[at : at + 1].isdigit()
            if match["stop"][0] != "." or not (is_short or text[at : at + 1].islower()):
                borders.append(at)
            if "\n" in match.group():
                line_start = at
            continue
        rest = text[at : at + 52]
        is_full = match.start() - line_start >= full
        goes_on = rest[:1].islower() or (is_full and rest[:1] not in ("", "\r", "\n"))
        if not goes_on or _ITEM.match(rest):
            borders.append(at)
        line_start = at
    return borders


def begins_sentence(tokens: Sequence[str]) -> list[bool]:
    """Whether a sentence begins with a token, the first included.

    One begins after a full stop, an exclamation or question mark, or a line break, unless with a
    small letter.
    """
    begins: list[bool] = []
    has_ended = False
    for text in tokens:
        begins.append(not begins or (has_ended and not text[0].islower()))
        ends = text in (".", "!", "?") or "\n" in text
        has_ended = ends or (has_ended and text.isspace())
    return begins
