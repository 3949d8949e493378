"""Short forms and measurements of clinical notes, and the names that they stand for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.annotate import text_of
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import normalize_name, normalize_names

_ASSETS = Path(__file__).parents[2] / "assets"
# From the analyte to its value, which is not of another fluid; behind it no other unit, range or
# date.
_BETWEEN = r"(?: (?:level|count|concentration))?(?: (?:was|is|of|at|to))*[ \t|:=>—]{0,3}"
_VALUE = r"(?<!\w)(?P<value>\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_BEHIND = r"(?![-\w/%°]|[.,]\d| ?(?:[%°µμ]|(?:mg|g|mcg|ng|IU|U|units|mL|ml)\b))"
_OTHERS = re.compile(r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I)
_BEFORE = 20  # characters
_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")

Vocabulary = tuple[KnowledgeBase, NDArray[np.bool_] | None]


def shorthand_beside(kb: KnowledgeBase, *, notes: bool = False) -> dict[str, str]:
    """From short form, as notes have it, to long form, except forms that are names themselves.

    notes (bool): Also those that are clear in notes alone.
    """
    forms = _shorthand(notes=notes)
    rows = kb.lookup_names(normalize_names(list(forms)))
    kept = {short: long for (short, long), row in zip(forms.items(), rows, strict=True) if row < 0}
    return {short: known_of(kb, long) for short, long in kept.items()}


def _shorthand(*, notes: bool) -> dict[str, str]:
    forms = srsly.read_json(_ASSETS / "shorthand.json") | (_tables()["shorthand"] if notes else {})
    # "Wt loss" at the begin of a line, but never "Sob".
    return forms | {s[0].upper() + s[1:]: long for s, long in forms.items() if " " in s}


def known_of(kb: KnowledgeBase, names: str) -> str:
    """Of several names, with "|" between them, the first that a knowledge base has, or else the
    first."""
    several = names.split("|")
    if len(several) == 1:
        return names
    rows = kb.lookup_names(normalize_names(several)).tolist()
    return next((name for name, row in zip(several, rows, strict=True) if row >= 0), several[0])


def measured(text: str) -> dict[str, str]:
    """From measurements out of their reference range, as written, to names of what they show, as
    `known_of` takes them: "Hb 7.2 g/dL" to "anemia".
    """
    found = {}
    for word in _WORD.finditer(text):
        for number in _by_first_word().get(word[0], ()):
            analyte, match = (
                _tables()["measurements"][number],
                _pattern(number).match(text, word.start()),
            )
            if match is None or _OTHERS.search(
                text[max(0, match.start() - _BEFORE) : match.start()]
            ):
                continue
            unit = match["unit"] or ""
            value = float(re.sub("[, ]", "", match["value"])) * analyte["units"].get(unit, 1.0)
            low, high = analyte["plausible"]
            if not low <= value <= high or (analyte.get("needs_unit") and not unit):
                continue
            for limit in analyte["limits"]:
                if value < limit["at"] if limit["side"] == "below" else value > limit["at"]:
                    found[match[0]] = limit["name"]
    return found


class NoteFinder:
    """Finds shorthand and measurements that stand for a name of one of several vocabularies.

    vocabularies (Mapping): Of each label, a knowledge base, and which of its concepts mentions may
        link to; None: all.
    """

    def __init__(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._vocabularies = vocabularies
        forms = _shorthand(notes=True)
        named = {short: self._named(names) for short, names in forms.items()}
        self._forms = {short: name for short, name in named.items() if name}
        # What is no name as it is ("chronic kidney disease" has another ending) is what most are.
        labels = Counter(label for _, label in self._forms.values())
        label, n = max(labels.items(), key=itemgetter(1), default=("", 0))
        if 2 * n > len(forms):
            self._forms |= {s: (forms[s].split("|")[-1], label) for s in forms.keys() - self._forms}

    def find(self, doc: Doc, *, measurements: bool) -> list[tuple[Span, str]]:
        """Find spans with their labels, and the names that they stand for; none overlap."""
        text, forms = text_of(doc), dict(self._forms)
        if measurements:
            named = ((form, self._named(names)) for form, names in measured(text).items())
            forms |= {form: name for form, name in named if name}
        found: list[tuple[Span, str]] = []
        places = find_short_forms(text, forms)
        of = sorted((start, -end, form) for form, at in places.items() for start, end in at)
        for start, end, form in of:
            name, label = forms[form]
            span = doc.char_span(start, -end, label=label)
            if span is not None and not (found and span.start < found[-1][0].end):
                found.append((span, name))
        return found

    def _named(self, names: str) -> tuple[str, str] | None:
        """The first of several names that a vocabulary has, and its label."""
        for name in names.split("|"):
            for label, (kb, mask) in self._vocabularies.items():
                _, concepts, _ = kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))
                if len(concepts) and (mask is None or mask[concepts].any()):
                    return name, label
        return None


def add_names(spans: Sequence[Span], names: Sequence[tuple[Span, str]]) -> list[Span]:
    """Put what notes say in the place of the mentions of a document that overlap it, except longer
    ones.
    """
    kept = list(spans)
    for span, _ in names:
        near = [s for s in kept if s.start < span.end and span.start < s.end]
        if all(span.start <= s.start and s.end <= span.end for s in near):
            kept = [s for s in kept if s not in near] + [span]
    return sorted(kept, key=lambda s: (s.start, s.end))


@cache
def _tables() -> dict[str, Any]:
    """Read what is clear in clinical notes alone, see assets/SOURCES.md."""
    tables: dict[str, Any] = srsly.read_json(_ASSETS / "notes.json")
    return tables


def words_of_notes() -> list[str]:
    """Words that are no mentions in notes, though a detector may take them for some."""
    return list(_tables()["never"])


@cache
def _by_first_word() -> dict[str, list[int]]:
    """Numbers of the analytes whose names begin with a word."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, analyte in enumerate(_tables()["measurements"]):
        for word in {_WORD.match(name)[0] for name in analyte["names"]}:  # type: ignore[index]
            numbers[word].append(number)
    return dict(numbers)


@cache
def _pattern(number: int) -> re.Pattern[str]:
    analyte = _tables()["measurements"][number]
    longest = (sorted(analyte[key], key=len, reverse=True) for key in ("names", "units"))
    names, units = ("|".join(map(re.escape, of)) for of in longest)
    second = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?: ?(?P<unit>{units})(?![\w/])|{_BEHIND})"
    return re.compile(rf"(?:{names}){_BETWEEN}{_VALUE}{second}{unit}")
