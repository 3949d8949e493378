"""The rules of the `bioel_context` pipe: phrases and names, with the status that they assign."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.clinical.errors import ClinicalErrors

# Statuses that cues assign to mentions: Context flags, and persons other than the patient.
FLAGS = ("negated", "uncertain", "historical", "hypothetical")
PERSONS = ("family", "other")
ALL_STATUSES = "all"  # for phrases that end the scope of every cue
AFFIRMED = ""  # status for answers and signs that do not negate
# Status for signs that negate only on a line with an affirming sign: "-" also marks list items.
NEGATED_IF_PAIRED = "negated beside"
# Tables of names by status, with the statuses that they may have besides flags; and plain lists.
_NAMES_WITH_STATUS = {
    **dict.fromkeys(("sections", "heads"), PERSONS),
    **dict.fromkeys(("answers", "signs"), (NEGATED_IF_PAIRED,)),
}
_LISTS = ("pseudo", "opens", "empty", "now", "fillers", "patient", "amounts")
_CUE_DIRECTIONS = ("forward", "backward", "both", "behind", "next", "item", "final", "initial")
# Text between a question and its answer. The class comes first, to be searched for fast.
_QUESTION_MARKS = (
    r"[:=(—–?\s](?<=[\w)\]].)(?:(?<=\S)|(?<=\s)[^\S\n]*+(?:[:=(—–?]|--?(?=[^\S\n])))"
    r"(?:(?<=\?)\s*+(?:A(?:nswer)?:[^\S\n]*+)?|[^\S\n]*+)"
)
_VERB = r"[^\S\n]+(?:(?:is|are|was|were)[^\S\n]+)?"


@dataclass(frozen=True)
class ContextRules:
    """Phrases (in lower case) and section names, with the status that they assign to mentions.

    cues (Mapping): Status and direction of each cue.
    pseudo (frozenset[str]): Phrases that contain a cue but are not cues: "no increase".
    ends (Mapping): The statuses whose scope a phrase ends, or "all".
    sections (Mapping): Status for each section name; "" for none.
    heads (Mapping): Status for each name of a list, a key or a column of a table.
    answers (Mapping): Status for each answer after a question ("Fever: no"); "" if it affirms.
    signs (Mapping): Status for each sign before or after a name ("(-) fever"); "" if it affirms.
    opens (frozenset[str]): First words of sentences that end a section.
    empty (frozenset[str]): Contents of sections without findings: "noncontributory".
    now (frozenset[str]): Words that mark a sentence in a historical section as current.
    fillers (frozenset[str]): Words that do not matter in a head: "the following".
    patient (frozenset[str]): Names of the patient in the header of a table: "proband".
    amounts (frozenset[str]): Words that affirm after a question mark: "mild".
    relatives (Mapping): The noun for each word for a relative: "mother" for "mom".
    """

    cues: Mapping[str, Sequence[tuple[str, str]]]
    pseudo: frozenset[str] = frozenset()
    ends: Mapping[str, set[str]] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, str] = field(default_factory=dict)
    opens: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    now: frozenset[str] = frozenset()
    fillers: frozenset[str] = frozenset()
    patient: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    relatives: Mapping[str, str] = field(default_factory=dict)

    @property
    def phrases(self) -> list[str]:
        """All phrases that are matched word by word."""
        return list(dict.fromkeys([*self.cues, *self.pseudo, *self.ends]))

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Patterns for everything that is not matched word by word."""
        affirming = (answer for answer, status in self.answers.items() if status == AFFIRMED)
        answers = _any_of([*self.answers, *self.amounts])
        patterns = {
            "answer": rf"{_QUESTION_MARKS}(?P<mark>{answers}|\d{{1,3}}(?= ))",
            "value": rf"\s{{0,9}}(?P<mark>{_any_of(self.answers)})",
            "affirmed": rf"{_VERB}(?:{_any_of(affirming)})",
            "sign": rf"(?<![\w+/-])(?:{_any_of(self.signs)})(?![\d/])",
            "opens": rf"(?:{_any_of(self.opens)})",
            "now": rf"(?<!\w)(?:{_any_of(self.now)})",
            "empty": rf"\s*(?:(?:is|was)\s)?(?:{_any_of(self.empty)})(?![\w,]| \w)",
        }
        return {name: re.compile(pattern, re.I) for name, pattern in patterns.items()}

    def relative(self, words: str) -> str:
        """Return the noun for the first relative in some words, or ""."""
        known = (self.relatives.get(word) for word in re.findall(r"[\w-]+", words.lower()))
        return next(filter(None, known), "")


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of these strings as whole words; it matches nothing if none."""
    longest_first = sorted(sorted(words), key=len, reverse=True)
    alternatives = [re.escape(w) + (r"(?!\w)" if w[-1].isalnum() else "") for w in longest_first]
    return "|".join(alternatives) or r"(?!)"


def read_rules(path: Path) -> dict[str, Any]:
    """Read a JSON file such as assets/context.json. RAISES BioelError: [B490]"""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        return table
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(ClinicalErrors.B490.format(path=path, error=error)) from error


def parse_rules(table: Mapping[str, Any]) -> ContextRules:
    """Parse the contents of a rules file. Malformed rules raise errors without a code."""
    cues: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for status, phrases_by_direction in table["cues"].items():
        for direction, phrases in phrases_by_direction.items():
            _check_name(status, (*FLAGS, *PERSONS))
            _check_name(direction, _CUE_DIRECTIONS)
            for phrase in _check_phrases(phrases):
                cues[phrase].append((status, direction))
    ends: dict[str, set[str]] = defaultdict(set)
    for status, phrases in table.get("ends", {}).items():
        for phrase in _check_phrases(phrases):
            ends[phrase].add(_check_name(status, (*FLAGS, *PERSONS, ALL_STATUSES)))
    statuses: dict[str, Any] = {
        key: {
            name: _check_name(status, (*FLAGS, AFFIRMED, *others))
            for status, names in table.get(key, {}).items()
            for name in _check_phrases(names)
        }
        for key, others in _NAMES_WITH_STATUS.items()
    }
    relatives = {
        word: noun
        for noun, words in table.get("relatives", {}).items()
        for word in (noun, *_check_phrases(words))
    }
    lists: dict[str, Any] = {key: frozenset(_check_phrases(table.get(key, ()))) for key in _LISTS}
    return ContextRules(dict(cues), ends=dict(ends), relatives=relatives, **statuses, **lists)


def _check_name(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(filter(None, known))}")
    return name


def _check_phrases(phrases: Any) -> list[str]:
    if isinstance(phrases, str) or not all(isinstance(p, str) and p.split() for p in phrases):
        raise ValueError(f"expected a list of phrases, found {phrases!r:.60}")
    expanded = (" ".join(p) for phrase in phrases for p in product(*_alternatives(phrase)))
    return [" ".join(phrase.lower().split()) for phrase in expanded]


def _alternatives(phrase: str) -> Iterator[list[str]]:
    """Yield the alternatives for each part of a phrase: "(is|was) not seen"."""
    for i, part in enumerate(re.split(r"\(([^()|]*+(?:\|[^()|]*+)++)\)", phrase)):
        yield part.split("|") if i % 2 else [part]
