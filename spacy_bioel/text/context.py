"""What a text says of a mention: negated, uncertain, past, conditional, or of another person.

ConText: Harkema et al. (2009), ConText: An algorithm for determining negation, experiencer, and
temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002; for negation
Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. A cue ("denies", "was ruled out")
speaks for the mentions after or before it, up to the end of its sentence or a word that ends its
scope ("but"). Sections ("Family history:") speak for all mentions in them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import Context

# What cues say: flags of a Context, and persons who are not the patient.
_FLAGS = ("negated", "uncertain", "historical", "hypothetical")
_PERSONS = ("family", "other")
_DIRECTIONS = ("forward", "backward", "both")
_ALL = "all"  # ends the scope of every cue

_ABBREVIATIONS = frozenset("dr mr mrs ms prof st vs no approx dept fig e.g i.e al".split())
# Where a sentence may end: after a full stop and white space, or at the end of a line.
_ENDS = re.compile(r"(?P<stop>[.!?]+[\"')\]]*)\s+|[ \t]*\r?\n[ \t]*")
_WORD_BEFORE = re.compile(r"[\w.]*\Z")
_INITIAL = re.compile(r"\b(?:dr|mr|mrs|ms|prof)\.?\s+[a-z]\Z", re.I)  # "Dr. J. Smith"
_HEADER = re.compile(
    r"(?:^|(?<=[.;])[ \t])[ \t]*(?P<name>[A-Za-z][A-Za-z/&' -]{1,48}?)[ \t]*:", re.M
)
_ITEM = re.compile(r"[-*•·]|\(?\d{1,2}[.)]\s|[A-Z][A-Za-z/&' -]{1,48}:")
_SHORT = 0.7  # part of the longest line from which on a line is full, and goes on in the next one


@dataclass(frozen=True)
class Rules:
    """Phrases, in small letters, and names of sections, each with what it says.

    cues (Mapping): From a phrase to what it says and in which direction.
    pseudo (frozenset[str]): Phrases that have a cue in them and are none: "no increase".
    ends (Mapping): From a phrase to what cues say whose scopes it ends, or "all".
    sections (Mapping): From the name of a section to what it says; "" for nothing.
    """

    cues: Mapping[str, Sequence[tuple[str, str]]]
    pseudo: frozenset[str] = frozenset()
    ends: Mapping[str, set[str]] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def phrases(self) -> list[str]:
        """All phrases that are looked for."""
        return list(dict.fromkeys([*self.cues, *self.pseudo, *self.ends]))


def read_rules(path: Path) -> dict[str, Any]:
    """Read the JSON of a file such as spacy_bioel/assets/context.json. RAISES BioelError: [B490]"""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(Errors.B490.format(path=path, error=error)) from error


def parse_rules(table: Mapping[str, Any], *, origin: str) -> Rules:
    """Parse the contents of a file of rules. RAISES BioelError: [B490]"""
    try:
        return _rules(table)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BioelError(Errors.B490.format(path=origin, error=error)) from error


def _rules(table: Mapping[str, Any]) -> Rules:
    cues: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for says, by_direction in table["cues"].items():
        for direction, phrases in by_direction.items():
            _check(says, (*_FLAGS, *_PERSONS))
            _check(direction, _DIRECTIONS)
            for phrase in _phrases(phrases):
                cues[phrase].append((says, direction))
    ends: dict[str, set[str]] = defaultdict(set)
    for of, phrases in table.get("ends", {}).items():
        for phrase in _phrases(phrases):
            ends[phrase].add(_check(of, (*_FLAGS, *_PERSONS, _ALL)))
    sections = {
        name: _check(says, (*_FLAGS, *_PERSONS, ""))
        for says, names in table.get("sections", {}).items()
        for name in _phrases(names)
    }
    return Rules(dict(cues), frozenset(_phrases(table.get("pseudo", ()))), dict(ends), sections)


def _check(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(filter(None, known))}")
    return name


def _phrases(found: Any) -> list[str]:
    if isinstance(found, str) or not all(isinstance(one, str) and one.split() for one in found):
        raise ValueError(f"expected a list of phrases, found {found!r:.60}")
    return [" ".join(one.lower().split()) for one in found]


class Phrase(NamedTuple):
    """A phrase of the rules in a text, by offsets in characters."""

    start: int
    end: int
    name: str


def contexts(
    text: str, rules: Rules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Context]:
    """Return what the text says of each mention.

    phrases (Sequence[Phrase]): Those of the rules that are in the text, in order; none overlap.
    mentions (Sequence): Start and end of each; they may overlap.
    """
    borders = sentence_borders(text)
    edges = [0, *borders, len(text)]
    sections = list(_sections(text, rules, borders))
    by_sentence: dict[int, list[Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_sentence[bisect_right(borders, phrase.start)].append(phrase)
    found = []
    for start, end in mentions:
        number = bisect_right(borders, start)
        in_row = _is_row(text[edges[number] : edges[number + 1]])
        said = list(_said_of(start, end, by_sentence[number], rules, in_row=in_row))
        for first, last, stop, says in sections:
            if last <= start < stop and says not in {what for *_, what in said}:
                said.append((first, last, says))
        what = {says for *_, says in said}
        person = next((person for person in _PERSONS if person in what), "patient")
        flags = {flag: flag in what for flag in _FLAGS}
        found.append(Context(**flags, experiencer=person, cues=tuple(sorted(set(said)))))
    return found


def _said_of(
    start: int, end: int, phrases: Sequence[Phrase], rules: Rules, *, in_row: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of a sentence that speak for a mention in it; in a row, "fever | no" too."""
    for cue in phrases:
        for says, direction in rules.cues.get(cue.name, ()):
            if cue.end <= start and (in_row or direction != "backward"):
                first, last = cue.end, start
            elif end <= cue.start and (in_row or direction != "forward"):
                first, last = end, cue.start
            else:
                continue
            between = (p.name for p in phrases if first <= p.start and p.end <= last)
            if all({_ALL, says}.isdisjoint(rules.ends.get(name, ())) for name in between):
                yield cue.start, cue.end, says


def _sections(
    text: str, rules: Rules, borders: Sequence[int]
) -> Iterator[tuple[int, int, int, str]]:
    """Sections that say something of what is in them: start and end of the header, and the end.

    A section ends at the next header. "PMH: asthma" is one of a line, and goes on with a list.
    """
    found = [(m, " ".join(m["name"].lower().split())) for m in _HEADER.finditer(text)]
    headers = [(m, name) for m, name in found if m["name"].isupper() or name in rules.sections]
    ends = [header.start() for header, _ in headers[1:]] + [len(text)]
    for (header, name), end in zip(headers, ends, strict=False):  # there may be no header
        says = rules.sections.get(name, "")
        if not says:
            continue
        if text[header.end() :].partition("\n")[0].strip():
            lines = (at for at in borders if header.end() < at < end and text[at - 1] == "\n")
            end = next((at for at in lines if not _ITEM.match(text, at)), end)
        yield header.start("name"), header.end(), end, says


def describe(said: Context, text: str) -> str:
    """Write what a text says of a mention, and the words that say so: 'negated ("denies")'."""
    cues: dict[str, list[str]] = defaultdict(list)
    for start, end, says in said.cues:
        cues[says].append(" ".join(text[start:end].split()))
    return ", ".join(f'{says} ("{", ".join(words)}")' for says, words in cues.items())


def _is_row(line: str) -> bool:
    """Tell whether a line is a row of a table."""
    return "\t" in line.strip() or "|" in line


def sentence_borders(text: str) -> list[int]:
    """Where sentences begin, except the first.

    A line that is hard-wrapped goes on in the next one. A sentence ends with its line before an
    empty line, an item of a list or a header, and after a row of a table or a line that is not
    full, unless the next one begins with a small letter.
    """
    lines = [len(line) for line in text.split("\n")]
    full = _SHORT * max(lines)
    borders: list[int] = []
    line_start = 0
    for match in _ENDS.finditer(text):
        at = match.end()
        if match["stop"]:
            before = text[max(0, match.start() - 8) : match.start()]
            word = _WORD_BEFORE.search(before)
            is_short = word and word.group().lower() in _ABBREVIATIONS or _INITIAL.search(before)
            if match["stop"][0] != "." or not (is_short or text[at : at + 1].islower()):
                borders.append(at)
            if "\n" in match.group():
                line_start = at
            continue
        rest = text[at : at + 52]
        is_full = match.start() - line_start >= full
        goes_on = rest[:1].islower() or (is_full and rest[:1] not in ("", "\r", "\n"))
        if not goes_on or _ITEM.match(rest) or _is_row(text[line_start : match.start()]):
            borders.append(at)
        line_start = at
    return borders
