"""Rows for the table NOTE_NLP of OMOP's Common Data Model 5.4."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from itertools import count
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.html import linked_candidates
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.types import OMOP, STANDARD, Context, Link

NOTE_NLP = (
    *("note_nlp_id", "note_id", "section_concept_id", "snippet", "offset", "lexical_variant"),
    *("note_nlp_concept_id", "note_nlp_source_concept_id", "nlp_system", "nlp_date"),
    *("nlp_datetime", "term_exists", "term_temporal", "term_modifiers"),
)
_MAX_CHARS = 250  # in snippet and lexical_variant
_N_AROUND = 60  # characters of a snippet on each side of the mention


class NoteNlpRows:
    """Makes the rows of documents, numbered from 1."""

    def __init__(self) -> None:
        self._numbers, self._now = count(1), datetime.now().replace(microsecond=0)
        self._system = f"spacy-bioel {version('spacy-bioel')}"

    def __call__(self, document: LinkedText) -> Iterator[list[Any]]:
        """Yield a row for each mention and standard concept.

        RAISES BioelError: [B607] if the document's id is not an integer.
        """
        id, text = str(document.id), document.text or ""
        if not (id.isascii() and id.isdecimal()):
            raise BioelError(Errors.B607.format(id=id))
        for link in document.links:
            words = " ".join(text[link.start : link.end].split())[:_MAX_CHARS]
            before = text[max(0, link.start - _N_AROUND) : link.start]
            snippet = " ".join(f"{before}{text[link.start : link.end + _N_AROUND]}".split())
            said = _cells_of_context(link.context)
            run = self._system, self._now.date(), self._now
            for standard, source in _omop_ids(link):
                place = 0, snippet[:_MAX_CHARS], link.start, words
                yield [next(self._numbers), id, *place, standard, source, *run, *said]


def _omop_ids(link: Link) -> list[tuple[str, str]]:
    """Return the standard concepts and the linked concepts of a mention; "0" if there is none."""
    pairs = []
    for candidate in linked_candidates(link):
        ids = [x.removeprefix(OMOP) for x in candidate.xrefs if x.startswith(OMOP)] or ["0"]
        is_standard = STANDARD in candidate.concept.types
        pairs += [(new, ids[0]) for new in (ids[:1] if is_standard else ids[1:] or ["0"])]
    return pairs or [("0", "0")]


def _cells_of_context(context: Context | None) -> tuple[str, str, str]:
    if context is None:
        return "", "", ""
    names = {
        "negated": context.negated,
        "uncertain": context.uncertain,
        "conditional": context.hypothetical,
        "historical": context.historical,
    }
    modifiers = [f"{name}=true" for name, holds in names.items() if holds]
    if context.experiencer != "patient":
        modifiers.append(f"subject={context.relative or context.experiencer}")
    exists = "Y" if context.assertion in ("present", "historical") else "N"
    return exists, "past" if context.historical else "present", ";".join(modifiers)
