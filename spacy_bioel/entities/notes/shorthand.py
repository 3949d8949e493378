"""Short forms and measurements of clinical notes, and the names that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.unambiguous import is_in_capitals
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities.notes.layout import _ASSETS, _tables, mean_other
from spacy_bioel.entities.notes.measurements import _LONG, measured
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import normalize_name, normalize_names

_ROMAN = ("I", "II", "III", "IV", "V")


_Long = TypeVar("_Long")


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


def _shorthand(*, notes: bool) -> dict[str, str]:
    forms: dict[str, str] = srsly.read_json(_ASSETS / "shorthand.json") | (
        _of_notes() if notes else {}
    )
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
