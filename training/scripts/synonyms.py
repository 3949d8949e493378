"""Names that an encoder is pre-trained on: synonyms of several vocabularies as one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

# Shorter names are abbreviations that mean many things.
_SHORTEST = 6
_SHORTEST_MENTION = 4
# A string is taken for the concept that it is linked to at least this often.
_SURE = 0.7


@dataclass
class Synonyms:
    """Different names, each of one concept; concepts of several vocabularies that share a name are
    one concept.

    names (list[str]): Normalised.
    concepts (list[int]): Number of the concept of each name, from 0.
    sources (list[int]): Number of the first source of each concept.
    """

    names: list[str] = field(default_factory=list)
    concepts: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


def join_names(sources: Sequence[Iterable[tuple[str, Sequence[str]]]]) -> Synonyms:
    """Join vocabularies through the names that they share.

    sources (Sequence): For each vocabulary, its concepts: id and names. A concept that several
        list by the same id is one to begin with. Two concepts of one vocabulary are never joined,
        and a name that means several concepts in the end is left out.
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
        if len(name) >= _SHORTEST and all(len(found) == 1 for found in by_source.values()):
            first, *others = sorted({root(*found) for found in by_source.values()})
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
    """Id and names of every concept."""
    for concept, concept_id in enumerate(kb.ids):
        yield concept_id, [kb.name(int(row)) for row in kb.names_of(concept)]


def names_of_mentions(mentions: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    """Id and strings of the concepts that were mentioned.

    mentions (Iterable): String and concept id of each mention.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for string, concept_id in mentions:
        counts[normalize_name(string)][concept_id] += 1
    strings: dict[str, list[str]] = defaultdict(list)
    for string, ids in counts.items():
        concept_id, count = ids.most_common(1)[0]
        if len(string) >= _SHORTEST_MENTION and count >= _SURE * ids.total():
            strings[concept_id].append(string)
    yield from strings.items()


def by_concept(concepts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows by concept, and where those of each start. Shapes (n,), (n_concepts + 1,)."""
    order = np.argsort(concepts, kind="stable")
    starts = np.zeros(int(concepts.max(initial=-1)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(concepts), out=starts[1:])
    return order, starts
