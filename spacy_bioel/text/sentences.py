"""Find sentence boundaries, and the abbreviations that a text defines.

`find_abbreviations` finds definitions such as "acute kidney injury (AKI)" with the algorithm of
Schwartz and Hearst (2003), A simple algorithm for identifying abbreviation definitions in
biomedical text, https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf. The reverse
order, "AKI (acute kidney injury)", is accepted too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from spacy_bioel.text.normalize import BLANK_LINE, normalize_name, stem_of

# A sentence may end after a full stop and white space, or at the end of a line. The expression
# begins with a character class, because that is fastest.
_SENTENCE_OR_LINE_END = re.compile(r"[.!?\n](?:(?<=\n)[ \t]*|(?<![.!?][.!?])[.!?]*+[\"')\]]*+\s+)")
# Abbreviations such as "Dr" and "Dr. J", whose full stop does not end a sentence.
_ABBREVIATION = re.compile(
    r"(?:(?<![\w.])(?:dr|mr|mrs|ms|prof|st|vs|no|approx|dept|fig|e\.g|i\.e|al)"
    r"|\b(?:dr|mr|mrs|ms|prof)\.?\s+[a-z])\Z"
)
# Start of a line with a list item (a bullet or number), a header, or a table row.
LIST_ITEM = re.compile(r"[-*•·|]|[^\n\t]{1,40}\t\S|\(?\d{1,2}[.)]\s|[A-Z][A-Za-z/&' -]{1,48}:")
_BREAK_IN_WORD = re.compile(r"-[ \t]*\r?\n[ \t]*(?P<rest>[a-z]{2,30})(?!\w)")
_WORD_BEFORE_BREAK = re.compile(r"(?<![\w-])[A-Za-z]{2,30}\Z")
FULL_LINE_RATIO = 0.7  # minimum length of wrapped lines, relative to the longest line


def sentence_borders(text: str) -> list[int]:
    """Return the character offset of each sentence start except the first.

    A sentence continues after a hard line wrap. A line break ends a sentence if an empty line, a
    list item or a header follows, or if the line is not full, unless the next line starts with a
    lower-case letter.
    """
    min_full_length = FULL_LINE_RATIO * max(map(len, text.split("\n")))
    borders: list[int] = []
    line_start = 0
    for match in _SENTENCE_OR_LINE_END.finditer(text):
        start = match.end()  # start of the next sentence, if a sentence ends here
        next_char = text[start : start + 1]
        stop, end = text[match.start()], match.start()
        if stop != "\n":
            is_abbreviation = stop == "." and next_char.islower()
            if stop == "." and not is_abbreviation:
                last = _ABBREVIATION.search(text[max(0, end - 8) : end].lower())
                # "No" is an abbreviation in "No. 5", but not in "Fever: no."
                is_abbreviation = last is not None and (last[0] != "no" or next_char.isdigit())
            if not is_abbreviation:
                borders.append(start)
            if "\n" in match[0]:
                line_start = start
            continue
        line = text[line_start:end].removesuffix("\r").rstrip(" \t")
        is_full = len(line) >= min_full_length
        continues = next_char.islower() or (is_full and next_char not in ("", "\r", "\n"))
        if not continues or LIST_ITEM.match(text[start : start + 52]):
            borders.append(start)
        line_start = start
    return borders


def broken_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, whole word) for each word that is hyphenated across a line break."""
    last = 0
    for match in _BREAK_IN_WORD.finditer(text):
        end = match.start()
        if word := _WORD_BEFORE_BREAK.search(text, max(last, end - 31), end):
            last = match.end()
            yield word.start(), last, word[0] + match["rest"]


def begins_sentence(tokens: Sequence[str]) -> list[bool]:
    """Return whether each token starts a sentence; the first token always does.

    A sentence starts after a full stop, an exclamation or question mark, or a line break, unless
    the next token starts with a lower-case letter.
    """
    begins: list[bool] = []
    has_ended = False
    for text in tokens:
        begins.append(not begins or (has_ended and not text[0].islower()))
        ends = text in (".", "!", "?") or "\n" in text
        has_ended = ends or (has_ended and text.isspace())
    return begins


_BRACKETED = re.compile(r"[(\[]([^()\[\]]{2,120})[)\]]")
_NON_SPACE = re.compile(r"\S+")
_WORD_OR_PART = re.compile(r"\w+")  # a word, or part of a hyphenated word.
# The start of a word, unless preceded by a Greek letter and a hyphen: not "SMA" in "alpha-SMA".
_WORD_START = re.compile(r"(?<!\w)(?<!alpha-)(?<!beta-)(?<!gamma-)(?<![αβγδκ]-)\S")
_IN_WORD = re.compile(r"\w")
_NUMBER_NEXT = re.compile(r"[ -]?\d")
# "(Lee, 2004)" and "(Spenner et al., 1995)" are not definitions.
_CITATION = re.compile(r"\bet al\b|\b(?:19|20)\d\d[a-z]?\s*$")
# A sentence needs three characters before its full stop, so "E. coli" and "St. John" do not match.
_SENTENCE_END = re.compile(r"[.!?](?:(?<=[\w)\]]{3}.)|(?<=[\w)\]]{3}\s.))\s+(?=[^\w\s]*[A-Z0-9])")
_LONG_FORM_BORDERS = (_SENTENCE_END, BLANK_LINE, re.compile(r";\s"))
_LATIN = str.maketrans("αβγδεκλμ", "abgdeklm")  # "TNF-α" matches "tumor necrosis factor alpha"
_WITHOUT_INITIALS = frozenset("of the and in for to with by or a an".split())
_MAX_SHORT_CHARS = 10
_MAX_LONG_CHARS = 250
_SHORT_BINOMIAL = re.compile(r"(?<!\w)([A-Z])\.\s?([a-z]{3,})(?!\w)")
_BINOMIAL = re.compile(r"(?<!\w)(([A-Z])[a-z]{2,} ([a-z]{3,}))(?!\w)")


class LongForms(dict[str, str]):
    """Maps each short form that a text defines, such as "AKI", to its first long form.

    others (dict): For each short form with several meanings, the start and the long form of each
        definition.
    """

    def __init__(self, forms: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(forms)
        self.others: dict[str, list[tuple[int, str]]] = {}

    def at(self, offset: int, short: str) -> str | None:
        """Return a short form's long form at an offset: the last one defined before it."""
        if (meanings := self.others.get(short)) is None:
            return self.get(short)
        n_before = bisect_right(meanings, offset, key=itemgetter(0))
        return meanings[max(n_before - 1, 0)][1]

    def define(self, start: int, short: str, long: str) -> None:
        """Add a definition. A second long form counts only if its initials spell the short form,
        because sample and figure numbers in brackets look like definitions."""
        first = self.setdefault(short, long)
        if short in self.others or (_is_initialism(short, long) and _differ(first, long)):
            self.others.setdefault(short, [(0, first)]).append((start, long))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (short form, long form) pairs, including all meanings of each short form."""
        yield from self.items()
        yield from ((short, long) for short, more in self.others.items() for _, long in more[1:])

    def __ror__(self, forms: Mapping[str, str]) -> LongForms:  # type: ignore[override]
        """Return `forms | self` as `LongForms`, keeping all definitions in `self`."""
        merged = LongForms({**forms, **self})
        merged.others = self.others
        return merged


def _is_initialism(short: str, long: str) -> bool:
    """Return whether a long form is a single word, or has initials that spell a short form."""
    words = [word for word in _WORD_OR_PART.findall(long.lower()) if word not in _WITHOUT_INITIALS]
    initials = "".join(word[0] for word in words)
    return (
        len(words) == 1 or initials == "".join(filter(str.isalnum, short.removesuffix("s"))).lower()
    )


def _differ(first: str, long: str) -> bool:
    """Return whether two long forms share at most half of their words."""
    words, others = (set(map(stem_of, normalize_name(text).split())) for text in (first, long))
    return 2 * len(words & others) <= max(len(words), len(others))


def find_abbreviations(text: str) -> LongForms:
    """Find the abbreviations that a text defines, such as "acute kidney injury (AKI)"."""
    long_forms = LongForms()
    for match in _BRACKETED.finditer(text):
        if found := _definition(text, match):
            long_forms.define(*found)
    return long_forms


def find_short_binomials(text: str) -> dict[str, str]:
    """Map abbreviated binomials in a text ("E. coli") to full names ("Escherichia coli")."""
    shorts = list(_SHORT_BINOMIAL.finditer(text))
    longs: dict[tuple[str, str], str] = {}
    for match in _BINOMIAL.finditer(text) if shorts else ():
        longs.setdefault((match[2], match[3]), match[1])
    return {m[0]: longs[m[1], m[2]] for m in shorts if (m[1], m[2]) in longs}


def expand_abbreviations(mention: str, long_form: Callable[[str], str | None]) -> str:
    """Expand the known short forms in a mention such as "AKI patients".

    long_form (Callable): Returns the long form of a short form, or None.
    """

    def expanded(word: str) -> str | None:
        return long_form(word) or (long_form(word[:-1]) if word.endswith("s") else None)  # "AKIs"

    if long := expanded(mention) or (long_form(mention + "s") if mention.isupper() else None):
        return long
    # Drop a bracketed short form: "adenomatous polyposis coli (APC) tumours".
    mention = _BRACKETED.sub(lambda m: "" if long_form(m[1]) else m[0], mention)
    return " ".join([expanded(word) or word for word in mention.split()])


def find_forms(text: str, short_forms: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Find short forms as whole words in a text, including plurals and singulars ("GIST" for
    "GISTs").

    RETURNS (dict[str, list[tuple[int, int]]]): Character offsets of each short form, from left to
        right, without overlaps; in the order of `short_forms`.
    """
    places: dict[str, list[tuple[int, int]]] = {short: [] for short in short_forms}
    form_of = {short[:-1]: short for short in places if short[-1:] == "s" and short[:-1].isupper()}
    form_of |= {short: short for short in places}
    lengths = sorted({len(form) for form in form_of if form})
    firsts = {form[0] for form in form_of if form}
    for match in _WORD_START.finditer(text) if lengths else ():
        start = match.start()
        for length in lengths if match[0] in firsts else ():
            end = start + length
            form = form_of.get(text[start:end])
            if form is None or end > len(text):
                continue
            if form != text[start:end] and _NUMBER_NEXT.match(text, end):
                continue  # "SCA 3" is not one of "ataxias (SCAs)"
            places_of_form = places[form]
            if text.startswith("s", end) and text[start:end] + "s" not in form_of:
                end += 1
            overlaps = bool(places_of_form) and places_of_form[-1][1] > start
            if not overlaps and not _IN_WORD.match(text, end):
                places_of_form.append((start, end))
    return places


def _definition(text: str, match: re.Match[str]) -> tuple[int, str, str] | None:
    """Return (start, short form, long form) for the definition at a bracket, or None if there is
    none. The reading "long (short)" takes precedence over "short (long)"."""
    if _CITATION.search(match[1]):
        return None
    inner, *rest = map(str.strip, re.split(r"[,;]|\bor\b", match[1], maxsplit=2))
    before = text[max(0, match.start() - _MAX_LONG_CHARS) : match.start()]
    ends = [end.end() for border in _LONG_FORM_BORDERS for end in border.finditer(before)]
    # Drop opening brackets, as in "dopamine ([DA]1)".
    before = before[max(ends, default=0) :].rstrip(" \n\t([")
    words = list(_NON_SPACE.finditer(before))
    is_pair = rest and is_short_form(inner) and not is_short_form(rest[0])
    if is_pair and _long_form_start(inner, rest[0]) == 0:
        return match.start(), inner, rest[0]  # "(MPA, mycophenolic acid)"
    if not inner or not words:
        return None
    if is_short_form(inner):
        # Maximum number of words in the long form (Schwartz and Hearst, section 3).
        n_words = min(len(inner) + 5, len(inner) * 2)
        window = before[words[-n_words:][0].start() :]
        start = _long_form_start(inner, window)
        if start is None:
            start = _reordered_start(inner, window)
        if start is not None:
            return match.start(), inner, window[start:]
    short = words[-1].group()
    if is_short_form(short) and " " in inner and _long_form_start(short, inner) == 0:
        return text.rindex(short, 0, match.start()), short, inner
    return None


def is_short_form(word: str) -> bool:
    """Return whether a string may be a short form, according to Schwartz and Hearst."""
    return (
        2 <= len(word) <= _MAX_SHORT_CHARS
        and len(word.split()) <= 2
        and word[0].isalnum()
        and any(map(str.isalpha, word))
        and any(c.isupper() or c.isdigit() for c in word)
    )


def _long_form_start(short: str, window: str) -> int | None:
    """Return the start of the long form at the end of `window`, or None if there is none.

    The characters of the short form are matched from the right; the first must start a word.
    """
    folded_short, folded = (s.translate(_LATIN) for s in (short.lower(), window.lower()))
    if len(folded) != len(window):  # some letters become two characters in lower case
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
    # A doubled letter may stand for one more word: "mindful memoization (MM)".
    before = list(_NON_SPACE.finditer(folded[:position]))
    is_doubled = folded_short[0] == folded_short[1] and len(folded[position:].split()) < len(short)
    if is_doubled and before and before[-1].group().startswith(folded_short[0]):
        position = before[-1].start()
    long_form = window[position:]
    too_short = len(long_form) < len(short) + 1 or short.lower() in long_form.lower().split()
    return None if too_short else position


def _reordered_start(short: str, window: str) -> int | None:
    """Return the start of a long form whose initials are the short form's letters in a different
    order, as in Latin names: "myotonic dystrophy (DM)".
    """
    words = list(_WORD_OR_PART.finditer(window))[-len(short) :]
    initials = sorted(word.group()[0].upper() for word in words)
    # Shorter words are mostly articles and prepositions.
    are_content_words = all(len(word.group()) > 3 for word in words)
    return words[0].start() if are_content_words and initials == sorted(short) else None
