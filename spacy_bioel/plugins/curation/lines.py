"""Read pairs of a name and an id from a line of running text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from spacy_bioel.plugins.curation.ids import ID_LABEL
from spacy_bioel.plugins.curation.pairs import Cell, Pair

_AROUND_NAMES = " \t*_`\"'“”„,:=–—-([{"  # white space, emphasis, quotes, separators and brackets
LIST_MARK = re.compile(r"\s{0,99}(?:[-*•>#+]{1,6}|\d{1,3}[.)])\s{1,9}")
# The full stops in "E. coli", "St. Louis" and "graft vs. host" end no clause.
_NOT_SHORT = "".join(rf"(?<!\b{word})" for word in "[A-Z] St Dr sp spp var subsp vs cf".split())
_STOP = rf"(?:[!?]|{_NOT_SHORT}\.)(?:\s|$)"
_CLAUSE_START = re.compile(rf"[;|•\t\])}}]|:\s|{_STOP}")
_CLAUSE = re.compile(rf"(?:\([^()]{{0,200}}\)|(?!{_STOP})[^;|•\t\])}}(])*")
# Between a name and its id: a footnote, an opening bracket, and a label such as "HPO id:".
_BEFORE_ID = re.compile(
    rf"(?:\[\^?\w{{1,9}}\]\s?)?([(\[])?[ *_`\"']{{0,9}}(?:(?<!\w){ID_LABEL}[\s*_`:=,]{{0,9}})?$"
)
_NAME_LABEL = re.compile(r"(?:[\s*_`,;|—–-]{0,9}(?:[Nn]ame|[Ll]abel|[Tt]erm)[*_` ]{0,9}:)?")
_OPEN = re.compile(r"\([^()]*$")
_PART = re.compile(r"[^;,]+")
_VERB_PHRASE = re.compile(r"\b(?:is|are|was|were)(?:\s\w{1,20}){1,2}\W{0,9}$")  # "were not seen"
# Between ids that have one name.
BETWEEN_IDS = re.compile(r"[\s,;/|&*_`]{0,9}(?:(?:and|or)\b)?[\s,;/|&*_`]{0,9}")
_BANG = re.compile(r"[\s`*]{0,9}!")
_NAME_IN_BRACKETS = re.compile(r"[\s*_`]{0,9}\(([^()]{2,200})\)")
_MAX_LOOK_BACK = 300  # characters before an id that may contain its name
_MAX_WORDS = 12  # words before or after an id that may be its name
_NOT_SPACES = re.compile(r"\S+")
# Words of sentences: a line with one of these is more than a name and an id.
_PROSE = re.compile(
    r"\b(?:is|are|was|were|as|see|use[ds]?|has|have|had|the|this|that|which|under|by|from|code[sd]?)\b",
    re.I,
)


def line_pairs(cell: Cell, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the pairs in a line: "name (CURIE)", "CURIE ! name", "[name](address)" and others."""
    line, matches = cell.text, list(ids.finditer(cell.text))
    starts = [*(match.start() for match in matches[1:]), len(line)]
    shared: Sequence[Cell] = ()  # by the ids in one bracket
    left, names_follow = 0, False
    for match, right in zip(matches, starts, strict=False):
        between, start, last = line[left : match.start()], match.start(), left
        left = match.end()
        if last and between == "](":
            continue  # the address of a link whose text is an id
        names, has_name = shared, True
        if not (shared and between and BETWEEN_IDS.fullmatch(between)):
            names, has_name = _names_at(line, last, start, left, right)
            is_before = bool(names) and names[0].at < start
            shared = names if has_name and is_before else ()
            if not last:
                names_follow = bool(names) and not is_before
            elif names_follow and not has_name:
                names = [name for name in names if name.at > start]
        yield Pair(
            cell.part(match[0], start),
            tuple(cell.part(name.text, name.at) for name in names),
            has_name and bool(names),
        )


def _names_at(line: str, left: int, start: int, end: int, right: int) -> tuple[list[Cell], bool]:
    """Return the names that the id at start to end may have, and whether it must have one."""
    if match := _BANG.match(line, end, right):
        return _names(line, match.end(), right), True
    if line.endswith("](", left, start):
        return _names(line, line.rfind("[", left, start) + 1, start - 2), True
    label = _BEFORE_ID.search(line, max(left, start - 60), start)
    stop, is_opened = label.start(), bool(label[1])  # type: ignore[union-attr, index]
    first = max(left, stop - _MAX_LOOK_BACK)
    # "ataxia (clumsy gait; HP:0001251)": before an open bracket, or a part of what is in it.
    bracket = _OPEN.search(line, first, stop)
    outer = bracket.start() if bracket else stop
    for clause in _CLAUSE_START.finditer(line, first, outer):
        first = clause.end() if line[clause.end() : outer].strip(_AROUND_NAMES) else first
    if bullet := LIST_MARK.match(line, first, outer):
        first = bullet.end()
    first = BETWEEN_IDS.match(line, first, outer).end()  # type: ignore[union-attr]
    parts = (part.span() for part in _PART.finditer(line, outer + 1, stop))
    spans = dict.fromkeys([(first, outer), *parts, (first, stop)])
    if stated := _VERB_PHRASE.search(line, first, stop):
        spans[first, stated.start()] = None
    before = [name for span in spans for name in _names(line, *span, last=_MAX_WORDS)]
    if is_opened and before:
        return before, True
    if brackets := _NAME_IN_BRACKETS.match(line, end, right):
        return _names(line, *brackets.span(1)) + before, not before
    skipped = end + (is_opened and line[end : end + 1] in (")", "]"))
    skipped = _NAME_LABEL.match(line, skipped, right).end()  # type: ignore[union-attr]
    clause_end = _CLAUSE.match(line, skipped, right).end()  # type: ignore[union-attr]
    after = _names(line, skipped, clause_end, first=_MAX_WORDS)
    # Only in a line with nothing else must the words be a name.
    rest = line[clause_end if after else end :].strip(_AROUND_NAMES + ".)]}")
    is_whole = bool(before) != bool(after) and not left and not rest
    words = line[first:stop] if before else line[skipped:clause_end]
    is_key = line[:stop].rstrip(_AROUND_NAMES.replace(":", "")).endswith(":")  # "Parent: HP:1"
    return before + after, is_whole and not is_key and not _PROSE.search(words)


def _names(line: str, start: int, end: int, *, first: int = 0, last: int = 0) -> list[Cell]:
    """Return the strings in a part of a line that may be a name, the longest first.

    first, last (int): If other words may follow or precede the name, its number of words, at most.
    """
    spans = [(start, end)]
    if first:
        words = islice(_NOT_SPACES.finditer(line, start, end), first)
        spans = [(start, match.end()) for match in words][::-1]
    elif last:
        spans = [(match.start(), end) for match in _NOT_SPACES.finditer(line, start, end)][-last:]
    after = _AROUND_NAMES + ".;" * bool(first)
    cells = (Cell(line[a:b].rstrip(after), at=a).stripped(_AROUND_NAMES) for a, b in spans)
    return [cell for cell in dict.fromkeys(cells) if any(map(str.isalpha, cell.text))]
