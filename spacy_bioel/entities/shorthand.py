"""Rules for shorthand: short forms that are used without a definition ("HTN": hypertension)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, TypeVar

import srsly
from spacy.tokens import Doc

from spacy_bioel.batch import Batch, Query
from spacy_bioel.dictionary.unambiguous import is_in_capitals
from spacy_bioel.doc import text_of
from spacy_bioel.entities import EntityRules
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names

MIN_CASELESS_LENGTH = 4  # in characters; shorter forms are case-sensitive
_LongForm = TypeVar("_LongForm")


@cache
def _tables() -> dict[str, Any]:
    """Read the tables in assets/shorthand.json (see assets/SOURCES.md)."""
    tables: dict[str, Any] = srsly.read_json(ASSETS_FOLDER / "shorthand.json")
    return tables


def long_forms_with(more: Mapping[str, str]) -> dict[str, str]:
    """Return the long forms of the general shorthand and of the shorthand in `more`.

    "|" separates alternative long forms. Short forms are also returned capitalised, as at the start
    of a line: "Wt loss" and "Dizzy", but not "Sob".
    """
    forms = {**_tables()["forms"], **more}
    for short in sorted(forms):
        if " " in short or (short.islower() and len(short) > MIN_CASELESS_LENGTH):
            forms[short[0].upper() + short[1:]] = forms[short]
    return forms


def forms_in(text: str, forms: Mapping[str, _LongForm]) -> dict[str, _LongForm]:
    """Return the short forms in a text, excluding words such as "AS" if the text is in capitals."""
    occurring = {short: long for short, long in forms.items() if short in text}
    if is_in_capitals(text):
        for word in _tables()["words_in_capitals"]:
            occurring.pop(word.upper(), None)
    return occurring


def first_known(kb: KnowledgeBase, names: str) -> str:
    """Return the first "|"-separated name that is in a knowledge base, or else the first name."""
    if "|" not in names:
        return names
    alternatives = names.split("|")
    return alternatives[(kb.lookup_names(normalize_names(alternatives)) >= 0).argmax()]


def shorthand_for(
    kb: KnowledgeBase, more: Mapping[str, str] | None = None, *, takes_precedence: bool = False
) -> dict[str, str]:
    """Return the long forms of shorthand, excluding short forms that a knowledge base has as names.

    more (Mapping | None): Shorthand to use in addition to the general shorthand.
    takes_precedence (bool): Keep a short form that is itself a name if its long form is a name
        too, unless a user has added the short form.
    """
    forms = {short: first_known(kb, long) for short, long in long_forms_with(more or {}).items()}
    rows = kb.lookup_names(normalize_names(list(forms)))
    is_kept = rows < 0
    if takes_precedence:
        is_known = kb.lookup_names(normalize_names(list(forms.values()))) >= 0
        is_kept |= is_known & ~kb.is_added[rows]
    return {short: long for (short, long), kept in zip(forms.items(), is_kept, strict=True) if kept}


class Shorthand(EntityRules):
    """Expand shorthand that means the same in all texts, unless it is a name in the knowledge base
    or was seen in training."""

    @cached_property
    def _forms(self) -> dict[str, str]:
        """The long form of each short form that is not itself a name in the knowledge base."""
        assert self.knowledge is not None
        return shorthand_for(self.knowledge.kb)

    @cached_property
    def _normalized_forms(self) -> dict[KnowledgeBase, dict[str, str]]:
        return {}

    def short_forms(self, doc: Doc) -> dict[str, str]:
        return forms_in(text_of(doc), self._forms)

    def prepare(self, batch: Batch) -> Sequence[Query]:
        assert self.knowledge is not None
        kbs = self.knowledge.linked_kbs(set(batch.labels))
        wholes = [
            self._expanded(string, kbs[label]) if label in kbs else string
            for string, label in zip(batch.strings, batch.labels, strict=True)
        ]
        return [
            query if query.whole == whole else replace(query, whole=whole)
            for query, whole in zip(batch.queries, wholes, strict=True)
        ]

    def _expanded(self, string: str, kb: KnowledgeBase) -> str:
        """Expand short forms in a normalised string that is neither a name nor a known alias."""
        assert self.knowledge is not None
        if kb not in self._normalized_forms:
            forms, seen = shorthand_for(kb), self.knowledge.seen
            short, long = normalize_names(list(forms)), normalize_names(list(forms.values()))
            pairs = zip(short, long, strict=True)
            self._normalized_forms[kb] = {s: whole for s, whole in pairs if s not in seen}
        forms = self._normalized_forms[kb]
        whole = forms.get(string) or " ".join([forms.get(w, w) for w in string.split(" ")])
        is_name = whole != string and kb.lookup_names([string])[0] >= 0
        return string if is_name or string in self.knowledge.seen else whole


create_shorthand_v1 = Shorthand  # registered as `spacy-bioel.Shorthand.v1`
