"""Abbreviations that a document defines itself: "acute kidney injury (AKI)".

Schwartz and Hearst (2003), A simple algorithm for identifying abbreviation definitions in
biomedical text, https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf, with the
reverse order "AKI (acute kidney injury)" accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from spacy_bioel.text.normalize import BLANK_LINE

_BRACKETED = re.compile(r"[(\[]([^()\[\]]{2,120})[)\]]")
_WORD = re.compile(r"\S+")
# Words, and parts of words with hyphens.
_HYPHENATED = re.compile(r"\w+")
_WORD_START = re.compile(r"(?<!\w)\S")
_IN_WORD = re.compile(r"\w")
# "(Lee, 2004)" and "(Spenner et al., 1995)" are no definitions.
_CITATION = re.compile(r"\bet al\b|\b(?:19|20)\d\d[a-z]?\s*$")
# Three characters before the full stop: "E. coli" and "St. John" do not end a sentence.
_SENTENCE_END = re.compile(r"(?<=[\w)\]]{3})\s?[.!?]\s+(?=[^\w\s]*[A-Z0-9])")
_BORDERS = (_SENTENCE_END, BLANK_LINE)
# So that "TNF-α" matches "tumor necrosis factor alpha".
_LATIN = str.maketrans("αβγδεκλμ", "abgdeklm")
_MAX_SHORT_CHARS = 10
_MAX_LONG_CHARS = 250


@dataclass(frozen=True, slots=True)
class Abbreviation:
    """Definition in a text: short and long form, with their character offsets."""

    short: str
    long: str
    short_start: int
    short_end: int
    long_start: int
    long_end: int


def find_abbreviations(text: str) -> dict[str, Abbreviation]:
    """Find the definitions in one document; the first definition of a short form wins.

    text (str): Text of the document.
    RETURNS (dict[str, Abbreviation]): From short form, as written, to its definition.
    """
    found: dict[str, Abbreviation] = {}
    for match in _BRACKETED.finditer(text):
        for abbreviation in _definitions(text, match):
            found.setdefault(abbreviation.short, abbreviation)
            break
    return found


def expand_abbreviations(mention: str, long_forms: Mapping[str, str]) -> str:
    """Replace the known short forms in a mention by their long forms.

    mention (str): As written, e.g. "AKI" or "AKI patients".
    long_forms (Mapping[str, str]): From short form to long form, as the document defines them.
    """
    if (long := long_form_of(mention, long_forms)) is not None:
        return long
    # If the mention has the definition, as "adenomatous polyposis coli (APC) tumours", the bracket
    # is dropped.
    mention = _BRACKETED.sub(lambda m: "" if m.group(1) in long_forms else m.group(), mention)
    return " ".join(long_form_of(word, long_forms) or word for word in mention.split())


def long_form_of(word: str, long_forms: Mapping[str, str]) -> str | None:
    """The long form of a short form, or of its plural: "AKIs"."""
    return long_forms.get(word) or (long_forms.get(word[:-1]) if word.endswith("s") else None)


def find_short_forms(text: str, short_forms: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Find short forms that are whole words, or plurals of them, in one pass over the text.

    text (str): Text of the document.
    short_forms (Collection[str]): As written.
    RETURNS (dict[str, list[tuple[int, int]]]): Character offsets of each short form, left to right,
        without overlaps; in the order of `short_forms`.
    """
    places: dict[str, list[tuple[int, int]]] = {short: [] for short in short_forms}
    lengths = sorted({len(short) for short in short_forms if short})
    for match in _WORD_START.finditer(text) if lengths else ():
        start = match.start()
        for length in lengths:
            end = start + length
            of_form = places.get(text[start:end])
            if of_form is None or end > len(text):
                continue
            end += text.startswith("s", end) and text[start:end] + "s" not in places
            if _IN_WORD.match(text, end):
                continue
            if not of_form or of_form[-1][1] <= start:
                of_form.append((start, end))
    return places


def _definitions(text: str, match: re.Match[str]) -> Iterator[Abbreviation]:
    """Possible definitions in one bracket: first "long (short)", then "short (long)"."""
    if _CITATION.search(match.group(1)):
        return
    inner = re.split(r"[,;]|\bor\b", match.group(1), maxsplit=1)[0].strip()
    if not inner:
        return
    inner_start = text.index(inner, match.start() + 1)
    before = text[max(0, match.start() - _MAX_LONG_CHARS) : match.start()]
    ends = [end.end() for border in _BORDERS for end in border.finditer(before)]
    first = match.start() - len(before) + max(ends, default=0)
    # "dopamine ([DA]1)" has an open bracket before the bracket.
    before = text[first : match.start()].rstrip(" \n\t([")
    words = list(_WORD.finditer(before))
    if _is_short_form(inner) and words:
        # Maximum number of words of the long form (Schwartz and Hearst, section 3).
        n_words = min(len(inner) + 5, len(inner) * 2)
        window_start = words[-n_words:][0].start()
        start = _long_form_start(inner, before[window_start:])
        if start is None:
            start = _reordered_start(inner, before[window_start:])
        if start is not None:
            long_start = first + window_start + start
            yield _abbreviation(text, inner_start, inner, long_start, first + len(before))
    if words and _is_short_form(words[-1].group()) and " " in inner:
        short = words[-1].group()
        if _long_form_start(short, inner) == 0:
            short_start = first + words[-1].start()
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
    """Find the start of the long form in `window`, which ends with the long form.

    The characters of the short form are matched from the right; the first one must begin a word.

    RETURNS (int | None): Offset in `window`; None: no long form.
    """
    folded_short, folded = (s.translate(_LATIN) for s in (short.lower(), window.lower()))
    if len(folded) != len(window):  # a letter has a lower case of two characters
        return None
    position = len(window)
    for index in range(len(short) - 1, -1, -1):
        char = folded_short[index]
        if not char.isalnum():
            continue
        position -= 1
        while position >= 0 and not (
            folded[position] == char
            and (index > 0 or position == 0 or not window[position - 1].isalnum())
        ):
            position -= 1
        if position < 0:
            return None
    position = _with_word_before(folded_short, folded, position)
    long_form = window[position:]
    too_short = len(long_form) < len(short) + 1 or short.lower() in long_form.lower().split()
    return None if too_short else position


def _reordered_start(short: str, window: str) -> int | None:
    """Find the start of a long form whose words begin with the letters of the short form in another
    order, as Latin has them: "myotonic dystrophy (DM)".
    """
    words = list(_HYPHENATED.finditer(window))[-len(short) :]
    initials = sorted(word.group()[0].upper() for word in words)
    # Shorter words are articles and prepositions.
    are_content = all(len(word.group()) > 3 for word in words)
    return words[0].start() if are_content and initials == sorted(short) else None


def _with_word_before(short: str, window: str, position: int) -> int:
    """Extend the long form by a word for a doubled first letter: "mindful memoization (MM)"."""
    words = window[position:].split()
    before = list(_WORD.finditer(window[:position]))
    doubled = len(short) > 1 and short[0] == short[1] and len(words) < len(short)
    if doubled and before and before[-1].group().startswith(short[0]):
        return before[-1].start()
    return position


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
