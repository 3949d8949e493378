"""What a text says of a mention: negated, uncertain, past, conditional, or of another person.

ConText: Harkema et al. (2009), ConText: An algorithm for determining negation, experiencer, and
temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002; for negation
Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. A cue ("denies", "was ruled out")
speaks for the mentions after or before it, up to the end of its sentence or a word that ends its
scope ("but"). Sections ("Family history:") speak for all mentions in them. Answers and signs speak
for what stands beside them, see `text.marks`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import cache
from operator import itemgetter

from spacy_bioel.text.marks import is_behind_list, with_marks
from spacy_bioel.text.rules import AFFIRMED, ALL, FLAGS, PERSONS, Phrase, Rules
from spacy_bioel.types import Context

_ABBREVIATIONS = frozenset("dr mr mrs ms prof st vs no approx dept fig e.g i.e al".split())
# Where a sentence may end: after a full stop and white space, or at the end of a line.
_ENDS = re.compile(r"(?P<stop>[.!?]+[\"')\]]*)\s+|(?<![ \t])[ \t]*\r?\n[ \t]*")
_WORD_BEFORE = re.compile(r"[\w.]*\Z")
_INITIAL = re.compile(r"\b(?:dr|mr|mrs|ms|prof)\.?\s+[a-z]\Z", re.I)  # "Dr. J. Smith"
_HEADER = re.compile(
    r"(?:^|(?<=[.;])[ \t])[ \t]*(?P<name>[A-Za-z][A-Za-z/&' -]{1,48}?)[ \t]*:", re.M
)
_ITEM = re.compile(r"[-*•·|]|[^\n\t]{1,40}\t\S|\(?\d{1,2}[.)]\s|[A-Z][A-Za-z/&' -]{1,48}:")
# From a mention to what speaks for it: no comma, or an enumeration; to what it is a part of.
_LISTED = re.compile(r"[^,]*|\s*(?:[,/&]|and\b|or\b).*", re.S)
_JOINED = re.compile(r"\s*(?:(?:[/&]|and\b|or\b)[^.,;:]*)?")
_LINE = re.compile(r"[^\S\n]*[^\s]")  # something on the line of a header
_NEAR = 30  # phrases on a side that may speak for a mention, or end what others say
_SHORT = 0.7  # part of the longest line from which on a line is full, and goes on in the next one


def contexts(
    text: str, rules: Rules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Context]:
    """Return what the text says of each mention.

    phrases (Sequence[Phrase]): Those of the rules that are in the text, in order; none overlap.
    mentions (Sequence): Start and end of each; they may overlap.
    """
    borders = sentence_borders(text)
    sections = list(_sections(text, rules, borders))
    phrases = with_marks(text, rules, phrases, mentions)
    by_sentence: dict[int, list[Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_sentence[bisect_right(borders, phrase.start)].append(phrase)
    limits = [0, *borders, len(text)]

    @cache
    def is_of_today(number: int) -> bool:
        return bool(rules.patterns["now"].search(text, *limits[number : number + 2]))

    found = []
    for start, end in mentions:
        number = bisect_right(borders, start)
        sentence = by_sentence[number]
        at = bisect_right(sentence, (start,))  # a text without sentences takes linear time
        near = sentence[max(0, at - _NEAR) : at + _NEAR]
        said = list(_said_of(start, end, near, rules, text))
        if any(says == AFFIRMED for *_, says in said):
            said = [one for one in said if one[2] not in (AFFIRMED, "negated")]
        behind = bisect_right(sections, start, key=itemgetter(1))
        for first, last, stop, says in sections[max(0, behind - 1) : behind]:
            is_meant = start < stop and not (says == "historical" and is_of_today(number))
            if is_meant and says not in {what for *_, what in said}:
                said.append((first, last, says))
        what = {says for *_, says in said}
        person = next((person for person in PERSONS if person in what), "patient")
        flags = {flag: flag in what for flag in FLAGS}
        found.append(Context(**flags, experiencer=person, cues=tuple(sorted(set(said)))))
    return found


def _said_of(
    start: int, end: int, phrases: Sequence[Phrase], rules: Rules, text: str
) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of a sentence that speak for a mention in it."""
    for cue in phrases:
        if cue.reach >= 0:
            if cue.reach < end <= cue.start and _LISTED.fullmatch(text, end, cue.start):
                yield cue.start, cue.end, str(cue.says)
            continue
        own = () if cue.says is None else ((cue.says, "forward"),) * (cue.says != AFFIRMED)
        for says, direction in own or rules.cues.get(cue.name, ()):
            if cue.end <= start and direction in ("forward", "both"):
                first, last = cue.end, start
                if says == "negated" and is_behind_list(text, first, start, end, rules):
                    continue
            elif end <= cue.start and direction != "forward":
                first, last = end, cue.start
                if direction == "behind" and not _JOINED.fullmatch(text, first, last):
                    continue
            else:
                continue
            between = (p for p in phrases if first <= p.start and p.end <= last)
            if not any(_ends(phrase, says, rules) for phrase in between):
                yield cue.start, cue.end, says


def _ends(phrase: Phrase, says: str, rules: Rules) -> bool:
    if phrase.says is not None:
        return says == "negated"
    return not {ALL, says}.isdisjoint(rules.ends.get(phrase.name, ()))


def _sections(
    text: str, rules: Rules, borders: Sequence[int]
) -> Iterator[tuple[int, int, int, str]]:
    """Sections that say something of what is in them: start and end of the header, and the end.

    A section ends at the next header. "PMH: asthma" is one of a line, and goes on with a list.
    """
    found = list(headers(text, rules.sections, capitals=True))
    ends = [header.start() for header, _ in found[1:]] + [len(text)]
    for (header, name), end in zip(found, ends, strict=False):  # there may be no header
        says = rules.sections.get(name, "")
        if not says:
            continue
        starts = borders[bisect_right(borders, header.end()) : bisect_left(borders, end)]
        is_empty = rules.patterns["empty"].match(text, header.end())
        is_of_a_line = _LINE.match(text, header.end())
        for at in starts:
            goes_on = _ITEM.match(text, at) or text[at - 1] != "\n" or not is_of_a_line
            if is_empty or not goes_on or rules.patterns["opens"].match(text, at):
                end = at
                break
        yield header.start("name"), header.end(), end, says


def headers(
    text: str, names: Container[str], *, capitals: bool = False
) -> Iterator[tuple[re.Match[str], str]]:
    """Find headers, "Allergies:", with their names in small letters.

    capitals (bool): Also those in capitals that are not among the names.
    """
    for match in _HEADER.finditer(text):
        name = " ".join(match["name"].lower().split())
        if name in names or (capitals and match["name"].isupper()):
            yield match, name


def describe(said: Context, text: str) -> str:
    """Write what a text says of a mention, and the words that say so: 'negated ("denies")'."""
    cues: dict[str, list[str]] = defaultdict(list)
    for start, end, says in said.cues:
        cues[says].append(" ".join(text[start:end].split()))
    return ", ".join(f'{says} ("{", ".join(words)}")' for says, words in cues.items())


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
            is_short = word in _ABBREVIATIONS or bool(_INITIAL.search(before))
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
