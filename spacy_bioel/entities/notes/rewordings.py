"""Findings whose names a note words differently, or shares: "undescended right testis",
"micro-retrognathia", "long smooth philtrum", "pectus carinatum/excavatum", "febrile".

Names are made from the words of the text, and count if a knowledge base has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain, pairwise

from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.entities.notes.layout import note_tables
from spacy_bioel.text.normalize import singular_of

# Start and end in characters, and names that all have to be known; the first is meant.
_Reading = tuple[int, int, tuple[str, ...]]
_CONJUNCTION = r"(?:and/or|and|or|nor|&)"
_WORD = re.compile(rf"(?!{_CONJUNCTION}\b)[A-Za-z]+(?:-[A-Za-z]+)*-?")
_COORDINATED = re.compile(rf" |,? {_CONJUNCTION} |, | ?/ ?")
_SHARED_END = re.compile(rf"(?:,? {_CONJUNCTION} |, | ?/ ?)([A-Za-z]{{6,}})")
_MIN_SHARED, _MAX_MODIFIERS, _MAX_HEAD = 4, 3, 2  # letters, words, words
_MAX_FIRST_PART = 24  # characters of a compound before its hyphen
_IN_COMPOUND = re.compile(r"([a-z]+)(?<!\bpost)(?<!\bto)-\Z")
# A modifier before a comma starts its phrase: not in "redness of the eye, muscle pain".
_BEFORE_LIST = re.compile(
    r"(?:^|[:;(\n-]|\b(?:an?|has|had|have|with|is|are|no|shows?|his|her)) ?\Z", re.I
)


def find_rewordings(
    text: str, labels_of: Callable[[Iterable[str]], Mapping[str, str]]
) -> list[tuple[int, int, str, str]]:
    """Return the start and end of findings in a text, with the names that they mean, and labels.

    labels_of (Callable): Returns those of many names that are in a knowledge base, with labels.
    """
    readings = list(_readings(text))
    spellings = {name: _spellings(name) for *_, names in readings for name in names}
    labels = labels_of(dict.fromkeys(chain.from_iterable(spellings.values())))
    found: dict[tuple[int, int], str] = {}
    for start, end, names in readings:
        known_names = [next(filter(labels.__contains__, spellings[name]), "") for name in names]
        if all(known_names):
            found.setdefault((start, end), known_names[0])
    return [(*place, name, labels[name]) for place, name in found.items()]


def is_part(text: str, start: int, end: int, is_name: Callable[[str], bool]) -> bool:
    """Return whether a span is part of a compound ("neck" in "swan-neck"), or contains a slash
    after a name ("ataxia/tremor" is no ataxic tremor).

    is_name (Callable): Whether a string is a name in the knowledge base.
    """
    compound = _IN_COMPOUND.search(text, max(0, start - _MAX_FIRST_PART), start)
    if compound and not is_name(compound[1]):
        return True
    first, slash, _ = text[start:end].partition("/")
    return bool(slash) and is_name(first) and not is_name(text[start:end])


def _spellings(name: str) -> tuple[str, ...]:
    """Return a name with its last word as it is, in the singular and in the plural."""
    start, space, last = name.rpartition(" ")
    return name, start + space + singular_of(last), name + "s"


def _readings(text: str) -> Iterator[_Reading]:
    matches = list(_WORD.finditer(text))
    words = [match[0].lower().replace("-", " ") for match in matches]
    gaps = [text[a.end() : b.start()] for a, b in pairwise(matches)]
    broad, sides = map(frozenset, (note_tables()["broad_modifiers"], note_tables()["sides"]))

    def spaced(first: int, last: int) -> bool:
        """Whether only single spaces separate words that exist."""
        return 0 <= first and last < len(words) and all(g == " " for g in gaps[first:last])

    for i, match in enumerate(matches):
        start, end, word = match.start(), match.end(), match[0].lower()
        if word.endswith("-") and (shared := _SHARED_END.match(text, end)):
            whole = shared[1].lower()
            for k in range(2, len(whole) - _MIN_SHARED + 1):
                yield start, shared.end(), (word[:-1] + whole[k:], whole)
        elif "-" in word:
            for last in filter(partial(spaced, i), (i, i + 1, i + 2)):
                name = " ".join([word.replace("-", ""), *words[i + 1 : last + 1]])
                yield start, matches[last].end(), (name,)
        if (noun := _noun_of(word)) and _adjective_end().match(text, end):
            yield start, end, (noun,)
        if word in sides:
            for first, last in ((i - b, i + a) for b in (1, 2) for a in (1, 2, 3)):
                if spaced(first, last):
                    name = " ".join(words[first:i] + words[i + 1 : last + 1])
                    yield matches[first].start(), matches[last].end(), (name,)
        for first in (i - 1, i - 2) if i < len(gaps) and gaps[i].strip() == "/" else ():
            if spaced(first, i):
                names = tuple(" ".join([*words[first:i], words[k]]) for k in (i + 1, i))
                yield matches[first].start(), matches[i + 1].end(), names
        if word in STOP_WORDS or not (i < len(gaps) and _COORDINATED.fullmatch(gaps[i])):
            continue
        if gaps[i] == " " and words[i] in broad:
            continue
        if gaps[i] == ", " and not _BEFORE_LIST.search(text, max(0, start - 8), start):
            continue
        for last in range(i + 1, min(i + _MAX_MODIFIERS, len(gaps))):
            if words[last] in STOP_WORDS or not _COORDINATED.fullmatch(gaps[last - 1]):
                break
            for end_ in range(last + 1, last + _MAX_HEAD + 1):
                if spaced(last, end_):
                    head = " ".join(words[last + 1 : end_ + 1])
                    names = tuple(f"{modifier} {head}" for modifier in words[i : last + 1])
                    yield start, matches[end_].end(), names


@cache
def _adjective_end() -> re.Pattern[str]:
    """Return what may follow an adjective that is a finding: "febrile." and "febrile boy", but not
    "febrile seizures"."""
    words = "|".join(note_tables()["after_adjectives"])
    return re.compile(rf"\s*(?:\Z|[.,;:)/\n]|(?:{words})\b)", re.I)


def _noun_of(word: str) -> str:
    """Return the finding that an adjective means: "microcephaly" for "microcephalic", or ""."""
    tables = note_tables()
    if word in tables["adjectives"]:
        return str(tables["adjectives"][word])
    for ending, of_noun in tables["adjective_endings"].items():
        if word.endswith(ending):
            return word.removesuffix(ending) + str(of_noun)
    return ""
