"""Rules of what texts say of mentions: phrases and sections, and how they are read from JSON."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from spacy_bioel.errors import BioelError, Errors

# What cues say: flags of a Context, and persons who are not the patient.
FLAGS = ("negated", "uncertain", "historical", "hypothetical")
PERSONS = ("family", "other")
ALL = "all"  # ends the scope of every cue
AFFIRMED = ""  # what an answer or a sign says that is no negation
BESIDE = "negated beside"  # signs that negate in a line with one that affirms: "-" begins items too
_DIRECTIONS = ("forward", "backward", "both", "behind")
# What stands between a question and its answer.
_ASKED = r"(?<=[\w)\]])[^\S\n]*(?:[:(|\t—–]|[^\S\n]--?(?=[^\S\n]))[^\S\n|]*"
_IS = r"[^\S\n]+(?:(?:is|are|was|were)[^\S\n]+)?"


class Phrase(NamedTuple):
    """A phrase of the rules in a text, by offsets in characters.

    says (str | None): Of an answer or a sign; None: what the rules have for its name.
    reach (int): How far back an answer speaks; -1: it speaks for what follows.
    """

    start: int
    end: int
    name: str
    says: str | None = None
    reach: int = -1


@dataclass(frozen=True)
class Rules:
    """Phrases, in small letters, and names of sections, each with what it says.

    cues (Mapping): From a phrase to what it says and in which direction.
    pseudo (frozenset[str]): Phrases that have a cue in them and are none: "no increase".
    ends (Mapping): From a phrase to what cues say whose scopes it ends, or "all".
    sections (Mapping): From the name of a section to what it says; "" for nothing.
    answers (Mapping): From what stands behind a question ("Fever: no") to what it says: a flag, or
        "" where it affirms.
    signs (Mapping): The same of what stands right before or behind a name: "(-) fever".
    opens (Sequence[str]): First words of a sentence that is of no section any more.
    empty (Sequence[str]): What a section says that has nothing: "noncontributory".
    now (Sequence[str]): What tells that a sentence in a section of the past is of today.
    """

    cues: Mapping[str, Sequence[tuple[str, str]]]
    pseudo: frozenset[str] = frozenset()
    ends: Mapping[str, set[str]] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, str] = field(default_factory=dict)
    opens: Sequence[str] = ()
    empty: Sequence[str] = ()
    now: Sequence[str] = ()

    @property
    def phrases(self) -> list[str]:
        """All phrases that are looked for."""
        return list(dict.fromkeys([*self.cues, *self.pseudo, *self.ends]))

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Of what is not looked for word by word."""
        affirming = (answer for answer, says in self.answers.items() if says == AFFIRMED)
        found = {
            "answer": rf"{_ASKED}(?P<mark>{_any(self.answers)})",
            "affirmed": rf"{_IS}(?:{_any(affirming)})",
            "sign": rf"(?<![\w+/-])(?:{_any(self.signs)})(?![\d/])",
            "opens": rf"(?:{_any(self.opens)})",
            "now": rf"(?<!\w)(?:{_any(self.now)})",
            "empty": rf"\s*(?:(?:is|was)\s)?(?:{_any(self.empty)})(?![\w,]| \w)",
        }
        return {name: re.compile(pattern, re.I) for name, pattern in found.items()}


def _any(words: Iterable[str]) -> str:
    """Pattern of one of several strings, which are whole words; of none it matches nothing."""
    longest = sorted(words, key=len, reverse=True)
    return "|".join(re.escape(w) + r"(?!\w)" * w[-1].isalnum() for w in longest) or r"(?!)"


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
            _check(says, (*FLAGS, *PERSONS))
            _check(direction, _DIRECTIONS)
            for phrase in _phrases(phrases):
                cues[phrase].append((says, direction))
    ends: dict[str, set[str]] = defaultdict(set)
    for of, phrases in table.get("ends", {}).items():
        for phrase in _phrases(phrases):
            ends[phrase].add(_check(of, (*FLAGS, *PERSONS, ALL)))
    sections = {
        name: _check(says, (*FLAGS, *PERSONS, ""))
        for says, names in table.get("sections", {}).items()
        for name in _phrases(names)
    }
    answers, signs = (
        {
            name: _check(says, (*FLAGS, AFFIRMED, BESIDE))
            for says, names in table.get(key, {}).items()
            for name in _phrases(names)
        }
        for key in ("answers", "signs")
    )
    pseudo, *lists = (_phrases(table.get(key, ())) for key in ("pseudo", "opens", "empty", "now"))
    return Rules(dict(cues), frozenset(pseudo), dict(ends), sections, answers, signs, *lists)


def _check(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(filter(None, known))}")
    return name


def _phrases(found: Any) -> list[str]:
    if isinstance(found, str) or not all(isinstance(one, str) and one.split() for one in found):
        raise ValueError(f"expected a list of phrases, found {found!r:.60}")
    return [" ".join(one.lower().split()) for one in found]
