"""Rules for the `bioel_context` pipe: phrases and names, and the status that each assigns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.clinical.clauses import CUE_KINDS
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.words import Cue, CueWords

# Statuses that cues assign to mentions: `Context` flags, and people other than the patient.
FLAGS = ("negated", "uncertain", "historical", "hypothetical")
PERSONS = ("family", "other")
UNKNOWN = "unknown"  # status if the grammar is inconclusive
AFFIRMING = "+"  # marks a cue that ends a negation's scope
AFFIRMED = ""  # Status of an affirming answer or sign.
# Status of a sign that negates only next to an affirming one: a "-" by itself may be a bullet.
NEGATED_IF_PAIRED = "negated beside"
# Rules file keys for names by status (with the statuses allowed in addition to flags), and lists.
_NAMES_WITH_STATUS = {
    **dict.fromkeys(("sections", "heads"), PERSONS),
    **dict.fromkeys(("answers", "signs"), (NEGATED_IF_PAIRED,)),
}
_LISTS = ("study", "case", "opens", "empty", "now", "fillers", "patient", "amounts")
# Text between a question and its answer. The leading character class keeps matching fast.
_QUESTION_MARKS = (
    r"[:=(—–?\s](?<=[\w)\]].)(?:(?<=\S)|(?<=\s)[^\S\n]*+(?:[:=(—–?]|--?(?=[^\S\n])))"
    r"(?:(?<=\?)\s*+(?:A(?:nswer)?:[^\S\n]*+)?|[^\S\n]*+)"
)
_VERB = r"[^\S\n]+(?:(?:is|are|was|were)[^\S\n]+)?"


@dataclass(frozen=True)
class ContextRules:
    """Lower-case cues and names, and the status that each assigns to mentions.

    cue_words (CueWords): Cues, and closed classes of words.
    study, case (frozenset[str]): Words that show that a text is about a study, or about one case.
    sections (Mapping): Status for each section name; "" for none.
    heads (Mapping): Status for each heading of a list, key, or column name of a table.
    answers (Mapping): Status for each answer after a question ("Fever: no"); "" if it affirms.
    signs (Mapping): Status for each sign before or after a name ("(-) fever"); "" if it affirms.
    opens (frozenset[str]): First words of sentences that end a section.
    empty (frozenset[str]): Words that fill a section without findings: "noncontributory".
    now (frozenset[str]): Words that mark a sentence in a historical section as current.
    fillers (frozenset[str]): Words to ignore in a heading: "the following".
    patient (frozenset[str]): Names of the patient in the header of a table: "proband".
    amounts (frozenset[str]): Words that affirm after a question mark: "mild".
    relatives (Mapping): Usual noun for each word that names a relative: "mother" for "mom".
    """

    cue_words: CueWords
    study: frozenset[str] = frozenset()
    case: frozenset[str] = frozenset()
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

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Compiled patterns for answers, signs and other text that is not matched word by word."""
        affirming = (answer for answer, status in self.answers.items() if status == AFFIRMED)
        answers = _any_of([*self.answers, *self.amounts])
        patterns = {
            "answer": rf"{_QUESTION_MARKS}(?P<mark>{answers}|\d{{1,3}}(?= ))",
            "value": rf"\s{{0,9}}(?P<mark>{_any_of(self.answers)})",
            "affirmed": rf"{_VERB}(?:{_any_of(affirming)})",
            "sign": rf"(?<![\w+/-])(?:(?<![)\]])|(?=\())(?:{_any_of(self.signs)})(?![\d/]|-\w)",
            "study": rf"(?<!\w)(?:{_any_of(self.study)})",
            "case": rf"(?<!\w)(?:{_any_of(self.case)})",
            "opens": rf"(?:{_any_of(self.opens)})",
            "now": rf"(?<!\w)(?:{_any_of(self.now)})",
            "empty": rf"\s*(?:(?:is|was)\s)?(?:{_any_of(self.empty)})(?![\w,]| \w)",
        }
        return {name: re.compile(pattern, re.I) for name, pattern in patterns.items()}

    def is_study(self, text: str) -> bool:
        """Whether a text is about a study of patients, animals or cells, rather than one case."""
        study, case = (self.patterns[name] for name in ("study", "case"))
        return bool(study.search(text)) and not case.search(text)

    def relative(self, words: str) -> str:
        """Return the noun for the first relative named in `words` ("mother" for "mom"), or ""."""
        known = (self.relatives.get(word) for word in re.findall(r"[\w-]+", words.lower()))
        return next(filter(None, known), "")


def _any_of(words: Iterable[str]) -> str:
    """Build a pattern for any of `words` as a whole word; with no words, it never matches."""
    longest_first = sorted(sorted(words), key=len, reverse=True)
    alternatives = [re.escape(w) + (r"(?!\w)" if w[-1].isalnum() else "") for w in longest_first]
    return "|".join(alternatives) or r"(?!)"


def read_rules(path: Path) -> dict[str, Any]:
    """Read a JSON rules file such as assets/context.json. RAISES BioelError: [B490]"""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        return table
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(ClinicalErrors.B490.format(path=path, error=error)) from error


def parse_rules(table: Mapping[str, Any]) -> ContextRules:
    """Parse a rules file's contents. Malformed rules raise built-in exceptions, not BioelError."""
    if isinstance(table["cues"], dict):
        raise ValueError("its cues are phrases by status and direction, which are no longer read")
    cues = [cue for row in table["cues"] for cue in _cues_of_row(row)]
    classes = {name: words.lower().split() for name, words in table.get("words", {}).items()}
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
    classes.setdefault("kin", []).extend(relatives)
    cue_words = CueWords(classes, cues)
    return ContextRules(cue_words, relatives=relatives, **statuses, **lists)


def _cues_of_row(row: Mapping[str, Any]) -> Iterable[Cue]:
    statuses = [row.get(key, "") for key in ("says", "negated", "doubted")]
    for status in " ".join(statuses).split():
        _check_name(status, (*FLAGS, *PERSONS, UNKNOWN, AFFIRMING))
    kind = _check_name(row["kind"], list(CUE_KINDS))
    return (Cue(tuple(words.split()), kind, *statuses) for words in _check_phrases(row["words"]))


def _check_name(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(filter(None, known))}")
    return name


def _check_phrases(phrases: Any) -> list[str]:
    if isinstance(phrases, str) or not all(isinstance(p, str) and p.split() for p in phrases):
        raise ValueError(f"expected a list of phrases, found {phrases!r:.60}")
    return [" ".join(phrase.lower().split()) for phrase in phrases]
