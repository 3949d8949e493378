"""Join the synonyms of several vocabularies, to pre-train an encoder on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

# Shorter names are mostly ambiguous abbreviations.
_MIN_LENGTH = 6
_MIN_MENTION_LENGTH = 4
# Share of the mentions of a string that must be linked to its most frequent concept.
_MIN_AGREEMENT = 0.7


@dataclass
class Synonyms:
    """Unique names, each of one concept; concepts of different vocabularies are joined by names.

    names (list[str]): Normalised.
    concepts (list[int]): Number of the concept of each name, from 0.
    sources (list[int]): Number of the first source of each concept.
    """

    names: list[str] = field(default_factory=list)
    concepts: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


def join_names(sources: Sequence[Iterable[tuple[str, Sequence[str]]]]) -> Synonyms:
    """Join concepts of different vocabularies that share a name or an id.

    Two concepts of one vocabulary are never joined. Names that remain ambiguous are left out.

    sources (Sequence): For each vocabulary its concepts, as id and names.
    """
    origin: list[int] = []
    names_of: list[list[str]] = []
    vocabularies: list[set[int]] = []
    rows: dict[str, int] = {}
    owners: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, source in enumerate(sources):
        for concept_id, names in source:
            row = rows.setdefault(concept_id, len(origin))
            if row == len(origin):
                origin.append(number)
                names_of.append([])
                vocabularies.append(set())
            vocabularies[row].add(number)
            different = [n for n in dict.fromkeys(map(normalize_name, names)) if n]
            names_of[row] += different
            for name in different:
                owners[name][number].add(row)
    parent = list(range(len(origin)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for name, by_source in owners.items():
        if len(name) >= _MIN_LENGTH and all(len(concepts) == 1 for concepts in by_source.values()):
            first, *others = sorted({root(*concepts) for concepts in by_source.values()})
            for other in others:
                if vocabularies[first].isdisjoint(vocabularies[other]):
                    parent[other] = first
                    vocabularies[first] |= vocabularies[other]
    joined: dict[str, set[int]] = defaultdict(set)
    for row, names in enumerate(names_of):
        for name in names:
            joined[name].add(root(row))
    result = Synonyms()
    numbers: dict[int, int] = {}
    for name, concepts in joined.items():
        if len(concepts) == 1:
            (concept,) = concepts
            if concept not in numbers:
                numbers[concept] = len(numbers)
                result.sources.append(origin[concept])
            result.names.append(name)
            result.concepts.append(numbers[concept])
    return result


def names_of_kb(kb: KnowledgeBase) -> Iterable[tuple[str, list[str]]]:
    """Yield id and names of every concept."""
    for concept, concept_id in enumerate(kb.ids):
        yield concept_id, [kb.name(int(row)) for row in kb.names_of(concept)]


def names_of_mentions(mentions: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    """Yield id and strings of the concepts that were mentioned.

    mentions (Iterable): String and concept id of each mention.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for string, concept_id in mentions:
        counts[normalize_name(string)][concept_id] += 1
    strings: dict[str, list[str]] = defaultdict(list)
    for string, ids in counts.items():
        concept_id, count = ids.most_common(1)[0]
        if len(string) >= _MIN_MENTION_LENGTH and count >= _MIN_AGREEMENT * ids.total():
            strings[concept_id].append(string)
    yield from strings.items()


def by_concept(concepts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows sorted by concept, and the start of each. Shapes (n,), (n_concepts + 1,)."""
    order = np.argsort(concepts, kind="stable")
    starts = np.zeros(int(concepts.max(initial=-1)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(concepts), out=starts[1:])
    return order, starts
