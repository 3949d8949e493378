"""Lookups over the columns of a knowledge base, wherever the columns come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.arrays import IntArray, Origin, Ragged, SortedKeys, StringColumn
from spacy_bioel.kb.columns.keys import KeyArray, name_keys, word_keys
from spacy_bioel.kb.columns.schema import XREF_SEPARATOR
from spacy_bioel.kb.words.ngrams import NgramIndex
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import Concept, KbRelease

_N_SHOWN = 5  # missing ids named in a Coverage


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of ids that a knowledge base knows: n = found + retired + missing."""

    n: int
    found: int
    retired: int  # replaced by a newer id
    missing: int
    first_missing: tuple[str, ...] = ()  # the first few distinct ones


class Lookups:
    """Rows of concepts and names, and what is known of each.

    The columns are attributes, for work on all rows at once. Columns *_offsets have the start of
    the values of each row: the concepts of name i are name_concepts[name_offsets[i] :
    name_offsets[i + 1]], and name_is_preferred has the same layout; name_sources has that of
    concept_names.
    """

    path: Path | None
    meta: dict[str, Any]
    fingerprint: str
    ids: StringColumn
    names: StringColumn
    definitions: StringColumn
    retired: StringColumn
    type_names: tuple[str, ...]
    sources: tuple[str, ...]
    built_sources: tuple[int, ...] = (0,)  # those of the build, or of the builds of the parts
    name_is_preferred: NDArray[np.bool_]
    name_keys: KeyArray
    ngrams: NgramIndex
    _xrefs: StringColumn
    _concepts_of_name: Ragged
    _names_of_concept: Ragged
    _sources_of_concept: Ragged
    _types_of_concept: Ragged
    _parents_of_concept: Ragged
    _by_name: SortedKeys
    _by_id: SortedKeys
    _by_retired: SortedKeys
    _retired_targets: NDArray[np.int32]

    # Whole columns, each checked on first access.
    name_offsets = property(attrgetter("_concepts_of_name.offsets"))
    name_concepts = property(attrgetter("_concepts_of_name.values"))
    concept_offsets = property(attrgetter("_names_of_concept.offsets"))
    concept_names = property(attrgetter("_names_of_concept.values"))
    name_sources = property(attrgetter("_sources_of_concept.values"))
    type_offsets = property(attrgetter("_types_of_concept.offsets"))
    type_ids = property(attrgetter("_types_of_concept.values"))
    parent_offsets = property(attrgetter("_parents_of_concept.offsets"))
    parents = property(attrgetter("_parents_of_concept.values"))
    name_key_rows = property(attrgetter("_by_name.rows"))

    @cached_property
    def retired_targets(self) -> NDArray[np.int32]:
        """Row of the concept that replaced each retired id. Shape (n_retired,)."""
        origin = Origin(self.where, "retired_targets.npy")
        return origin.rows(self._retired_targets, below=len(self))

    @property
    def title(self) -> str:
        """A short name: of the folder; within a pipeline, or in memory, of the first source."""
        if self.path is not None and self.path.name != "kb":
            return self.path.name
        return str(self.meta.get("source", "")).partition(",")[0].partition(".")[0].strip() or "KB"

    @property
    def releases(self) -> tuple[KbRelease, ...]:
        """Release of the sources; of each part, if this one is joined."""
        source, release, licence = (
            str(self.meta.get(key, "")) for key in ("source", "release", "licence")
        )
        return (KbRelease(self.title, source, release, licence, self.fingerprint, len(self)),)

    @property
    def where(self) -> str:
        """Folder, or "memory", for messages."""
        return str(self.path) if self.path else "memory"

    # -- Concepts -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: object) -> bool:
        """Whether an id is known: that of a concept, or one that was retired."""
        return isinstance(id, str) and self.find(id) >= 0

    def __getitem__(self, id: str) -> Concept:
        """Concept with this id, or the one that replaced it.

        RAISES BioelError: [B337] for an unknown id.
        """
        if (row := self.find(id)) >= 0:
            return self.concept(row)
        example = self.ids[0] if len(self) else "MESH:D003920"
        vocabulary, local = example.rpartition(":")[0], id.rpartition(":")[2]
        likely = {f"{vocabulary}:{local}", f"{vocabulary}:{local.upper()}", id.upper()}
        meant = [other for other in sorted(likely) if other in self]
        hint = f" Did you mean {meant[0]}?" if meant else ""
        name = self.releases[0].source or self.title
        raise BioelError(Errors.B337.format(id=id, kb=name, example=example, hint=hint))

    def concept(self, row: int) -> Concept:
        """Concept of a row. Names that differ in case or punctuation alone have one spelling."""
        return Concept(
            id=self.ids[row],
            names=tuple(self.names.take(self.names_of(row))),
            types=self.types_of(row),
            parents=tuple(self.ids_of(self.parents_of(row))),
            definition=self.definition(row),
            xrefs=self.xrefs(row),
        )

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        """Ids of many concepts. rows: shape (n,)."""
        return self.ids.take(rows)

    def find(self, id: str) -> int:
        """Row of an id, or of the id that replaced it; -1 if it is unknown."""
        return int(self.find_all([id])[0])

    def find_all(self, ids: Sequence[str]) -> IntArray:
        """`find` for many ids. Shape (n_ids,)."""
        rows, retired = self._find_current(ids)
        return np.where(retired >= 0, retired, rows)

    def canonical(self, id: str) -> str:
        """Current id of a retired id; other ids unchanged."""
        retired = int(self._find_current([id])[1][0])
        return self.ids[retired] if retired >= 0 else id

    def coverage(self, ids: Iterable[str]) -> Coverage:
        """Count the ids that are current, retired or missing, with repetitions."""
        ids = list(ids)
        rows, retired = self._find_current(ids)
        missing = np.flatnonzero((rows < 0) & (retired < 0))
        first = tuple(dict.fromkeys(ids[i] for i in missing))[:_N_SHOWN]
        found, n_retired = int((rows >= 0).sum()), int((retired >= 0).sum())
        return Coverage(len(ids), found, n_retired, len(missing), first)

    def _find_current(self, ids: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Rows of current ids, and rows of the concepts that replaced retired ids; -1 for none."""
        keys = word_keys(ids)
        rows = self._by_id.find(keys, ids, self.ids.take)
        retired = self._by_retired.find(keys, ids, self.retired.take)
        if len(self.retired):
            retired = np.where(retired >= 0, self.retired_targets[retired], -1)
        return rows, retired

    def definition(self, concept: int) -> str:
        """Definition of the concept, "" if it has none."""
        return self.definitions[concept]

    def xrefs(self, concept: int) -> tuple[str, ...]:
        """Cross-references of the concept to other vocabularies, as its source writes them."""
        return self.xrefs_of_all(np.array([concept]))[0]

    def xrefs_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        """`xrefs` of many concepts at once."""
        lines = self._xrefs.take(concepts)
        return [tuple(line.split(XREF_SEPARATOR)) if line else () for line in lines]

    def parents_of(self, concept: int) -> IntArray:
        """Rows of the parents of the concept. Shape (n_parents,)."""
        return self._parents_of_concept[concept]

    def children_of(self, concept: int) -> IntArray:
        """Rows of the concepts that have this one as a parent. Shape (n_children,)."""
        owner, parent = self._by_parent
        start, end = np.searchsorted(parent, [concept, concept + 1])
        return owner[start:end]

    @cached_property
    def _by_parent(self) -> tuple[IntArray, IntArray]:
        """Concept and parent of each entry of `parents`, sorted by parent."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.parent_offsets))
        order = np.argsort(self.parents, kind="stable")
        return owner[order], self.parents[order]

    def retired_ids_of(self, concept: int) -> tuple[str, ...]:
        """Ids that this concept replaced, in the order of the columns."""
        return tuple(self.retired.take(np.flatnonzero(self.retired_targets == concept)))

    def types_of(self, concept: int) -> tuple[str, ...]:
        """Semantic types of the concept, in the order of the source."""
        return tuple(self.type_names[i] for i in self._types_of_concept[concept].tolist())

    def types_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        """`types_of` of many concepts at once."""
        indptr, positions = self._types_of_concept.gather(concepts)
        types = [self.type_names[i] for i in self._types_of_concept.at(positions).tolist()]
        return [tuple(types[start:end]) for start, end in pairwise(indptr.tolist())]

    def labels_of(self, concepts: IntArray) -> list[str]:
        """Labels of mentions of concepts where no other is known: the first type of each, else the
        title of the knowledge base."""
        return [(*types, self.title)[0] for types in self.types_of_all(concepts)]

    def memberships(self) -> Iterator[NDArray[np.bool_]]:
        """Of each knowledge base that this one is made of, its concepts. Shape (n_concepts,)."""
        return iter([np.ones(len(self), dtype=bool)])

    def type_mask(self, types: Iterable[str]) -> NDArray[np.bool_]:
        """True for the concepts that have any of these types. Shape (n_concepts,)."""
        wanted = np.isin(self.type_names, list(types))
        mask = np.zeros(len(self), dtype=bool)
        mask[self._concept_of_type[wanted[self.type_ids]]] = True
        return mask

    @cached_property
    def _concept_of_type(self) -> IntArray:
        return np.repeat(np.arange(len(self)), np.diff(self.type_offsets))

    # -- Names ----------------------------------------------------------------------------------

    @property
    def n_names(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """Name in the spelling of the source."""
        return self.names[row]

    def names_of(self, concept: int) -> IntArray:
        """Name rows of a concept, the preferred one first. Shape (n_names_of_concept,)."""
        return self._names_of_concept[concept]

    def sources_of(self, concept: int) -> tuple[str, ...]:
        """Source of each of `names_of`: that of the build, or of a later addition."""
        return tuple(self.sources[row] for row in self._sources_of_concept[concept].tolist())

    @cached_property
    def is_added(self) -> NDArray[np.bool_]:
        """Whether each name came after the build, as with `bioel kb add`. Shape (n_names,)."""
        added = np.zeros(len(self.names), dtype=bool)
        if len(self.sources) > len(self.built_sources):
            later = ~np.isin(self.name_sources, self.built_sources)
            added[self.concept_names[later]] = True
        return added

    def preferred_name(self, concept: int) -> str:
        return self.names[int(self.names_of(concept)[0])]

    def preferred_rows(self, concepts: IntArray) -> IntArray:
        """Name rows of the preferred names of concepts. Any shape; returns the same."""
        return self._names_of_concept.first(concepts)

    def names_of_all(self, concepts: IntArray) -> tuple[IntArray, IntArray]:
        """Name rows of many concepts at once.

        RETURNS (tuple): indptr, shape (n + 1,), and name rows: the names of concepts[i], the
            preferred one first, are at indptr[i] : indptr[i + 1].
        """
        indptr, positions = self._names_of_concept.gather(concepts)
        return indptr, self._names_of_concept.at(positions)

    def lookup(self, keys: KeyArray) -> IntArray:
        """Name row of each key of `kb.columns.keys`, e.g. of all spans of a document; -1 for none,
        and for the key 0. Any shape; returns the same."""
        return np.where(np.asarray(keys) == 0, -1, self._by_name.search(keys))

    def lookup_names(self, normalized: Sequence[str]) -> IntArray:
        """Name row of each result of `normalize_name`, by comparing strings, not only hashes; -1 if
        there is no such name. Shape (n,)."""
        keys = name_keys(normalized)
        return self._by_name.find(
            keys, normalized, lambda rows: normalize_names(self.names.take(rows))
        )

    def concepts_of_names(self, rows: NDArray[Any]) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """All concepts of many names at once.

        rows (NDArray): Name rows; -1 has no concepts. Shape (n,).
        RETURNS (tuple): indptr, shape (n + 1,); concept rows, and whether the name is the
            preferred name of that concept, shape (n_entries,) each. The entries of rows[i] are at
            indptr[i] : indptr[i + 1].
        """
        indptr, positions = self._concepts_of_name.gather(rows)
        return indptr, self._concepts_of_name.at(positions), self.name_is_preferred[positions]
