"""Labels of names that were found with a knowledge base: no pipe before has given them one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import Link


def with_labels(links: Sequence[Sequence[Link]], kb: KnowledgeBase) -> list[list[Link]]:
    """Links with labels in place of empty ones: `doc.ents` takes no span without one.

    The label is that of the linked concept, or of the best candidate where that is NIL, see
    `KnowledgeBase.label_of`.
    """
    concepts = [_concept_of(link) for of_doc in links for link in of_doc]
    different = list(dict.fromkeys(concepts))
    rows = kb.find_all(different).tolist()
    known = zip(different, rows, strict=True)
    label_of = {id: kb.label_of(row) if row >= 0 else kb.title for id, row in known}
    labels = iter([label_of[id] for id in concepts])
    return [[replace(link, label=next(labels)) for link in of_doc] for of_doc in links]


def _concept_of(link: Link) -> str:
    return next(iter(link.ids or (c.id for c in link.candidates)), "")
