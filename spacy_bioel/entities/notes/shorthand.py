"""Short forms and measurements of clinical notes, and the names that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import srsly
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import is_in_capitals
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import EntityRules, Knowledge, Mentions, Query, Vocabulary
from spacy_bioel.entities.notes.layout import ASSETS, OTHER, mean_other, tables
from spacy_bioel.entities.notes.measurements import _LONG, measured
from spacy_bioel.explanation import SpanKey, Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import IntArray, ScoredSpan

_ROMAN = ("I", "II", "III", "IV", "V")


_Long = TypeVar("_Long")


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
        for word in tables()["words_in_capitals"]:
            found.pop(word.upper(), None)
    return found


def _shorthand(*, notes: bool) -> dict[str, str]:
    forms: dict[str, str] = srsly.read_json(ASSETS / "shorthand.json") | (
        _of_notes() if notes else {}
    )
    # "Wt loss" and "Dizzy" at the begin of a line, but never "Sob".
    longer = {short for short in forms if " " in short or (short.islower() and len(short) > _LONG)}
    return forms | {short[0].upper() + short[1:]: forms[short] for short in sorted(longer)}


def _of_notes() -> dict[str, str]:
    """Shorthand of notes, with that of stages: "CKD3", "CKD stage III"."""
    forms: dict[str, str] = dict(tables()["shorthand"])
    for short, names in tables()["staged"].items():
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


class _NoteFinder:
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

    def find(self, doc: Doc, *, measurements: bool) -> list[tuple[SpanKey, str]]:
        """Find spans, by tokens, and the names that they stand for; none overlap."""
        text, defined = text_of(doc), long_forms(doc)
        forms = {s: of for s, of in forms_in(text, self._forms).items() if s not in defined}
        if measurements:
            named = ((form, self._named(names)) for form, names in measured(text).items())
            forms |= {form: name for form, name in named if name}
        found: list[tuple[SpanKey, str]] = []
        places = find_forms(text, forms)
        of = sorted((start, -end, form) for form, at in places.items() for start, end in at)
        borders = np.array([[start, -end] for start, end, _ in of], dtype=np.int64).reshape(-1, 2)
        for (start, end, form), is_other in zip(of, mean_other(text, *borders.T), strict=True):
            name, label = forms[form]
            span = None if is_other else doc.char_span(start, -end)
            if span is not None and not (found and span.start < found[-1][0][1]):
                found.append(((span.start, span.end, label), name))
        return found

    def _named(self, names: str) -> tuple[str, str] | None:
        """The first of several names that a vocabulary has, and its label."""
        for name in names.split("|"):
            for label, (kb, mask) in self._vocabularies.items():
                _, concepts, _ = kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))
                if len(concepts) and (mask is None or mask[concepts].any()):
                    return name, label
        return None


def _add_names(
    spans: Sequence[ScoredSpan], names: Sequence[tuple[SpanKey, str]]
) -> list[ScoredSpan]:
    """Put what notes say in the place of the mentions of a document that overlap it, except longer
    ones.
    """
    kept = list(spans)
    for place, _ in names:
        near = [s for s in kept if s[0] < place[1] and place[0] < s[1]]
        if all(place[0] <= s[0] and s[1] <= place[1] for s in near):
            kept = [s for s in kept if s not in near] + [(*place, 1.0)]
    return sorted(kept, key=lambda s: s[:2])


class Notes(EntityRules):
    """Write out clinical shorthand ("HTN") and, in clinical notes, find it and measurements.

    clinical (bool): Texts are notes: shorthand that is clear in notes alone counts too, and words
        that mean something else in notes ("PE:" as a header) do not.
    measurements (bool): Measurements out of their reference range stand for findings.
    """

    def __init__(
        self, *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
    ) -> None:
        self._shorthand, self._clinical = shorthand, clinical
        self._measurements = measurements
        # Names that spans stand for, from `find` to `queries`.
        self._names: WeakKeyDictionary[Doc, dict[tuple[int, int], str]] | None = None

    def with_knowledge(self, knowledge: Knowledge) -> Notes:
        bound = Notes(
            shorthand=self._shorthand, clinical=self._clinical, measurements=self._measurements
        )
        bound.knowledge, bound._names = knowledge, WeakKeyDictionary()
        return bound

    @property
    def clinical(self) -> Notes:
        """The same for texts that are clinical notes."""
        return Notes(shorthand=self._shorthand, clinical=True, measurements=True)

    @cached_property
    def _finder(self) -> _NoteFinder:
        assert self.knowledge is not None
        return _NoteFinder(self.knowledge.vocabularies)

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Shorthand beside the names of the whole knowledge base."""
        assert self.knowledge is not None
        return shorthand_beside(self.knowledge.kb, notes=self._clinical) if self._shorthand else {}

    @cached_property
    def _written_out(self) -> dict[KnowledgeBase, dict[str, str]]:
        return {}

    def short_forms(self, doc: Doc) -> dict[str, str]:
        text = text_of(doc)
        found = forms_in(text, self._forms)
        if self._measurements and self.knowledge is not None:
            kb = self.knowledge.kb
            found |= {form: known_of(kb, names) for form, names in measured(text).items()}
        return found

    def why_other(self, doc: Doc, starts: IntArray, ends: IntArray) -> list[str]:
        if not self._clinical:
            return [""] * len(starts)
        return [OTHER if other else "" for other in mean_other(text_of(doc), starts, ends).tolist()]

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        """Add what notes say to the mentions of each document; the name is their query."""
        if self.knowledge is None or self._names is None or not self._clinical:
            return list(spans)
        found = []
        for number, (doc, before) in enumerate(zip(docs, spans, strict=True)):
            names = self._finder.find(doc, measurements=self._measurements)
            kept = _without_other_meanings(doc, before)
            both = _add_names(kept, names)
            self._names[doc] = {place[:2]: name for place, name in names}
            if traces is not None:
                traces[number].changed(before, kept, OTHER)
                traces[number].changed(kept, both, "in shorthand, or a measurement")
                for place, name in names:
                    traces[number].add(place, "", name)
            found.append(both)
        return found

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        if self._names is None or mentions.n_parts:
            return mentions.queries
        names = [self._names.pop(doc, {}) for doc in mentions.docs]
        queries = list(mentions.queries)
        for number, (span, owner) in enumerate(zip(mentions.spans, mentions.owners, strict=True)):
            if (name := names[owner].get((span.start, span.end))) is not None:
                queries[number] = Query(normalize_name(name), text=name)
        return queries

    def rewrite(
        self, strings: Sequence[str], kb: KnowledgeBase, seen: Container[str]
    ) -> Sequence[str]:
        """Write shorthand out, except in strings that are known as they are."""
        if not self._shorthand:
            return strings
        if kb not in self._written_out:
            forms = shorthand_beside(kb)
            short, long = normalize_names(list(forms)), normalize_names(list(forms.values()))
            pairs = zip(short, long, strict=True)
            self._written_out[kb] = {s: whole for s, whole in pairs if s not in seen}
        forms = self._written_out[kb]
        written = [
            forms.get(string) or " ".join([forms.get(word, word) for word in string.split(" ")])
            for string in strings
        ]
        changed = [i for i, string in enumerate(strings) if written[i] != string]
        rows = kb.lookup_names([strings[i] for i in changed]) if changed else ()
        for i, row in zip(changed, rows, strict=True):
            if row >= 0 or strings[i] in seen:
                written[i] = strings[i]
        return written


def create_notes_v1(
    *, shorthand: bool = True, clinical: bool = False, measurements: bool = False
) -> Notes:
    """Registered as `spacy-bioel.Notes.v1`; the arguments are those of `Notes`."""
    return Notes(shorthand=shorthand, clinical=clinical, measurements=measurements)


def _without_other_meanings(doc: Doc, spans: Sequence[ScoredSpan]) -> list[ScoredSpan]:
    """Drop mentions that mean something else in notes."""
    places = [doc[s[0] : s[1]] for s in spans]
    borders = np.array([[s.start_char, s.end_char] for s in places], dtype=np.int64).reshape(-1, 2)
    is_other = mean_other(text_of(doc), *borders.T)
    return [span for span, other in zip(spans, is_other, strict=True) if not other]
