"""Search for concepts by words, as a person types them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import Misspellings, word_overlap
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.text.stems import words_of
from spacy_bioel.types import Concept

_NAMES_A_CONCEPT = 8  # names that are looked at for each concept that is wanted


@dataclass(frozen=True, slots=True)
class Hit:
    """Concept that a search found."""

    concept: Concept
    name: str  # that is most like the words; the id, if that was searched for
    score: float  # likeness in spelling, from 0.3 to 1


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
    owner = np.repeat(numbers, np.diff(indptr))
    columns = (shares[owner] < 1, -scores[owner], ~is_preferred, rows[owner], concepts)
    ranked = sorted(zip(*(column.tolist() for column in columns), strict=True))
    for _, negative, _, row, concept in ranked:
        if len(hits) >= k:
            break
        if concept not in hits:
            hits[concept] = Hit(kb.concept(concept), kb.name(row), round(-negative, 4))
    return list(hits.values())[:k]


def corrected(kb: KnowledgeBase, words: str) -> str:
    """Words with those that are one slip away from a word of the names in its place: "siezures",
    which has no three letters in a row of "seizures", is like no name. Reads all names.
    """
    counts = Counter(word for name in normalize_names(list(kb.names)) for word in words_of(name))
    meant = partial(Misspellings(counts).meant, known={})
    return " ".join(meant(word) or word for word in normalize_name(words).split())
