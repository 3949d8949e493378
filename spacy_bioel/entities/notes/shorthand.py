"""Rules for clinical notes, which link shorthand and measurements by the names they stand for.

A measurement outside its reference range stands for a finding: "Hb 7.2" means anemia.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import TypeVar

import numpy as np
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import is_in_capitals
from spacy_bioel.doc import SpansByToken, long_forms, text_of
from spacy_bioel.entities import EntityRules, Mentions, Query, Vocabulary
from spacy_bioel.entities.notes.layout import (
    NO_MENTION,
    have_other_meaning,
    note_tables,
    read_asset,
)
from spacy_bioel.explanation import SpanKey, Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import IntArray, ScoredSpan

_ROMAN_STAGES = ("I", "II", "III", "IV", "V")
_LongForm = TypeVar("_LongForm")


def shorthand_for(kb: KnowledgeBase, *, notes: bool = False) -> dict[str, str]:
    """Return the long forms of shorthand, leaving out short forms that are names in a knowledge
    base.

    notes (bool): Include shorthand that is unambiguous only in clinical notes. It takes precedence
        over names in the knowledge base, except names that a user has added.
    """
    forms = {short: first_known(kb, long) for short, long in _long_forms(notes=notes).items()}
    rows = kb.lookup_names(normalize_names(list(forms)))
    takes_precedence = (kb.lookup_names(normalize_names(list(forms.values()))) >= 0) & notes
    is_kept = (rows < 0) | (takes_precedence & ~kb.is_added[rows])
    return {short: long for (short, long), kept in zip(forms.items(), is_kept, strict=True) if kept}


def forms_in(text: str, forms: Mapping[str, _LongForm]) -> dict[str, _LongForm]:
    """Return the short forms in a text, except words such as "AS" if the text is in capitals."""
    occurring = {short: long for short, long in forms.items() if short in text}
    if is_in_capitals(text):
        for word in note_tables()["words_in_capitals"]:
            occurring.pop(word.upper(), None)
    return occurring


def _long_forms(*, notes: bool) -> dict[str, str]:
    forms: dict[str, str] = read_asset("shorthand.json")
    if notes:
        forms |= _long_forms_in_notes()
    # Also capitalised, as at the start of a line: "Wt loss" and "Dizzy", but not "Sob".
    for short in sorted(forms):
        if " " in short or (short.islower() and len(short) > _MIN_CASELESS_LENGTH):
            forms[short[0].upper() + short[1:]] = forms[short]
    return forms


def _long_forms_in_notes() -> dict[str, str]:
    """Return the shorthand used in notes, including disease stages: "CKD3", "CKD stage III"."""
    forms: dict[str, str] = dict(note_tables()["shorthand"])
    for short, names in note_tables()["staged"].items():
        for number, roman in enumerate(_ROMAN_STAGES, start=1):
            for stage in (str(number), roman, f"{number}a", f"{number}b"):
                for form in ("{0}{1}", "{0} {1}", "{0} stage {1}", "stage {1} {0}"):
                    forms[form.format(short, stage)] = names.format(number)
    return forms


def first_known(kb: KnowledgeBase, names: str) -> str:
    """Return the first of names separated by "|" that is in a knowledge base, or else the first."""
    alternatives = names.split("|")
    if len(alternatives) > 1:
        rows = kb.lookup_names(normalize_names(alternatives))
        for name, row in zip(alternatives, rows, strict=True):
            if row >= 0:
                return name
    return alternatives[0]


class _NoteFinder:
    """Finds shorthand and measurements that stand for a name in the vocabulary of a label."""

    def __init__(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._vocabularies = vocabularies
        forms = _long_forms(notes=True)
        names = {short: self._name_and_label(long) for short, long in forms.items()}
        self._names = {short: name for short, name in names.items() if name}
        # Long forms that are not names, such as "chronic kidney disease", which MeSH lists in
        # the plural, get the label that most other long forms have.
        labels = Counter(label for _, label in self._names.values())
        label, n = max(labels.items(), key=itemgetter(1), default=("", 0))
        if 2 * n > len(forms):
            self._names |= {s: (forms[s].split("|")[-1], label) for s in forms.keys() - self._names}

    def find(self, doc: Doc, *, measurements: bool) -> list[tuple[SpanKey, str]]:
        """Return token spans without overlaps, with the names they stand for."""
        text, defined = text_of(doc), long_forms(doc)
        names = {s: name for s, name in forms_in(text, self._names).items() if s not in defined}
        if measurements:
            for form, alternatives in measured(text).items():
                if name_and_label := self._name_and_label(alternatives):
                    names[form] = name_and_label
        places = [
            (start, end, form)
            for form, places_of_form in find_forms(text, names).items()
            for start, end in places_of_form
        ]
        places.sort(key=lambda place: (place[0], -place[1], place[2]))  # the longest first
        starts, ends = np.array([p[:2] for p in places], dtype=np.int64).reshape(-1, 2).T
        is_other = have_other_meaning(text, starts, ends)
        found: list[tuple[SpanKey, str]] = []
        for (start, end, form), other in zip(places, is_other, strict=True):
            name, label = names[form]
            span = None if other else doc.char_span(start, end)
            if span is not None and not (found and span.start < found[-1][0][1]):
                found.append(((span.start, span.end, label), name))
        return found

    def _name_and_label(self, names: str) -> tuple[str, str] | None:
        """Return the first of names separated by "|" that is in a vocabulary, and its label."""
        for name in names.split("|"):
            for label, (kb, mask) in self._vocabularies.items():
                _, concepts, _ = kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))
                if len(concepts) and (mask is None or mask[concepts].any()):
                    return name, label
        return None


def _add_names(
    spans: Sequence[ScoredSpan], names: Sequence[tuple[SpanKey, str]]
) -> list[ScoredSpan]:
    """Replace mentions inside shorthand and measurements; longer mentions stay."""
    kept = SpansByToken(spans)
    for place, _ in names:
        overlapping = kept.overlapping(*place[:2])
        if all(place[0] <= s[0] and s[1] <= place[1] for s in overlapping):
            kept.replace(overlapping, (*place, 1.0))
    return sorted(kept, key=lambda s: s[:2])


class Notes(EntityRules):
    """Expand clinical shorthand ("HTN") and, in clinical notes, find shorthand and measurements.

    shorthand (bool): Expand shorthand.
    clinical (bool): Texts are clinical notes: find shorthand that is unambiguous only in notes, and
        drop words that mean something else in notes ("PE:" as a header).
    measurements (bool): Find measurements outside their reference range, and link the finding.
    """

    def __init__(
        self, *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
    ) -> None:
        self._shorthand, self._clinical = shorthand, clinical
        self._measurements = measurements

    @cached_property
    def _finder(self) -> _NoteFinder:
        assert self.knowledge is not None
        return _NoteFinder(self.knowledge.vocabularies)

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Shorthand that can be looked up in the whole knowledge base, with its long forms."""
        assert self.knowledge is not None
        return shorthand_for(self.knowledge.kb, notes=self._clinical) if self._shorthand else {}

    @cached_property
    def _normalized_forms(self) -> dict[KnowledgeBase, dict[str, str]]:
        return {}

    def short_forms(self, doc: Doc) -> dict[str, str]:
        text = text_of(doc)
        forms = forms_in(text, self._forms)
        if self._measurements and self.knowledge is not None:
            kb = self.knowledge.kb
            forms |= {form: first_known(kb, names) for form, names in measured(text).items()}
        return forms

    def why_other(self, doc: Doc, starts: IntArray, ends: IntArray) -> list[str]:
        if not self._clinical:
            return [""] * len(starts)
        is_other = have_other_meaning(text_of(doc), starts, ends).tolist()
        return [NO_MENTION if other else "" for other in is_other]

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        """Add shorthand and measurements; their queries will be the names they stand for."""
        if self.knowledge is None or not self._clinical:
            return list(spans)
        results = []
        for i, (doc, before) in enumerate(zip(docs, spans, strict=True)):
            names = self._finder.find(doc, measurements=self._measurements)
            kept = _without_other_meanings(doc, before)
            results.append(_add_names(kept, names))
            if traces is not None:
                traces[i].changed(before, kept, NO_MENTION)
                traces[i].changed(kept, results[i], "in shorthand, or a measurement")
                for place, name in names:
                    traces[i].add(place, "", name)
        return results

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        """Look up the names that shorthand and measurements stand for.

        They are found again, because nothing is remembered about a Doc, whose tokens may change.
        """
        if self.knowledge is None or not self._clinical or mentions.n_parts:
            return mentions.queries
        find = partial(self._finder.find, measurements=self._measurements)
        names = [{place[:2]: name for place, name in find(doc)} for doc in mentions.docs]
        queries = list(mentions.queries)
        for index, (span, owner) in enumerate(zip(mentions.spans, mentions.owners, strict=True)):
            if (name := names[owner].get((span.start, span.end))) is not None:
                queries[index] = Query.of(name)
        return queries

    def rewrite(
        self, strings: Sequence[str], kb: KnowledgeBase, seen: Container[str]
    ) -> Sequence[str]:
        """Expand shorthand, except in strings that are names or were seen in training."""
        if not self._shorthand:
            return strings
        if kb not in self._normalized_forms:
            forms = shorthand_for(kb)
            short, long = normalize_names(list(forms)), normalize_names(list(forms.values()))
            pairs = zip(short, long, strict=True)
            self._normalized_forms[kb] = {s: whole for s, whole in pairs if s not in seen}
        forms = self._normalized_forms[kb]
        expanded = [
            forms.get(string) or " ".join([forms.get(word, word) for word in string.split(" ")])
            for string in strings
        ]
        changed = [i for i, string in enumerate(strings) if expanded[i] != string]
        rows = kb.lookup_names([strings[i] for i in changed]) if changed else ()
        for i, row in zip(changed, rows, strict=True):
            if row >= 0 or strings[i] in seen:
                expanded[i] = strings[i]
        return expanded


def create_notes_v1(
    *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
) -> Notes:
    """Registered as `spacy-bioel.Notes.v1`; takes the same arguments as `Notes`."""
    return Notes(shorthand=shorthand, clinical=clinical, measurements=measurements)


def _without_other_meanings(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Drop spans that mean something else in notes (see `have_other_meaning`)."""
    places = [doc[s[0] : s[1]] for s in spans]
    borders = np.array([[s.start_char, s.end_char] for s in places], dtype=np.int64).reshape(-1, 2)
    is_other = have_other_meaning(text_of(doc), *borders.T)
    return [span for span, other in zip(spans, is_other, strict=True) if not other]


# Text between an analyte and its value, or the last of several values. After the value, the pattern
# excludes other units, ranges and dates.
_EQUALS = r"(?:[ \t]{0,20}[:=>|—]){0,2}[ \t]{0,20}"
_ANALYTE_TO_VALUE = rf"(?: (?:level|count|concentration))?(?: (?:was|is|of|at|to))*{_EQUALS}"
_DECIMAL = r"(?:\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_EARLIER_VALUES = (
    rf"(?:(?:{_DECIMAL} ?(?:[-=]+>|→) ?)+"
    rf"|(?:(?:fell|dropped|decreased|rose|increased|went) )?from {_DECIMAL} to )?"
)
_VALUE = rf"(?<!\w){_EARLIER_VALUES}(?P<value>{_DECIMAL})"
_NO_OTHER_UNIT = (
    r"(?![-\w/%°→]|[.,]\d| ?(?:[%°µμ→]|-+>|(?:mg|g|mcg|ng|IU|U|units|mL|ml|mEq|meq|mmol)\b))"
)
_OTHER_FLUIDS = re.compile(
    r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I
)
_MAX_FLUID_DISTANCE = 20  # characters to search before an analyte
# The reference ranges, which are for adults, do not apply at these ages.
_YOUNG = re.compile(
    r"\b(?:infant|newborn|neonat\w*|baby|toddler|child|(?:days?|weeks?|months?)[- ]old"
    r"|(?<!\d)\d[ -]?(?:y/?o|years?[- ]old))\b",
    re.I,
)
_TABLE_ROW = re.compile(r"[\s|*-]*([A-Za-z][A-Za-z0-9]{0,20})[^\n\d]*\d")
_MIN_CASELESS_LENGTH = 4  # characters; shorter names are case-sensitive
_MAX_LINE_LENGTH = 200  # characters in the row of a table
_ANALYTE_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")


def measured(text: str) -> dict[str, str]:
    """Return the findings shown by measurements outside their reference range, by measurement:
    "anemia" for "Hb 7.2 g/dL". If a finding has several names, they are separated by "|".
    """
    findings = {}
    is_young = bool(_YOUNG.search(text))
    for word in _ANALYTE_WORD.finditer(text):
        for index in _analytes_by_first_word().get(word[0].lower(), ()):
            match = _measurement_pattern(index).match(text, word.start())
            if match is None:
                continue
            fluid_start = max(0, match.start() - _MAX_FLUID_DISTANCE)
            if _OTHER_FLUIDS.search(text, fluid_start, match.start()):
                continue
            analyte = note_tables()["measurements"][index]
            unit = match["unit"] or ""
            value = float(re.sub("[, ]", "", match["value"])) * analyte["units"].get(unit, 1.0)
            low, high = analyte["plausible"]
            if not low <= value <= high or (analyte.get("needs_unit") and not unit):
                continue
            if analyte.get("needs_unit_or_table") and not (unit or _is_in_table(text, match)):
                continue
            for limit in analyte["limits"]:
                is_below = limit["side"] == "below"
                is_out_of_range = value < limit["at"] if is_below else value > limit["at"]
                if is_out_of_range and not (limit.get("adults") and is_young):
                    findings[match[0]] = limit["name"]
    return findings


def _is_in_table(text: str, match: re.Match[str]) -> bool:
    """Return whether a measurement and one on an adjacent line both start their lines."""
    lowest = max(0, match.start() - _MAX_LINE_LENGTH)
    start = text.rfind("\n", lowest, match.start()) + 1
    if not start and lowest:
        return False
    end = text.find("\n", match.end(), match.end() + _MAX_LINE_LENGTH)
    before = text[max(0, start - 1 - _MAX_LINE_LENGTH) : max(0, start - 1)]
    line_before = before[before.rfind("\n") + 1 :]
    line_after = text[end + 1 : end + 1 + _MAX_LINE_LENGTH] if end >= 0 else ""
    has_neighbour = _is_table_row(line_before) or _is_table_row(line_after)
    return has_neighbour and _is_table_row(text[start : match.end()])


def _is_table_row(line: str) -> bool:
    row = _TABLE_ROW.match(line)
    return row is not None and row[1].lower() in _analytes_by_first_word()


@cache
def _analytes_by_first_word() -> dict[str, list[int]]:
    """Return the indices of analytes by the first word of each of their names."""
    indices: dict[str, list[int]] = defaultdict(list)
    for index, analyte in enumerate(note_tables()["measurements"]):
        for first in {_ANALYTE_WORD.match(n)[0] for n in analyte["names"]}:  # type: ignore[index]
            indices[first.lower()].append(index)
    return dict(indices)


@cache
def _measurement_pattern(index: int) -> re.Pattern[str]:
    analyte = note_tables()["measurements"][index]
    names = []
    for name in map(re.escape, sorted(analyte["names"], key=len, reverse=True)):
        names.append(f"(?i:{name})" if len(name) >= _MIN_CASELESS_LENGTH else name)
    units = map(re.escape, sorted(analyte["units"], key=len, reverse=True))
    analyte_name = rf"(?:{'|'.join(names)})(?![A-Za-z])"
    second_value = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?:(?:[ \t]?[ |\t]?)(?P<unit>{'|'.join(units)})(?![\w/])|{_NO_OTHER_UNIT})"
    return re.compile(f"{analyte_name}{_ANALYTE_TO_VALUE}{_VALUE}{second_value}{unit}")
