"""Abbreviations that a document defines itself: "acute kidney injury (AKI)".

Schwartz and Hearst (2003), A simple algorithm for identifying abbreviation definitions in
biomedical text, https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf, with the
reverse order "AKI (acute kidney injury)" accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BRACKETED = re.compile(r"[(\[]([^()\[\]]{2,120})[)\]]")
_WORD = re.compile(r"\S+")
_MAX_SHORT_CHARS = 10


@dataclass(frozen=True, slots=True)
class Abbreviation:
    """A definition found in a text: character offsets of the short and of the long form."""

    short: str
    long: str
    short_start: int
    short_end: int
    long_start: int
    long_end: int


def find_abbreviations(text: str) -> dict[str, Abbreviation]:
    """Definitions in one document, by short form; the first definition of a short form wins.

    text (str): A document.
    RETURNS (dict[str, Abbreviation]): Short form, as written, to its definition.
    """
    found: dict[str, Abbreviation] = {}
    for match in _BRACKETED.finditer(text):
        for abbreviation in _definitions(text, match):
            found.setdefault(abbreviation.short, abbreviation)
            break
    return found


def expand_abbreviations(mention: str, long_forms: Mapping[str, str]) -> str:
    """A mention with every word that is a known short form written out.

    mention (str): As written, e.g. "AKI" or "AKI patients".
    long_forms (Mapping[str, str]): Short form to long form, as the document defines them.
    """
    if mention in long_forms:
        return long_forms[mention]
    # A definition within the mention, "adenomatous polyposis coli (APC) tumours": drop the
    # bracket, whose long form is there already.
    mention = _BRACKETED.sub(lambda m: "" if m.group(1) in long_forms else m.group(), mention)
    return " ".join(long_forms.get(word, word) for word in mention.split())


def _definitions(text: str, match: re.Match[str]) -> Iterator[Abbreviation]:
    """Readings of one bracket: first "long (short)", then "short (long)"."""
    inner = re.split(r"[,;]|\bor\b", match.group(1), maxsplit=1)[0].strip()
    inner_start = text.index(inner, match.start() + 1) if inner else match.start()
    before = text[max(0, match.start() - 250) : match.start()].rstrip()
    before_end = match.start() - (match.start() - max(0, match.start() - 250) - len(before))
    if _is_short_form(inner):
        # At most this many words can hold the long form (Schwartz and Hearst, section 3).
        n_words = min(len(inner) + 5, len(inner) * 2)
        words = list(_WORD.finditer(before))[-n_words:]
        if words:
            window = before[words[0].start() :]
            start = _long_form_start(inner, window)
            if start is not None:
                long_start = before_end - len(window) + start
                yield _abbreviation(text, inner_start, inner, long_start, before_end)
    words = list(_WORD.finditer(before))
    if words and _is_short_form(words[-1].group()) and " " in inner:
        short = words[-1].group()
        start = _long_form_start(short, inner)
        if start == 0:
            short_start = before_end - len(short)
            yield _abbreviation(text, short_start, short, inner_start, inner_start + len(inner))


def _abbreviation(
    text: str, start: int, short: str, long_start: int, long_end: int
) -> Abbreviation:
    end = start + len(short)
    return Abbreviation(short, text[long_start:long_end], start, end, long_start, long_end)


def _is_short_form(word: str) -> bool:
    return (
        2 <= len(word) <= _MAX_SHORT_CHARS
        and len(word.split()) <= 2
        and word[0].isalnum()
        and any(c.isalpha() for c in word)
        and any(c.isupper() or c.isdigit() for c in word)
    )


def _long_form_start(short: str, window: str) -> int | None:
    """Offset in `window`, which ends where the long form ends, at which the long form begins.

    Matches the characters of the short form from the right; the first one must begin a word.
    """
    position = len(window)
    for index in range(len(short) - 1, -1, -1):
        char = short[index].lower()
        if not char.isalnum():
            continue
        position -= 1
        while position >= 0 and not (
            window[position].lower() == char
            and (index > 0 or position == 0 or not window[position - 1].isalnum())
        ):
            position -= 1
        if position < 0:
            return None
    long_form = window[position:]
    too_short = len(long_form) < len(short) + 1 or short.lower() in long_form.lower().split()
    return None if too_short else position
