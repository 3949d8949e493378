"""Short forms that documents define in brackets after names of chemicals: "mesalamine (5-ASA)".

Their letters need not occur in the name, unlike those of the abbreviations in `text.sentences`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_bioel.doc import long_forms, text_of, texts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.mentions.selection import add_defined_forms
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.text.sentences import find_forms, is_short_form
from spacy_bioel.types import ScoredSpan

DEFINED_LABELS = ("Chemical",)
_IN_BRACKETS = re.compile(r"\s?[(\[]([^\s()\[\],;]{2,10})[)\],;]")
# Measures, routes, doses and places: "cisplatin (IC50)", "aspirin (PO)".
_OTHER = re.compile(
    r"(?:IC|EC|LD|ED|GI|CC|LC|TD)-?\d+|AUC|C?max|[IVXS]+|\d.*(?:[mµμn]?[gMLl]|%)|[CR]?[IR]|OR|HR"
    r"|SD|SEM?|USA?|UK|EU|PO|IP|IM|SC|ICV|IT|IN|BID|TID|QD|HPLC|MS|NMR|UV|FDA|CAS|NCT\d+|[A-Z]\d?"
)


def definitions_of_names(
    doc: Doc, spans: Sequence[ScoredSpan], kb: KnowledgeBase
) -> dict[str, str]:
    """Return the names by the short forms defined for them and used again.

    A short form that is a name of other concepts keeps that meaning.
    """
    defined: dict[str, str] = {}
    text, known = text_of(doc), long_forms(doc)
    named = [span for span in spans if span[2] in DEFINED_LABELS]
    for (_, end, *_), name in zip(named, texts_of(doc, named), strict=True):
        match = _IN_BRACKETS.match(text, doc[end - 1].idx + len(doc[end - 1]))
        short = match[1] if match else ""
        if not is_short_form(short) or short in known or _OTHER.fullmatch(short):
            continue
        concepts = [_concepts(kb, string) for string in (short, name)]
        if concepts[1] and concepts[0] <= concepts[1] and len(find_forms(text, [short])[short]) > 1:
            defined.setdefault(short, name)
    return defined


def _concepts(kb: KnowledgeBase, name: str) -> set[int]:
    return set(kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))[1].tolist())


def with_definitions(
    doc: Doc, spans: Sequence[ScoredSpan], kb: KnowledgeBase
) -> tuple[list[ScoredSpan], dict[str, str]]:
    """Add the short forms that a document defines, and return the long forms of `kb` names."""
    defined = definitions_of_names(doc, spans, kb)
    return add_defined_forms(doc, spans, defined), defined
