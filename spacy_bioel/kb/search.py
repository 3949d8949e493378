"""Search for concepts by words, as a person types them: their names, or an id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import word_overlap
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

_NAMES_A_CONCEPT = 8  # names that are looked at for each concept that is wanted


@dataclass(frozen=True, slots=True)
class Hit:
    """Concept that a search found.

    name (str): The name that is most like the words; the id, if that was searched for.
    score (float): Likeness in spelling, from 0.3 to 1.
    """

    concept: Concept
    name: str
    score: float


def search_names(kb: KnowledgeBase, words: str, k: int = 10) -> list[Hit]:
    """Find the concepts that have the names most like some words, in any order of the words.

    words (str): Words of a name, which may be misspelled, or the id of a concept.
    k (int): Number of concepts.
    RETURNS (list[Hit]): The best first, each concept once: a concept with that id, then names
        that have all the words; of equal ones, those whose preferred name it is.
    """
    words = words.strip()
    hits = {kb.find(words): Hit(kb[words], words, 1.0)} if words in kb else {}
    query = normalize_name(words)
    rows, scores = (found[0] for found in kb.ngrams.search([query], k * _NAMES_A_CONCEPT))
    rows, scores = rows[rows >= 0], scores[rows >= 0]
    names = [normalize_name(kb.name(row)) for row in rows.tolist()]
    numbers = np.arange(len(names))
    _, shares = word_overlap([query], names, np.zeros_like(numbers), numbers)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    ranked = [
        (share < 1, -score, not is_preferred[entry], row, int(concepts[entry]))
        for i, (row, score, share) in enumerate(
            zip(rows.tolist(), scores.tolist(), shares.tolist(), strict=True)
        )
        for entry in range(indptr[i], indptr[i + 1])
    ]
    for _, negative, _, row, concept in sorted(ranked):
        if len(hits) >= k:
            break
        if concept not in hits:
            hits[concept] = Hit(kb.concept(concept), kb.name(row), round(-negative, 4))
    return list(hits.values())[:k]
