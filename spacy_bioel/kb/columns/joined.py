"""Several knowledge bases as one, for reading.

Strings, searches and vectors stay those of the parts. In memory are only numbers, some 50 bytes a
name, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import Origin, RawFile
from spacy_bioel.kb.columns.files import IntArray, SortedKeys, offsets_of
from spacy_bioel.kb.columns.joined_rows import JoinedSearch, JoinedStrings, string_column
from spacy_bioel.kb.columns.ragged import KeyArray, Ragged, word_key
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.opened import remember
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import KbRelease


class JoinedKnowledgeBase(KnowledgeBase):
    """Knowledge bases as one, in their order; it is written to by way of its parts.

    Concepts with the same id are one concept, with the names, types, parents and cross-references
    of all. Its preferred name and its definition are those of the first part that has it. An id
    that is retired in one part and current in another is current.

    parts (Sequence[KnowledgeBase]): Two or more.
    labels (Mapping[str, int]): Number of the part whose concepts mentions of a label may link to.
        Others may link to all.
    """

    ids: JoinedStrings
    names: JoinedStrings
    retired_targets: NDArray[np.int32]

    def __init__(
        self, parts: Sequence[KnowledgeBase], *, labels: Mapping[str, int] | None = None
    ) -> None:
        self.path = None
        self.parts = tuple(parts)
        self.labels = dict(labels or {})
        self._files = {}
        self._join_rows()
        self._join_names()
        self._types_of_concept = self._joined_types()
        self._parents_of_concept = self._joined_parents()
        self._join_retired()
        grams = [part.ngrams for part in self.parts]
        self.ngrams = JoinedSearch(grams, self.name_rows, nothing=0.0)
        self.meta = self._described()
        self.fingerprint = str(self.meta["fingerprint"])
        remember(self)

    def _described(self) -> dict[str, Any]:
        """Contents that other knowledge bases have in meta.json."""
        lines = [part.fingerprint for part in self.parts]
        lines += [f"{label}\t{number}" for label, number in sorted(self.labels.items())]
        of_parts = {
            key: ", ".join(str(part.meta.get(key, "")) for part in self.parts)
            for key in ("source", "release", "licence")
        }
        counts = {"concepts": len(self), "names": self.n_names, "entries": len(self.concept_names)}
        digest = blake2b("\n".join(lines).encode("utf8"), digest_size=16).hexdigest()
        return {**of_parts, "fingerprint": digest, "counts": counts}

    # -- Columns --------------------------------------------------------------------------------

    def _join_rows(self) -> None:
        """Number concepts and names anew, and find them by their keys."""
        parts = self.parts
        ids = JoinedStrings(
            [part.ids for part in parts],
            [_by_row(part._by_id) for part in parts],
            same_form=list,
        )
        names = JoinedStrings(
            [part.names for part in parts],
            [_by_row(part._by_name) for part in parts],
            same_form=normalize_names,
        )
        self.ids, self.names, self.name_keys = ids, names, names.keys
        self.definitions = ids.beside([part.definitions for part in parts])
        self.concept_rows, self.name_rows = ids.rows, names.rows
        self._by_id = SortedKeys(ids.keys, ids.key_rows, below=len(ids))
        self._by_name = SortedKeys(names.keys, names.key_rows, below=len(names))

    def _join_names(self) -> None:
        """Give concepts the names of all parts, those of the first part first."""
        n, n_names = len(self.ids), len(self.names)
        concept = self._owners([part.concept_offsets for part in self.parts])
        pairs = zip(self.name_rows, self.parts, strict=True)
        name = _joined([rows[part.concept_names] for rows, part in pairs])
        is_first = np.zeros(len(name), dtype=bool)
        starts = offsets_of([len(part.concept_names) for part in self.parts])
        for start, part in zip(starts, self.parts, strict=False):
            is_first[start + part.concept_offsets[:-1]] = True
        self.sources = sum((part.sources for part in self.parts), ())
        before = offsets_of([len(part.sources) for part in self.parts])
        self.built_sources = tuple(before[:-1].tolist())
        sources = [n + part.name_sources for n, part in zip(before, self.parts, strict=False)]

        kept = _different(concept, name, below=n_names)
        self._names_of_concept = _ragged(concept[kept], name[kept], n, below=n_names)
        self._sources_of_concept = _ragged(
            concept[kept], _joined(sources)[kept], n, below=len(self.sources)
        )
        # A name may be the preferred one of any part.
        keys = concept * n_names + name
        is_preferred = np.isin(keys[kept], keys[is_first])
        by_name = np.lexsort((concept[kept], name[kept]))
        kept = kept[by_name]
        self._concepts_of_name = _ragged(name[kept], concept[kept], n_names, below=n)
        self.name_is_preferred = is_preferred[by_name]

    def _joined_types(self) -> Ragged:
        self.type_names = tuple(sorted(set[str]().union(*(p.type_names for p in self.parts))))
        number = {name: i for i, name in enumerate(self.type_names)}
        types = [
            np.array([number[name] for name in part.type_names], dtype=np.int64)[part.type_ids]
            for part in self.parts
        ]
        owner = self._owners([part.type_offsets for part in self.parts])
        return self._unique_values(owner, _joined(types), below=len(number))

    def _joined_parents(self) -> Ragged:
        pairs = zip(self.concept_rows, self.parts, strict=True)
        parents = _joined([rows[part.parents] for rows, part in pairs])
        owner = self._owners([part.parent_offsets for part in self.parts])
        return self._unique_values(owner, parents, below=len(self))

    def _join_retired(self) -> None:
        """Keep retired ids that are current in no part, each with its first replacement."""
        targets: dict[str, int] = {}
        for rows, part in zip(self.concept_rows, self.parts, strict=True):
            for id, row in zip(part.retired, rows[part.retired_targets].tolist(), strict=True):
                targets.setdefault(id, row)
        ids = list(targets)
        keys = np.array([word_key(id) for id in ids], dtype=np.uint64)
        current = self._by_id.find(keys, ids, self.ids.take)
        kept = np.flatnonzero(current < 0)
        self.retired = string_column(ids[i] for i in kept.tolist())
        self.retired_targets = np.array([targets[id] for id in self.retired], dtype=np.int32)
        order = np.argsort(keys[kept], kind="stable")
        rows = order.astype(np.int32)
        self._by_retired = SortedKeys(keys[kept][order], rows, below=len(kept))

    def _owners(self, offsets: Sequence[IntArray]) -> IntArray:
        """Joined concept row of each value of a ragged column of all parts."""
        pairs = zip(self.concept_rows, offsets, strict=True)
        return _joined([np.repeat(rows, np.diff(of_part)) for rows, of_part in pairs])

    def _unique_values(self, owner: IntArray, values: IntArray, *, below: int) -> Ragged:
        kept = _different(owner, values, below=below)
        return _ragged(owner[kept], values[kept], len(self), below=below)

    # -- Concepts -------------------------------------------------------------------------------

    def definition(self, concept: int) -> str:
        return next(
            (found for kb, row in self._found(concept) if (found := kb.definition(row))), ""
        )

    @property
    def has_xrefs(self) -> bool:
        return any(part.has_xrefs for part in self.parts)

    def xrefs(self, concept: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(x for kb, row in self._found(concept) for x in kb.xrefs(row)))

    def xrefs_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        return [self.xrefs(concept) for concept in concepts.tolist()]

    def labels_of(self, concepts: IntArray) -> list[str]:
        label_of = {number: label for label, number in reversed(self.labels.items())}
        parts = [self.ids.origin(concept) for concept in concepts.tolist()]
        return [
            label_of.get(number) or self.parts[number].labels_of(np.array([row]))[0]
            for number, row in parts
        ]

    def part_of(self, label: str) -> int | None:
        """Number of the part that mentions of a label may link to; None: all."""
        return self.labels.get(label)

    def has_concepts(self, part: int) -> NDArray[np.bool_]:
        """Concepts that are in a part. Shape (n_concepts,)."""
        mask = np.zeros(len(self), dtype=bool)
        mask[self.concept_rows[part]] = True
        return mask

    def memberships(self) -> Iterator[NDArray[np.bool_]]:
        """Of each part, the concepts that are in it. Shape (n_concepts,)."""
        return map(self.has_concepts, range(len(self.parts)))

    def _found(self, concept: int) -> Iterator[tuple[KnowledgeBase, int]]:
        """Parts that have a concept, and its row there."""
        id = self.ids[concept]
        for part in self.parts:
            row = part.find(id)
            if row >= 0 and part.ids[row] == id:
                yield part, row

    # -- Folders --------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        return " + ".join(part.title for part in self.parts)

    @property
    def releases(self) -> tuple[KbRelease, ...]:
        return sum((part.releases for part in self.parts), ())

    @property
    def where(self) -> str:
        return ", ".join(part.where for part in self.parts)

    def files(self) -> dict[str, RawFile]:
        return {}

    def verify(self) -> None:
        for part in self.parts:
            part.verify()

    def to_bytes(self) -> bytes:
        raise BioelError(Errors.B322.format(path=self.where))

    def save_to(self, path: str | Path) -> None:
        raise BioelError(Errors.B322.format(path=self.where))

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        return _rejoin, (self.parts, self.labels)


def parts_of(kb: KnowledgeBase) -> tuple[KnowledgeBase, ...]:
    """The knowledge bases that have folders and vectors: the parts of a joined one, or itself."""
    return kb.parts if isinstance(kb, JoinedKnowledgeBase) else (kb,)


def _rejoin(parts: Sequence[KnowledgeBase], labels: Mapping[str, int]) -> JoinedKnowledgeBase:
    return JoinedKnowledgeBase(parts, labels=labels)


def _by_row(keys: SortedKeys) -> KeyArray:
    """Keys in the order of their rows."""
    by_row = np.empty(len(keys.keys), dtype=np.uint64)
    by_row[keys.rows] = keys.keys
    return by_row


def _joined(columns: Sequence[NDArray[Any]]) -> IntArray:
    return np.concatenate(columns).astype(np.int64)


def _different(owner: IntArray, values: IntArray, *, below: int) -> IntArray:
    """Positions of the first of each pair of owner and value, by owner, otherwise in order."""
    first = np.sort(np.unique(owner * max(below, 1) + values, return_index=True)[1])
    order: IntArray = first[np.argsort(owner[first], kind="stable")]
    return order


def _ragged(owner: IntArray, values: IntArray, n: int, *, below: int) -> Ragged:
    """A ragged column of n rows, from pairs of owner and value, by owner."""
    offsets = offsets_of(np.bincount(owner, minlength=n))
    origins = (Origin(), Origin())
    return Ragged(offsets, values.astype(np.int32), below=below, least=0, origins=origins)
