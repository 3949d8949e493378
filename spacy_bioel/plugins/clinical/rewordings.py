"""Detect findings that a note words differently from their concept names, such as "febrile" and
"undescended right testis", and findings that share words, such as "micro-retrognathia", "long
smooth philtrum" and "pectus carinatum/excavatum". Reject words that only look like findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.plugins.clinical.layout import read_layout, units_of
from spacy_bioel.plugins.clinical.tables import is_section_name, note_tables
from spacy_bioel.text.normalize import singular_of
from spacy_bioel.types import IntArray

NO_MENTION = "the name of a section, or a word with another meaning in notes"

_Reading = tuple[int, int, tuple[str, ...]]
_AND_OR = r"(?:and/or|and|or|nor|&)"
_COMPOUND_WORD = re.compile(rf"\b(?!{_AND_OR}\b)[A-Za-z]+(?:-[A-Za-z]+)*-?")
_COORDINATED = re.compile(rf" |,? {_AND_OR} |, | ?/ ?")
_SHARED_END = re.compile(rf"(?:,? {_AND_OR} |, | ?/ ?)([A-Za-z]{{6,}})")
_MIN_SHARED_END, _MAX_MODIFIERS, _MAX_HEAD = 4, 3, 2  # the first in letters, the others in words
_IN_COMPOUND = re.compile(r"(?<![a-z])([a-z]+)(?<!\bpost)(?<!\bto)-\Z")
_MAX_CHARS_BEFORE = 24  # Maximum number of characters searched before a span.
# Text before comma-separated modifiers ("a long, smooth philtrum"). After any other text, a comma
# separates findings: "redness of the eye, muscle pain".
_BEFORE_LIST = re.compile(
    r"(?:^|[:;(\n-]|\b(?:an?|has|had|have|with|is|are|no|shows?|his|her)) ?\Z", re.I
)


def find_rewordings(
    text: str, labels_of: Callable[[Iterable[str]], Mapping[str, str]]
) -> list[tuple[int, int, str, str]]:
    """Return the start, end, usual name and label of each reworded finding in a text.

    labels_of (Callable): Returns the label of each name that is in a knowledge base.
    """
    readings = list(_readings(text))
    spellings = {name: _spellings(name) for *_, names in readings for name in names}
    labels = labels_of(dict.fromkeys(chain.from_iterable(spellings.values())))
    found: dict[tuple[int, int], str] = {}
    for start, end, names in readings:
        meant = [next(filter(labels.__contains__, spellings[name]), "") for name in names]
        if all(meant):
            found.setdefault((start, end), meant[0])
    return [(*place, name, labels[name]) for place, name in found.items()]


def is_part(text: str, start: int, end: int, is_name: Callable[[str], bool]) -> bool:
    """Return whether a span is only part of a compound ("neck" in "swan-neck"), or contains a slash
    after a name ("ataxia/tremor" is not an ataxic tremor)."""
    compound = _IN_COMPOUND.search(text, max(0, start - _MAX_CHARS_BEFORE), start)
    if compound and not is_name(compound[1]):
        return True
    first, slash, _ = text[start:end].partition("/")
    return bool(slash) and is_name(first) and not is_name(text[start:end])


def have_other_meaning(text: str, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Return a mask of the spans in a note that are not mentions, because they are in a section
    name ("PE:") or mean something else ("RA" in "98% on RA").

    starts, ends (IntArray): Character offsets. Shape (n,) each.
    """
    heads = (n.head for n in read_layout(text) if n.kind in ("section", "list", "pair"))
    places = [head for head in heads if is_section_name(text[slice(*head)])]
    for pattern in _other_meanings():
        places += [match.span(1) for match in pattern.finditer(text)]
    if not places:
        return np.zeros(len(starts), dtype=bool)
    place_starts, place_ends = np.array(sorted(places)).T
    # A span is covered if some place starts at or before its start and ends at or after its end.
    n_before = np.searchsorted(place_starts, starts, side="right")
    return np.append(-1, np.maximum.accumulate(place_ends))[n_before] >= ends


def are_apart(text: str, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Return a mask of spans that begin in one sentence, cell or item and end in another."""
    first, last = (np.searchsorted(units_of(text), x, "right") for x in (starts, ends - 1))
    return np.asarray(first < last)


def _spellings(name: str) -> tuple[str, ...]:
    """Return a name with its last word unchanged, in the singular, and in the plural."""
    start, space, last = name.rpartition(" ")
    return name, start + space + singular_of(last), name + "s"


def _readings(text: str) -> Iterator[_Reading]:
    """Yield offsets with strings. If all of these are names, the text means the first one."""
    matches, tables = list(_COMPOUND_WORD.finditer(text)), note_tables()
    words = [match[0].lower().replace("-", " ") for match in matches]
    gaps = [text[a.end() : b.start()] for a, b in pairwise(matches)] + [""] * bool(matches)

    def whole(first: int, last: int, *choices: Iterable[int]) -> Iterator[_Reading]:
        """Yield the offsets of words `first` to `last`, with a name for each choice of words."""
        names = tuple(" ".join([words[k] for k in choice]) for choice in choices)
        yield matches[first].start(), matches[last].end(), names

    def is_phrase(first: int, last: int) -> bool:
        return first >= 0 and last < len(words) and all(gap == " " for gap in gaps[first:last])

    for i, (match, gap) in enumerate(zip(matches, gaps, strict=True)):
        start, end, word = match.start(), match.end(), match[0].lower()
        if (word[-1] == "-" or gap == "/") and (shared := _SHARED_END.match(text, end)):
            other = shared[1].lower()
            for k in range(2, len(other) - _MIN_SHARED_END + 1):
                yield start, shared.end(), (word.rstrip("-") + other[k:], other)
        elif "-" in word:
            for last in (i, i + 1, i + 2):
                if is_phrase(i, last):
                    name = " ".join([word.replace("-", ""), *words[i + 1 : last + 1]])
                    yield start, matches[last].end(), (name,)
        elif word in tables["adjectives"] and _after_adjective().match(text, end):
            yield start, end, (tables["adjectives"][word],)
        for before, after in ((b, a) for b in (1, 2) for a in (1, 2, 3) if word in tables["sides"]):
            first, last = i - before, i + after
            if is_phrase(first, last):
                yield from whole(first, last, [*range(first, i), *range(i + 1, last + 1)])
        for first in (i - 1, i - 2) if gap.strip() == "/" else ():
            if is_phrase(first, i):
                yield from whole(first, i + 1, [*range(first, i), i + 1], range(first, i + 1))
        is_broad = gap == " " and word in tables["broad_modifiers"]
        if is_broad or (gap == ", " and not _BEFORE_LIST.search(text, max(0, start - 8), start)):
            continue
        for last in range(i + 1, min(i + _MAX_MODIFIERS, len(gaps))):
            if not STOP_WORDS.isdisjoint(words[last - 1 : last + 1]):
                break
            if not _COORDINATED.fullmatch(gaps[last - 1]):
                break
            for end_of_head in range(last + 1, last + _MAX_HEAD + 1):
                if is_phrase(last, end_of_head):
                    head = range(last + 1, end_of_head + 1)
                    yield from whole(i, end_of_head, *([k, *head] for k in range(i, last + 1)))


@cache
def _after_adjective() -> re.Pattern[str]:
    """Return a pattern for what may follow an adjective that is itself a finding: "febrile." and
    "febrile boy", but not "febrile seizures"."""
    words = "|".join(note_tables()["after_adjectives"])
    return re.compile(rf"\s*(?:\Z|[.,;:)/\n\[☐☑☒□■]|(?:{words})\b)", re.I)


@cache
def _other_meanings() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in note_tables()["other_meanings"]]
