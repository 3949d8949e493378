"""What a running text shows of itself: where its sentences begin, and its abbreviations.

`find_abbreviations` finds those that a document defines: "acute kidney injury (AKI)". Schwartz and
Hearst (2003), A simple algorithm for identifying abbreviation definitions in biomedical text,
https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf, with the reverse order "AKI
(acute kidney injury)" accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from spacy_bioel.text.normalize import BLANK_LINE

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


_BRACKETED = re.compile(r"[(\[]([^()\[\]]{2,120})[)\]]")
_WORD = re.compile(r"\S+")
_HYPHENATED = re.compile(r"\w+")  # words, and parts of words with hyphens
_WORD_START = re.compile(r"(?<!\w)\S")
_IN_WORD = re.compile(r"\w")
# "(Lee, 2004)" and "(Spenner et al., 1995)" are no definitions.
_CITATION = re.compile(r"\bet al\b|\b(?:19|20)\d\d[a-z]?\s*$")
# Three characters before the full stop: "E. coli" and "St. John" do not end a sentence.
_SENTENCE_END = re.compile(r"(?<=[\w)\]]{3})\s?[.!?]\s+(?=[^\w\s]*[A-Z0-9])")
_BORDERS = (_SENTENCE_END, BLANK_LINE)
_LATIN = str.maketrans("αβγδεκλμ", "abgdeklm")  # "TNF-α" matches "tumor necrosis factor alpha"
_MAX_SHORT_CHARS = 10
_MAX_LONG_CHARS = 250
_SHORT_BINOMIAL = re.compile(r"(?<!\w)([A-Z])\.\s?([a-z]{3,})(?!\w)")
_BINOMIAL = re.compile(r"(?<!\w)(([A-Z])[a-z]{2,} ([a-z]{3,}))(?!\w)")


def find_abbreviations(text: str) -> dict[str, str]:
    """Return short forms, as written, and their long forms in a document; the first one wins."""
    found: dict[str, str] = {}
    for match in _BRACKETED.finditer(text):
        for short, long in _definitions(text, match):
            found.setdefault(short, long)
            break
    return found


def find_short_binomials(text: str) -> dict[str, str]:
    """From short form, as written, to the genus and epithet that stand first in the same text."""
    shorts = list(_SHORT_BINOMIAL.finditer(text))
    longs: dict[tuple[str, str], str] = {}
    for match in _BINOMIAL.finditer(text) if shorts else ():
        longs.setdefault((match[2], match[3]), match[1])
    return {m[0]: longs[m[1], m[2]] for m in shorts if (m[1], m[2]) in longs}


def expand_abbreviations(mention: str, long_forms: Mapping[str, str]) -> str:
    """Replace the known short forms in a mention, such as "AKI patients", by their long forms."""
    if (long := _long_form_of(mention, long_forms)) is not None:
        return long
    # If the mention has the definition, as "adenomatous polyposis coli (APC) tumours", the bracket
    # is dropped.
    mention = _BRACKETED.sub(lambda m: "" if m[1] in long_forms else m[0], mention)
    return " ".join([_long_form_of(word, long_forms) or word for word in mention.split()])


def _long_form_of(word: str, long_forms: Mapping[str, str]) -> str | None:
    """The long form of a short form, or of its plural: "AKIs"."""
    return long_forms.get(word) or (long_forms.get(word[:-1]) if word.endswith("s") else None)


def find_forms(text: str, short_forms: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Find short forms that are whole words, or plurals of them, in one pass over the text.

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
            if not _IN_WORD.match(text, end) and (not of_form or of_form[-1][1] <= start):
                of_form.append((start, end))
    return places


def _definitions(text: str, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Possible definitions in one bracket: first "long (short)", then "short (long)"."""
    if _CITATION.search(match[1]):
        return
    inner = re.split(r"[,;]|\bor\b", match[1], maxsplit=1)[0].strip()
    before = text[max(0, match.start() - _MAX_LONG_CHARS) : match.start()]
    ends = [end.end() for border in _BORDERS for end in border.finditer(before)]
    # "dopamine ([DA]1)" has an open bracket before the bracket.
    before = before[max(ends, default=0) :].rstrip(" \n\t([")
    words = list(_WORD.finditer(before))
    if not inner or not words:
        return
    if _is_short_form(inner):
        # Maximum number of words of the long form (Schwartz and Hearst, section 3).
        n_words = min(len(inner) + 5, len(inner) * 2)
        window = before[words[-n_words:][0].start() :]
        start = _long_form_start(inner, window)
        if start is None:
            start = _reordered_start(inner, window)
        if start is not None:
            yield inner, window[start:]
    short = words[-1].group()
    if _is_short_form(short) and " " in inner and _long_form_start(short, inner) == 0:
        yield short, inner


def _is_short_form(word: str) -> bool:
    return (
        2 <= len(word) <= _MAX_SHORT_CHARS
        and len(word.split()) <= 2
        and word[0].isalnum()
        and any(map(str.isalpha, word))
        and any(c.isupper() or c.isdigit() for c in word)
    )


def _long_form_start(short: str, window: str) -> int | None:
    """Find the start of the long form in `window`, which ends with it; None: there is none.

    The characters of the short form are matched from the right; the first one must begin a word.
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
    before = list(_WORD.finditer(window[:position]))
    doubled = short[:1] == short[1:2] and len(window[position:].split()) < len(short)
    if doubled and before and before[-1].group().startswith(short[0]):
        return before[-1].start()
    return position
