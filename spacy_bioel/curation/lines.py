"""Read pairs of a name and an id from a line of running text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from spacy_bioel.curation.pairs import Anchor, Pair, Reading
from spacy_bioel.io.open import Place

_AROUND_NAMES = " \t*_`\"'“”„,:=–—-"  # around names: white space, emphasis, quotes and separators
_LIST_MARK = re.compile(r"\s{0,99}(?:[-*•>#+]{1,6}|\d{1,3}[.)])\s{1,9}")
_CLAUSE_START = re.compile(r"[;|•\t\])}]|[.:!?]\s")
_CLAUSE = re.compile(r"(?:\([^()]{0,200}\)|[^;|•\t\])}(.!?]|[.!?](?!\s|$))*")
# An opening bracket before an id, perhaps with words such as "HPO id:".
_BRACKET_BEFORE = re.compile(
    r"[(\[][ *_`\"']{0,9}(?:[\w ]{0,20}\b(?:id|ID|code|curie|CURIE)[:= ]{1,3})?[`*]{0,3}$"
)
_BETWEEN = re.compile(r"[\s,;/|&*_`]{0,9}(?:and|or)?[\s,;/|&*_`]{0,9}")  # ids with the same name
_BANG = re.compile(r"[\s`*]{0,9}!")
_NAME_IN_BRACKETS = re.compile(r"[\s*_`]{0,9}\(([^()]{2,200})\)")
_MAX_LOOK_BACK = 300  # characters before an id that may contain its name
# Words of sentences: a line with one of these is more than a name and an id.
_PROSE = re.compile(
    r"\b(?:is|are|was|were|as|see|use[ds]?|has|have|had|the|this|that|which|under|by|from|code[sd]?)\b",
    re.I,
)


def line_pairs(line: str, place: Place, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the pairs in a line: "name (CURIE)", "CURIE ! name", "[name](address)" and others."""
    matches = list(ids.finditer(line))
    ends = [0, *(match.end() for match in matches)]
    starts = [*(match.start() for match in matches[1:]), len(line)]
    shared: tuple[Reading, ...] = ()  # of the ids in one bracket
    names_follow = False
    for left, match, right in zip(ends, matches, starts, strict=False):
        between = line[left : match.start()]
        if left and between == "](":
            continue  # the address of a link whose text is an id
        if not (shared and between and _BETWEEN.fullmatch(between)):
            readings = _readings_at(line, left, *match.span(), right)
            is_firm_name = bool(readings) and readings[0].is_firm
            shared = readings if is_firm_name and readings[0].anchor is Anchor.END else ()
            if not left:
                names_follow = bool(readings) and readings[0].anchor is Anchor.START
            elif names_follow and not is_firm_name:
                readings = tuple(r for r in readings if r.anchor is Anchor.START)
        yield Pair(match[0], place, match.start(), shared or readings)


def _readings_at(line: str, left: int, start: int, end: int, right: int) -> tuple[Reading, ...]:
    """Return the words before and after the id at start to end that may contain its name."""
    if match := _BANG.match(line, end, right):
        return _reading(line, match.end(), right, Anchor.WHOLE)
    if line.endswith("](", left, start):
        return _reading(line, line.rfind("[", left, start) + 1, start - 2, Anchor.WHOLE)
    opened = _BRACKET_BEFORE.search(line, max(left, start - 40), start)
    stop = opened.start() if opened else start
    first = max(left, start - _MAX_LOOK_BACK)
    for clause in _CLAUSE_START.finditer(line, first, stop):
        first = clause.end() if line[clause.end() : stop].strip(_AROUND_NAMES) else first
    bullet = _LIST_MARK.match(line, first, stop)
    before = _reading(line, bullet.end() if bullet else first, stop, Anchor.END)
    if opened and before:
        return before
    if brackets := _NAME_IN_BRACKETS.match(line, end, right):
        after = _reading(line, *brackets.span(1), Anchor.WHOLE, is_firm=not before)
        return after + tuple(replace(reading, is_firm=False) for reading in before)
    skipped = end + (opened is not None and line[end : end + 1] in (")", "]"))
    clause_end = _CLAUSE.match(line, skipped, right).end()  # type: ignore[union-attr]
    after = _reading(line, skipped, clause_end, Anchor.START)
    # Only in a line with nothing else must the words be a name.
    is_whole = bool(before) != bool(after) and not left
    is_whole = is_whole and not line[clause_end if after else end :].strip(_AROUND_NAMES + ".)]}")
    return tuple(
        replace(reading, is_firm=is_whole and not _PROSE.search(reading.words))
        for reading in before + after
    )


def _reading(
    line: str, start: int, end: int, anchor: Anchor, *, is_firm: bool = True
) -> tuple[Reading, ...]:
    """Return a reading of a part of a line without the marks around it; none without letters."""
    words = line[start:end].rstrip(_AROUND_NAMES + "([")
    start += len(words) - len(words.lstrip(_AROUND_NAMES))
    words = words.lstrip(_AROUND_NAMES)
    has_letter = any(map(str.isalpha, words))
    return (Reading(words, start, anchor, is_firm),) if has_letter else ()
