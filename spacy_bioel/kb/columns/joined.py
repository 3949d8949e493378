"""Several knowledge bases as one, for reading.

Strings, searches and vectors stay those of the parts. In memory are only numbers, some 50 bytes a
name, each column from its first use on, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import Origin, RawFile
from spacy_bioel.kb.columns.files import IntArray, SortedKeys, StringColumn, offsets_of
from spacy_bioel.kb.columns.joined_rows import JoinedSearch, JoinedStrings, string_column
from spacy_bioel.kb.columns.ragged import KeyArray, Ragged, word_key
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import KbRelease, remember


class _Numbered(NamedTuple):
    """Strings of all parts with joined rows, and the search for a row by its key."""

    strings: JoinedStrings
    by_key: SortedKeys


class _Entries(NamedTuple):
    """Names of concepts and concepts of names."""

    names_of_concept: Ragged
    sources_of_concept: Ragged
    concepts_of_name: Ragged
    is_preferred: NDArray[np.bool_]


class _Replaced(NamedTuple):
    """Retired ids, and the concept rows that replace them."""

    ids: StringColumn
    targets: NDArray[np.int32]
    by_key: SortedKeys


class JoinedKnowledgeBase(KnowledgeBase):
    """Knowledge bases as one, in their order; it is written to by way of its parts.

    Concepts with the same id are one concept, with the names, types, parents and cross-references
    of all. Its preferred name and its definition are those of the first part that has it. An id
    that is retired in one part and current in another is current.

    parts (Sequence[KnowledgeBase]): Two or more.
    labels (Mapping[str, int]): Number of the part whose concepts mentions of a label may link to.
        Others may link to all.
    """

    # Made together, at first use.
    ids = property(attrgetter("_joined_ids.strings"))
    _by_id = property(attrgetter("_joined_ids.by_key"))
    concept_rows = property(attrgetter("_joined_ids.strings.rows"))
    names = property(attrgetter("_joined_names.strings"))
    _by_name = property(attrgetter("_joined_names.by_key"))
    name_rows = property(attrgetter("_joined_names.strings.rows"))
    name_keys = property(attrgetter("_joined_names.strings.keys"))
    _names_of_concept = property(attrgetter("_entries.names_of_concept"))
    _sources_of_concept = property(attrgetter("_entries.sources_of_concept"))
    _concepts_of_name = property(attrgetter("_entries.concepts_of_name"))
    name_is_preferred = property(attrgetter("_entries.is_preferred"))
    retired = property(attrgetter("_replaced.ids"))
    retired_targets = property(attrgetter("_replaced.targets"))
    _by_retired = property(attrgetter("_replaced.by_key"))

    def __init__(
        self, parts: Sequence[KnowledgeBase], *, labels: Mapping[str, int] | None = None
    ) -> None:
        self.path = None
        self.parts = tuple(parts)
        self.labels = dict(labels or {})
        self._files = {}
        self.type_names = tuple(sorted(set[str]().union(*(p.type_names for p in parts))))
        self.sources = sum((part.sources for part in parts), ())
        before = offsets_of([len(part.sources) for part in parts])
        self.built_sources = tuple(before[:-1].tolist())
        lines = [part.fingerprint for part in parts]
        lines += [f"{label}\t{number}" for label, number in sorted(self.labels.items())]
        self.fingerprint = blake2b("\n".join(lines).encode("utf8"), digest_size=16).hexdigest()
        remember(self)

    @cached_property
    def meta(self) -> dict[str, Any]:  # type: ignore[override]
        """Contents that other knowledge bases have in meta.json."""
        of_parts = {
            key: ", ".join(str(part.meta.get(key, "")) for part in self.parts)
            for key in ("source", "release", "licence")
        }
        counts = {"concepts": len(self), "names": self.n_names, "entries": len(self.concept_names)}
        return {**of_parts, "fingerprint": self.fingerprint, "counts": counts}

    # -- Columns --------------------------------------------------------------------------------

    @cached_property
    def _joined_ids(self) -> _Numbered:
        return _number(self.parts, "ids", "_by_id", same_form=list)

    @cached_property
    def _joined_names(self) -> _Numbered:
        return _number(self.parts, "names", "_by_name", same_form=normalize_names)

    @cached_property
    def definitions(self) -> JoinedStrings:  # type: ignore[override]
        return self.ids.beside([part.definitions for part in self.parts])

    @cached_property
    def ngrams(self) -> JoinedSearch:  # type: ignore[override]
        return JoinedSearch([part.ngrams for part in self.parts], self.name_rows, nothing=0.0)

    @cached_property
    def _entries(self) -> _Entries:
        """Give concepts the names of all parts, those of the first part first."""
        n, n_names = len(self.ids), len(self.names)
        concept = self._owners([part.concept_offsets for part in self.parts])
        pairs = zip(self.name_rows, self.parts, strict=True)
        name = _joined([rows[part.concept_names] for rows, part in pairs])
        is_first = np.zeros(len(name), dtype=bool)
        starts = offsets_of([len(part.concept_names) for part in self.parts])
        for start, part in zip(starts, self.parts, strict=False):
            is_first[start + part.concept_offsets[:-1]] = True
        pairs = zip(self.built_sources, self.parts, strict=True)
        sources = _joined([first + part.name_sources for first, part in pairs])

        kept = _different(concept, name, below=n_names)
        # A name may be the preferred one of any part.
        keys = concept * n_names + name
        is_preferred = np.isin(keys[kept], keys[is_first])
        by_name = np.lexsort((concept[kept], name[kept]))
        return _Entries(
            _ragged(concept[kept], name[kept], n, below=n_names),
            _ragged(concept[kept], sources[kept], n, below=len(self.sources)),
            _ragged(name[kept][by_name], concept[kept][by_name], n_names, below=n),
            is_preferred[by_name],
        )

    @cached_property
    def _types_of_concept(self) -> Ragged:  # type: ignore[override]
        number = {name: i for i, name in enumerate(self.type_names)}
        types = [
            np.array([number[name] for name in part.type_names], dtype=np.int64)[part.type_ids]
            for part in self.parts
        ]
        owner = self._owners([part.type_offsets for part in self.parts])
        return self._unique_values(owner, _joined(types), below=len(number))

    @cached_property
    def _parents_of_concept(self) -> Ragged:  # type: ignore[override]
        pairs = zip(self.concept_rows, self.parts, strict=True)
        parents = _joined([rows[part.parents] for rows, part in pairs])
        owner = self._owners([part.parent_offsets for part in self.parts])
        return self._unique_values(owner, parents, below=len(self))

    @cached_property
    def _replaced(self) -> _Replaced:
        """Keep retired ids that are current in no part, each with its first replacement."""
        targets: dict[str, int] = {}
        for rows, part in zip(self.concept_rows, self.parts, strict=True):
            for id, row in zip(part.retired, rows[part.retired_targets].tolist(), strict=True):
                targets.setdefault(id, row)
        ids = list(targets)
        keys = np.array([word_key(id) for id in ids], dtype=np.uint64)
        current = self._by_id.find(keys, ids, self.ids.take)
        kept = np.flatnonzero(current < 0)
        retired = string_column(ids[i] for i in kept.tolist())
        order = np.argsort(keys[kept], kind="stable")
        return _Replaced(
            retired,
            np.array([targets[id] for id in retired], dtype=np.int32),
            SortedKeys(keys[kept][order], order.astype(np.int32), below=len(kept)),
        )

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


def _number(
    parts: Sequence[KnowledgeBase],
    column: str,
    keys: str,
    *,
    same_form: Callable[[list[str]], list[str]],
) -> _Numbered:
    """Number the strings of a column of all parts anew."""
    of_rows = [_by_row(getattr(part, keys)) for part in parts]
    strings = JoinedStrings([getattr(p, column) for p in parts], of_rows, same_form=same_form)
    return _Numbered(strings, SortedKeys(strings.keys, strings.key_rows, below=len(strings)))


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
