"""Short forms and measurements of clinical notes, and the names that they stand for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.annotate import text_of
from spacy_bioel.pipeline.mentions.choosing import long_forms
from spacy_bioel.pipeline.mentions.hits import Hits, Words
from spacy_bioel.pipeline.mentions.name_evidence import is_in_capitals
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.context import headers
from spacy_bioel.text.normalize import normalize_name, normalize_names

_ASSETS = Path(__file__).parents[2] / "assets"
# From the analyte to its value, or to the last one of several, which is not of another fluid;
# behind it no other unit, range or date.
_SIGN = r"(?:[ \t]{0,20}[:=>|—]){0,2}[ \t]{0,20}"
_BETWEEN = rf"(?: (?:level|count|concentration))?(?: (?:was|is|of|at|to))*{_SIGN}"
_NUMBER = r"(?:\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_EARLIER = (
    rf"(?:(?:{_NUMBER} ?(?:[-=]+>|→) ?)+"
    rf"|(?:(?:fell|dropped|decreased|rose|increased|went) )?from {_NUMBER} to )?"
)
_VALUE = rf"(?<!\w){_EARLIER}(?P<value>{_NUMBER})"
_BEHIND = r"(?![-\w/%°→]|[.,]\d| ?(?:[%°µμ→]|-+>|(?:mg|g|mcg|ng|IU|U|units|mL|ml|mEq|meq|mmol)\b))"
_OTHERS = re.compile(r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I)
_BEFORE = 20  # characters
# At these ages other values are normal.
_YOUNG = re.compile(
    r"\b(?:infant|newborn|neonat\w*|baby|toddler|child|(?:days?|weeks?|months?)[- ]old"
    r"|(?<!\d)\d[ -]?(?:y/?o|years?[- ]old))\b",
    re.I,
)
_ROW = re.compile(r"[\s|*-]*([A-Za-z][A-Za-z0-9]*)[^\n\d]*\d")
_LONG = 4  # letters, of a word that no short form in another case is
_ROMAN = ("I", "II", "III", "IV", "V")
_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")

OTHER = "the name of a section, or another meaning of the word in notes"
_Long = TypeVar("_Long")

IntArray = NDArray[np.int64]
Vocabulary = tuple[KnowledgeBase, NDArray[np.bool_] | None]


def shorthand_beside(kb: KnowledgeBase, *, notes: bool = False) -> dict[str, str]:
    """From short form, as notes have it, to long form, except forms that are names themselves.

    notes (bool): Also those that are clear in notes alone; of names, those that nobody added give
        way to what notes mean by them.
    """
    forms = {short: known_of(kb, long) for short, long in _shorthand(notes=notes).items()}
    rows = kb.lookup_names(normalize_names(list(forms)))
    gives_way = (kb.lookup_names(normalize_names(list(forms.values()))) >= 0) & notes
    is_free = (rows < 0) | (gives_way & ~kb.is_added[rows])
    return {short: long for (short, long), free in zip(forms.items(), is_free, strict=True) if free}


def forms_in(text: str, forms: Mapping[str, _Long]) -> dict[str, _Long]:
    """Those of short forms that a text has; "AS" is a word where all is in capitals."""
    found = {short: long for short, long in forms.items() if short in text}
    if is_in_capitals(text):
        for word in _tables()["words_in_capitals"]:
            found.pop(word.upper(), None)
    return found


def mean_other(text: str, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Tell which places of a note are no mentions: in the name of a section ("PE:"), or as "RA" in
    "98% on RA". starts, ends: shape (n,).
    """
    found = [header.span("name") for header, _ in headers(text, _sections())]
    found += [match.span(1) for one in _other() for match in one.finditer(text)]
    if not found:
        return np.zeros(len(starts), dtype=bool)
    first, last = np.array(sorted(found)).T
    before = np.searchsorted(first, starts, side="right")
    return np.append(-1, np.maximum.accumulate(last))[before] >= ends


def rule_out(words: Words, hits: Hits, reasons: list[str]) -> None:
    """Write reasons for hits that mean something else in notes."""
    starts, ends = words.places(hits.start, hits.end)
    of_doc = words.doc[hits.start]
    for number, doc in enumerate(words.docs):
        here = np.flatnonzero(of_doc == number)
        for i in here[mean_other(text_of(doc), starts[here], ends[here])].tolist():
            reasons[i] = reasons[i] or OTHER


def _shorthand(*, notes: bool) -> dict[str, str]:
    forms = srsly.read_json(_ASSETS / "shorthand.json") | (_of_notes() if notes else {})
    # "Wt loss" and "Dizzy" at the begin of a line, but never "Sob".
    longer = {short for short in forms if " " in short or (short.islower() and len(short) > _LONG)}
    return forms | {short[0].upper() + short[1:]: forms[short] for short in sorted(longer)}


def _of_notes() -> dict[str, str]:
    """Shorthand of notes, with that of stages: "CKD3", "CKD stage III"."""
    forms: dict[str, str] = dict(_tables()["shorthand"])
    for short, names in _tables()["staged"].items():
        for number, roman in enumerate(_ROMAN, start=1):
            for stage in (str(number), roman, f"{number}a", f"{number}b"):
                for form in ("{0}{1}", "{0} {1}", "{0} stage {1}", "stage {1} {0}"):
                    forms[form.format(short, stage)] = names.format(number)
    return forms


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
    is_young: bool | None = None
    for word in _WORD.finditer(text):
        for number in _by_first_word().get(word[0].lower(), ()):
            analyte = _tables()["measurements"][number]
            match = _pattern(number).match(text, word.start())
            if match is None or _OTHERS.search(
                text, max(0, match.start() - _BEFORE), match.start()
            ):
                continue
            unit = match["unit"] or ""
            value = float(re.sub("[, ]", "", match["value"])) * analyte["units"].get(unit, 1.0)
            low, high = analyte["plausible"]
            if not low <= value <= high or (analyte.get("needs_unit") and not unit):
                continue
            if analyte.get("needs_unit_or_table") and not (unit or _is_in_table(text, match)):
                continue
            for limit in analyte["limits"]:
                if value < limit["at"] if limit["side"] == "below" else value > limit["at"]:
                    if limit.get("adults") and is_young is None:
                        is_young = bool(_YOUNG.search(text))
                    if not (limit.get("adults") and is_young):
                        found[match[0]] = limit["name"]
    return found


def _is_in_table(text: str, match: re.Match[str]) -> bool:
    """Whether a measurement begins its line, and another one the line before or behind."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    behind = text[end + 1 :][:100] if end >= 0 else ""
    rows = (_ROW.match(line) for line in (text[start : match.end()], before, behind))
    own, *others = (row and row[1].lower() in _by_first_word() for row in rows)
    return bool(own and any(others))


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
        text, defined = text_of(doc), long_forms(doc)
        forms = {s: of for s, of in forms_in(text, self._forms).items() if s not in defined}
        if measurements:
            named = ((form, self._named(names)) for form, names in measured(text).items())
            forms |= {form: name for form, name in named if name}
        found: list[tuple[Span, str]] = []
        places = find_short_forms(text, forms)
        of = sorted((start, -end, form) for form, at in places.items() for start, end in at)
        borders = np.array([[start, -end] for start, end, _ in of], dtype=np.int64).reshape(-1, 2)
        for (start, end, form), is_other in zip(of, mean_other(text, *borders.T), strict=True):
            name, label = forms[form]
            span = None if is_other else doc.char_span(start, -end, label=label)
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


def without_other_meanings(doc: Doc, spans: Sequence[Span]) -> list[Span]:
    """Drop mentions that mean something else in notes."""
    borders = np.array([[s.start_char, s.end_char] for s in spans], dtype=np.int64).reshape(-1, 2)
    is_other = mean_other(text_of(doc), *borders.T)
    return [span for span, other in zip(spans, is_other, strict=True) if not other]


@cache
def _other() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in _tables()["other_meanings"]]


@cache
def _sections() -> frozenset[str]:
    """Names of sections, see text/context.py."""
    of_all: dict[str, list[str]] = srsly.read_json(_ASSETS / "context.json")["sections"]
    return frozenset(name for names in of_all.values() for name in names)


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
            numbers[word.lower()].append(number)
    return dict(numbers)


@cache
def _pattern(number: int) -> re.Pattern[str]:
    analyte = _tables()["measurements"][number]
    longest = (sorted(analyte[key], key=len, reverse=True) for key in ("names", "units"))
    names, units = ([re.escape(one) for one in of] for of in longest)
    names = [f"(?i:{name})" if len(name) >= _LONG else name for name in names]
    second = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?:(?:[ \t]?[ |\t]?)(?P<unit>{'|'.join(units)})(?![\w/])|{_BEHIND})"
    return re.compile(rf"(?:{'|'.join(names)})(?![A-Za-z]){_BETWEEN}{_VALUE}{second}{unit}")
