"""Entity rules that link shorthand, measurements and reworded findings in clinical notes by the
corresponding concept names.

A measurement outside its reference range indicates a finding: "Hb 7.2" means anemia.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np
from spacy.tokens import Doc

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import EntityRules, LinkerKnowledge, Vocabulary
from spacy_bioel.entities.shorthand import (
    MIN_CASELESS_LENGTH,
    Shorthand,
    first_known,
    forms_in,
    long_forms_with,
    shorthand_for,
)
from spacy_bioel.found import FoundSpans
from spacy_bioel.plugins.clinical.rewordings import (
    NO_MENTION,
    are_apart,
    find_rewordings,
    have_other_meaning,
    is_part,
)
from spacy_bioel.plugins.clinical.tables import note_tables
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import IntArray, SpanKey


def choose_meanings(text: str, forms: Container[str]) -> dict[str, str]:
    """Resolve ambiguous shorthand from words on the same lines or, failing that, in the whole text.

    forms (Container[str]): Short forms in the text. Forms without such words are not resolved.
    """
    chosen = {}
    for short, cues in note_tables()["meanings"].items():
        if short in forms:
            lines = "\n".join(line for line in text.splitlines() if short in line)
            meant = (m for part in (lines, text) for m in cues if re.search(cues[m], part, re.I))
            if meaning := next(meant, ""):
                chosen[short] = meaning
    return chosen


class _NoteFinder:
    """Finds shorthand, measurements and reworded names that match a name in the knowledge base or
    in a label's vocabulary."""

    def __init__(self, knowledge: LinkerKnowledge) -> None:
        self._vocabularies = knowledge.vocabularies or {"": Vocabulary(knowledge.kb, None)}
        # Without labels, the dictionary itself finds shorthand, even inside longer names.
        forms = long_forms_with(note_tables()["shorthand"]) if knowledge.vocabularies else {}
        names = {short: self._first_known(long) for short, long in forms.items()}
        self._names = {short: name for short, name in names.items() if name}
        # Long forms that are not names get the label that most other long forms have: MeSH has
        # "chronic kidney disease" only in the plural, for example.
        labels = Counter(label for _, label in self._names.values())
        label, n = max(labels.items(), key=itemgetter(1), default=("", 0))
        if 2 * n > len(forms):
            self._names |= {s: (forms[s].split("|")[-1], label) for s in forms.keys() - self._names}

    def find(self, doc: Doc, *, measurements: bool) -> list[tuple[SpanKey, str, bool]]:
        """Return token spans, the matching names, and whether each span replaces mentions.
        Shorthand and measurements do; reworded names do not."""
        text, defined = text_of(doc), long_forms(doc)
        names = {s: name for s, name in forms_in(text, self._names).items() if s not in defined}
        for form, alternatives in choose_meanings(text, names).items():
            names[form] = self._first_known(alternatives) or names[form]
        places = [
            (start, end, names[form])
            for form, places_of_form in find_forms(text, names).items()
            for start, end in places_of_form
        ]
        for place, (_, _, alternatives) in measured(text).items() if measurements else ():
            if known := self._first_known(alternatives):
                places.append((*place, known))
        places.sort(key=lambda place: (place[0], -place[1], place[2]))  # longest first at a start
        starts, ends = np.array([p[:2] for p in places], dtype=np.int64).reshape(-1, 2).T
        is_other = have_other_meaning(text, starts, ends)
        found: list[tuple[SpanKey, str, bool]] = []
        for (start, end, (name, label)), other in zip(places, is_other, strict=True):
            span = None if other else doc.char_span(start, end)
            if span is not None and not (found and span.start < found[-1][0][1]):
                found.append(((span.start, span.end, label), name, True))
        for start, end, name, label in find_rewordings(text, self.labels_of):
            if (span := doc.char_span(start, end)) is not None:
                found.append(((span.start, span.end, label), name, False))
        return found

    def labels_of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the label of each name that is in a vocabulary."""
        labels: dict[str, str] = {}
        names = list(names)
        normalized = normalize_names(names)
        for label, (kb, mask) in self._vocabularies.items():
            rows = kb.lookup_names(normalized)
            indptr, concepts, _ = kb.concepts_of_names(rows)
            allowed = np.ones(len(concepts), bool) if mask is None else mask[concepts]
            n_allowed = np.diff(np.append(0, np.cumsum(allowed))[indptr])
            for i in np.flatnonzero(n_allowed).tolist():
                labels.setdefault(names[i], label)
        return labels

    def _first_known(self, names: str) -> tuple[str, str] | None:
        """Return the first name in a "|"-separated list that is in a vocabulary, and its label."""
        labels = self.labels_of(alternatives := names.split("|"))
        return next(((name, labels[name]) for name in alternatives if name in labels), None)


def _add_names(found: FoundSpans, names: Sequence[tuple[SpanKey, str, bool]]) -> None:
    """Add shorthand and measurements in place of the mentions inside them, and reworded names
    alongside any shorter mentions inside them. Longer mentions are kept."""
    why = "in shorthand, a measurement, or another wording"
    for (start, end, label), name, replaces in names:
        near = found.overlapping(start, end)
        longest = end - start if replaces else end - start - 1
        if all(start <= s[0] and s[1] <= end and s[1] - s[0] <= longest for s in near):
            replaced = near if replaces else ()
            found.add((start, end, label, 1.0), why, stands_for=name, instead_of=replaced)
        else:
            for same in (s[:3] for s in near if s[:2] == (start, end)):
                found.names.setdefault(same, name)


class Notes(Shorthand):
    """Expand shorthand ("HTN") and, in clinical notes, find shorthand, measurements and reworded
    names.

    shorthand (bool): Expand shorthand.
    clinical (bool): Texts are clinical notes: find shorthand that is unambiguous only in notes, and
        reworded names ("undescended right testis"); drop words that mean something else in notes
        ("PE:" as a header).
    measurements (bool): Find measurements outside their reference range, and link the finding; its
        facts are `value` and `unit`.
    """

    def __init__(
        self, *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
    ) -> None:
        self._shorthand, self._clinical = shorthand, clinical
        self._measurements = measurements
        self.completes_dictionary = clinical
        self.fact_names = ("value", "unit") if measurements else ()

    @cached_property
    def _finder(self) -> _NoteFinder:
        assert self.knowledge is not None
        return _NoteFinder(self.knowledge)

    @cached_property
    def _forms(self) -> dict[str, str]:
        assert self.knowledge is not None
        if not self._shorthand:
            return {}
        more = note_tables()["shorthand"] if self._clinical else {}
        return shorthand_for(self.knowledge.kb, more, takes_precedence=self._clinical)

    def short_forms(self, doc: Doc) -> dict[str, str]:
        forms = super().short_forms(doc)
        if self._clinical and self.knowledge is not None:
            for form, names in choose_meanings(text_of(doc), forms).items():
                forms[form] = first_known(self.knowledge.kb, names)
        return forms

    def why_other(self, doc: Doc, starts: IntArray, ends: IntArray) -> list[str]:
        if not self._clinical:
            return [""] * len(starts)
        text = text_of(doc)
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        are_parts = [
            is_part(text, *place, lambda s: s in self._finder.labels_of([s])) for place in places
        ]
        is_other = have_other_meaning(text, starts, ends) | np.array(are_parts, dtype=bool)
        is_other |= are_apart(text, starts, ends)
        return [NO_MENTION if other else "" for other in is_other.tolist()]

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        """Add mentions for shorthand, measurements and reworded names, and drop words that mean
        something else in notes (see `why_other`)."""
        if self.knowledge is None or not self._clinical:
            return
        for doc, of_doc in zip(docs, spans, strict=True):
            before = of_doc.spans
            places = [(s.start_char, s.end_char) for s in (doc[b[0] : b[1]] for b in before)]
            starts, ends = np.array(places, dtype=np.int64).reshape(-1, 2).T
            reasons = self.why_other(doc, starts, ends)
            pairs = zip(before, reasons, strict=True)
            of_doc.drop([span for span, reason in pairs if reason], NO_MENTION)
            _add_names(of_doc, self._finder.find(doc, measurements=self._measurements))

    def prepare(self, batch: Batch) -> Sequence[Query]:
        """Query shorthand and measurements by the corresponding names."""
        queries = list(super().prepare(batch) if self._shorthand else batch.queries)
        if self.knowledge is None or not self._clinical or batch.n_parts:
            return queries
        find, found = partial(self._finder.find, measurements=self._measurements), batch.found
        names = [
            {} if found and found[i] else {place[:2]: n for place, n, _ in reversed(find(doc))}
            for i, doc in enumerate(batch.docs)
        ]
        for index, (span, owner) in enumerate(zip(batch.spans, batch.owners, strict=True)):
            if (name := names[owner].get((span.start, span.end))) is not None:
                queries[index] = Query.of(name)
        return queries

    def facts(self, batch: Batch) -> Sequence[Mapping[str, Any]]:
        """Return the value and unit of each measurement."""
        if not self._measurements:
            return [{}] * len(batch.links)
        found = [measured(text_of(doc)) for doc in batch.docs]
        facts = []
        for link, owner in zip(batch.links, batch.owners, strict=True):
            place = link.start, link.end
            value, unit, _ = found[owner].get(place, (None, "", ""))
            facts.append({} if value is None else {"value": value, "unit": unit})
        return facts


def create_notes_v1(
    *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
) -> EntityRules:
    """Registered as `spacy-bioel.Notes.v1`; takes the same arguments as `Notes`."""
    if shorthand and not (clinical or measurements):
        return Shorthand()
    return Notes(shorthand=shorthand, clinical=clinical, measurements=measurements)


# Patterns for the text between an analyte and its value (the last one if there are several). A
# value followed by another unit, a range or a date is excluded.
_S = r"[^\S\r\n]"  # also thin spaces
_EQUALS = rf"(?:{_S}{{0,20}}[:=>|—]){{0,2}}{_S}{{0,20}}(?P<bracket>\()?"
_LINK = (
    r"levels?|count|concentration|was|were|is|of|at|to|[a-z]{3,9}ly|raised|elevated"
    r"|increased|reduced|decreased|low|high|suppressed"
)
_ANALYTE_TO_VALUE = (
    r"(?:, (?:total|serum|plasma|free))?"
    rf"(?: \([A-Za-z][\w-]{{0,9}}\)|\))?(?: (?:{_LINK}))*{_EQUALS}"
)
_DECIMAL = r"(?:\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_EARLIER_VALUES = (
    rf"(?:(?:{_DECIMAL} ?(?:[-=]+>|→) ?)+"
    rf"|(?:(?:fell|dropped|decreased|rose|increased|went) )?from {_DECIMAL} to )?"
)
_VALUE = rf"(?<!\w){_EARLIER_VALUES}(?P<value>{_DECIMAL})"
_NO_OTHER_UNIT = (
    r"(?![-–+\w/%°→]|[.,]\d|"
    rf"{_S}?(?:[%°µμ→]|-+>|(?:mg|g|mcg|ng|IU|U|units|mL|ml|mEq|meq|mmol)\b))"
)
# The reference range or flag after a value: "(12-16)", ", normal < 48", "L".
_NORMAL = r"N|NR|RR|nl|normal|norm|ref|reference|vn|range|values?|interval|limits?"
_STATED = re.compile(
    rf"{_S}{{1,20}}(?:\|{_S}?)?\(?(?P<flag>[HL])\)?(?={_S}*(?:[\r\n|,;.)]|\Z))"
    rf"|(?:(?:{_S}{{0,20}}\|)?{_S}{{0,20}}[(\[|]|{_S}{{2,20}}|\t"
    rf"|{_S}(?=[<≤]?[\d.–-]+{_S}{{1,20}}[HL]?\s*(?:\n|\Z))|[,;](?={_S}?(?:{_NORMAL})\b))"
    rf"(?:{_S}?(?:{_NORMAL})\b\.?)*:?{_S}?(?:(?P<low>{_DECIMAL}){_S}?[-–]{_S}?|[<≤]{_S}?)"
    rf"(?P<high>{_DECIMAL})(?![\d.]|{_S}?(?:h|d|hours?|days?|weeks?|months?|years?)\b)"
)
_OTHER_FLUIDS = re.compile(
    r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I
)
_MAX_FLUID_DISTANCE = 20  # Number of characters before an analyte to search for a fluid.
# Words for young patients, to whom adult reference ranges do not apply.
_YOUNG = re.compile(
    r"\b(?:infant|newborn|neonat\w*|baby|toddler|child|(?:days?|weeks?|months?)[- ]old"
    r"|(?<!\d)\d[ -]?(?:y/?o|years?[- ]old))\b",
    re.I,
)
_ANALYTE_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")


# A measurement: its last value, its unit (or ""), and the names of the finding that it indicates.
Measurement = tuple[float, str, str]


def measured(text: str) -> dict[tuple[int, int], Measurement]:
    """Return the measurements outside their reference range, such as "Hb 7.2 g/dL" (anemia), keyed
    by start and end offset. A finding's alternative names are separated by "|".
    """
    found = {}
    is_young = bool(_YOUNG.search(text))
    for word in _ANALYTE_WORD.finditer(text):
        for index in _analytes_by_first_word().get(word[0].lower(), ()):
            match = _measurement_pattern(index).match(text, word.start())
            if match is None:
                continue
            fluid_start = max(0, match.start() - _MAX_FLUID_DISTANCE)
            if not _OTHER_FLUIDS.search(text, fluid_start, match.start()):
                end = match.end() + (bool(match["bracket"]) and text.startswith(")", match.end()))
                stated = _STATED.match(text, end)
                names = _finding(note_tables()["measurements"][index], match, stated, is_young)
                if names:
                    found[match.start(), end] = (
                        _number(match["value"]),
                        match["unit"] or "",
                        names,
                    )
    return found


def _number(digits: str) -> float:
    return float(re.sub("[, ]", "", digits))


def _finding(
    analyte: Mapping[str, Any], match: re.Match[str], stated: re.Match[str] | None, is_young: bool
) -> str:
    """Return the names of the finding that a measurement indicates, or "".

    Without a unit, the value must indicate the same finding in every plausible unit.

    stated (re.Match | None): The reference range or flag that the text states.
    """
    unit, value, (low, high) = match["unit"], _number(match["value"]), analyte["plausible"]
    factors = [analyte["units"][unit]] if unit else set(analyte["units"].values())
    values = [value * factor for factor in factors if low <= value * factor <= high]
    is_rough = value.is_integer() and "," not in match["value"]  # "WBC 3,100" implies its unit
    is_unclear = analyte.get("needs_unit") or (analyte.get("decimals") and is_rough)
    if is_unclear and not (unit or stated):
        return ""

    def is_beyond(limit: Mapping[str, Any], value_in_unit: float) -> bool:
        sign, end, flag = (-1, "low", "L") if limit["side"] == "below" else (1, "high", "H")
        if stated:
            is_out = bool(stated[end]) and sign * value > sign * _number(stated[end])
            return is_out or stated["flag"] == flag
        is_out = sign * value_in_unit > sign * limit["at"]
        return is_out and not (limit.get("adults") and is_young)

    shown = {
        next((str(limit["name"]) for limit in analyte["limits"] if is_beyond(limit, one)), "")
        for one in values
    }
    return shown.pop() if len(shown) == 1 else ""


@cache
def _analytes_by_first_word() -> dict[str, list[int]]:
    """Return analyte indices, keyed by the first word of each name in lower case."""
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
        names.append(f"(?i:{name})" if len(name) >= MIN_CASELESS_LENGTH else name)
    units = map(re.escape, sorted(analyte["units"], key=len, reverse=True))
    analyte_name = rf"(?:{'|'.join(names)})(?![A-Za-z])"
    second_value = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?:{_S}{{0,20}}(?:\|{_S}?)?(?P<unit>{'|'.join(units)})(?![\w/])|{_NO_OTHER_UNIT})"
    return re.compile(f"{analyte_name}{_ANALYTE_TO_VALUE}{_VALUE}{second_value}{unit}")
