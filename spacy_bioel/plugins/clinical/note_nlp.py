"""Write rows for the NOTE_NLP table of OMOP's Common Data Model 5.4."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from importlib.metadata import version
from itertools import chain, count
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import TextFormat, table_format
from spacy_bioel.export.html import linked_candidates
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.types import OMOP, STANDARD

NOTE_NLP = (
    *("note_nlp_id", "note_id", "section_concept_id", "snippet", "offset", "lexical_variant"),
    *("note_nlp_concept_id", "note_nlp_source_concept_id", "nlp_system", "nlp_date"),
    *("nlp_datetime", "term_exists", "term_temporal", "term_modifiers"),
)
_MAX_CHARS = 250
_N_AROUND = 60  # number of snippet characters on each side of the mention


def note_nlp_rows(numbers: Iterator[int], system: str, document: LinkedText) -> Iterator[list[Any]]:
    """Yield a numbered row for each standard concept of a mention (or with id 0 if it has none).

    RAISES BioelError: [B607] if the document's id is not an integer.
    """
    id, text, now = str(document.id), document.text or "", datetime.now().replace(microsecond=0)
    if not (id.isascii() and id.isdecimal()):
        raise BioelError(ClinicalErrors.B607.format(id=id))
    for link in document.links:
        around = max(0, link.start - _N_AROUND), link.end + _N_AROUND
        snippet, words = (
            " ".join(text[start:end].split())[:_MAX_CHARS]
            for start, end in (around, (link.start, link.end))
        )
        pairs = []
        for candidate in linked_candidates(link):
            own, *others = [x[len(OMOP) :] for x in candidate.xrefs if x.startswith(OMOP)] or ["0"]
            is_standard = own != "0" and STANDARD in candidate.concept.types
            pairs += [(new, own) for new in ([own] if is_standard else others or ["0"])]
        context = Context.of(link)
        said = _cells_of_context(context) if context else ("", "", "")
        for pair in pairs or [("0", "0")]:
            place = next(numbers), id, 0, snippet, link.start, words
            yield [*place, *pair, system, now.date(), now, *said]


def _cells_of_context(context: Context) -> tuple[str, str, str]:
    if context.assertion == "unknown":
        return "", "", ""
    modifiers = {
        "negated": context.negated,
        "uncertain": context.uncertain,
        "conditional": context.hypothetical,
        "historical": context.historical,
    }
    said = [f"{name}=true" for name, holds in modifiers.items() if holds]
    if context.experiencer != "patient":
        said.append(f"subject={context.relative or context.experiencer}")
    exists = "Y" if context.assertion in ("present", "historical") else "N"
    return exists, "past" if context.historical else "present", ";".join(said)


def create_format(*, raw: bool) -> TextFormat:
    """Return the output format, with rows numbered from 1.

    raw (bool): As in `export.formats.format_of`.
    """
    rows_of = partial(note_nlp_rows, count(1), f"spacy-bioel {version('spacy-bioel')}")
    return table_format(",", NOTE_NLP, rows_of, raw=raw)


def has_omop_ids(kb: KnowledgeBase) -> bool:
    all_xrefs = chain.from_iterable(kb.xrefs_of_all(np.arange(len(kb))))
    return any(xref.startswith(OMOP) for xref in all_xrefs)
