"""Read several knowledge bases as one joined knowledge base.

Strings, searches and vectors stay in the joined parts. Only row numbers are kept in memory, about
50 bytes per name, and each column is created on first use. Nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import KbColumn, checksum, offsets_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, Ragged, SortedKeys, StringColumn, word_keys
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import IntArray, KbRelease, remember

Normalize = Callable[[list[str]], list[str]]


class JoinedStrings(StringColumn):
    """The distinct strings in several columns, as one column.

    columns (Sequence[StringColumn]): One column from each knowledge base.
    part, row (NDArray): For each joined row, the number of its column, and its row in that column.
        Shape (n,) each.
    """

    def __init__(
        self, columns: Sequence[StringColumn], part: NDArray[np.int16], row: NDArray[np.int32]
    ) -> None:
        self._columns, self._part, self._row = columns, part, row

    def __len__(self) -> int:
        return len(self._part)

    def _read(self, rows: IntArray) -> list[str]:
        taken = np.empty(len(rows), dtype=object)
        for number, positions, local_rows in self.local(rows):
            taken[positions] = self._columns[number].take(local_rows)
        return list(taken)

    def local(self, rows: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Split joined rows by the column that contains their strings.

        YIELDS (tuple): Number of a column, positions in `rows`, and the rows in that column.
        """
        parts = self._part[rows]
        for number in range(len(self._columns)):
            if len(positions := np.flatnonzero(parts == number)):
                yield number, positions, self._row[rows[positions]].astype(np.int64)


def join_strings(
    columns: Sequence[StringColumn], by_key: Sequence[SortedKeys], *, normalize: Normalize
) -> tuple[JoinedStrings, list[NDArray[np.int32]], SortedKeys]:
    """Join several string columns into one, with one row per distinct string.

    by_key (Sequence[SortedKeys]): Keys and rows of each column.
    normalize (Callable): Returns the form in which strings with identical keys are compared.
    RETURNS (tuple): The joined column; for each column, the joined row of each of its rows; and the
        joined rows by key.
    """
    strings = JoinedStrings(columns, np.zeros(0, np.int16), np.zeros(0, np.int32))
    joined_keys = np.zeros(0, np.uint64)
    joined_rows: list[NDArray[np.int32]] = []
    for number, (column, sorted_keys) in enumerate(zip(columns, by_key, strict=True)):
        keys = np.empty(len(sorted_keys.keys), dtype=np.uint64)
        keys[sorted_keys.rows] = sorted_keys.keys
        by_joined_key = SortedKeys.from_keys(joined_keys)
        rows = by_joined_key.search(keys)
        known = np.flatnonzero(rows >= 0)

        def read(rows: IntArray, strings: JoinedStrings = strings) -> list[str]:
            return normalize(strings.take(rows))

        # Keys are hashes and may collide, so compare the strings too.
        rows[known] = by_joined_key.find(keys[known], normalize(column.take(known)), read)
        new = np.flatnonzero(rows < 0)
        rows[new] = len(strings) + np.arange(len(new))
        joined_rows.append(rows.astype(np.int32))
        part = np.append(strings._part, np.full(len(new), number, np.int16))
        strings = JoinedStrings(columns, part, np.append(strings._row, new.astype(np.int32)))
        joined_keys = np.append(joined_keys, keys[new])
    return strings, joined_rows, SortedKeys.from_keys(joined_keys)


# The columns that each method creates when one of them is first used.
_COLUMNS_OF_METHOD = {
    "_join_ids": ("ids", "concept_rows", "_by_id"),
    "_join_names": ("names", "name_rows", "_by_name", "ngrams"),
    "_join_entries": (
        "_names_of_concept", "_sources_of_concept", "_concepts_of_name", "name_is_preferred",
    ),
    "_join_types": ("_types_of_concept",),
    "_join_parents": ("_parents_of_concept",),
    "_join_retired": ("retired", "retired_targets", "_by_retired"),
    "_join_meta": ("meta",),
}  # fmt: skip


class JoinedKnowledgeBase(KnowledgeBase):
    """A read-only view of several knowledge bases as one. To change names, edit the parts.

    Concepts with the same id become one concept, with the names, types, parents and
    cross-references from all parts. A concept's preferred name and definition come from the first
    part that has one. An id that is retired in one part and current in another is current.

    parts (Sequence[KnowledgeBase]): Two or more.
    labels (Mapping[str, int]): For each label, the number of the part that its mentions link to.
        Mentions with other labels may link to all parts.

    concept_rows, name_rows (list): For each part, the joined row of each of its rows.
    """

    ids: JoinedStrings
    names: JoinedStrings
    concept_rows: list[NDArray[np.int32]]
    name_rows: list[NDArray[np.int32]]

    def __init__(
        self, parts: Sequence[KnowledgeBase], *, labels: Mapping[str, int] | None = None
    ) -> None:
        self.path = None
        self.parts = tuple(parts)
        self.labels = dict(labels or {})
        self._files = {}
        self.type_names = tuple(sorted(set[str]().union(*(p.type_names for p in parts))))
        self.sources = sum((part.sources for part in parts), ())
        first_sources = offsets_of([len(part.sources) for part in parts])
        self.built_sources = tuple(first_sources[:-1].tolist())
        lines = [part.fingerprint for part in parts]
        lines += [f"{label}\t{number}" for label, number in sorted(self.labels.items())]
        self.fingerprint = checksum("\n".join(lines).encode("utf8"))
        remember(self)

    def __getattr__(self, name: str) -> Any:
        for method, columns in _COLUMNS_OF_METHOD.items():
            if name in columns:
                getattr(self, method)()
                return self.__dict__[name]
        raise AttributeError(name)

    # -- Columns --------------------------------------------------------------------------------

    def _join_ids(self) -> None:
        keys = [part._by_id for part in self.parts]
        joined = join_strings([part.ids for part in self.parts], keys, normalize=list)
        self.ids, self.concept_rows, self._by_id = joined

    def _join_names(self) -> None:
        keys = [part._by_name for part in self.parts]
        joined = join_strings([part.names for part in self.parts], keys, normalize=normalize_names)
        self.names, self.name_rows, self._by_name = joined
        ngrams = [part.ngrams for part in self.parts]
        self.ngrams = JoinedSearch(ngrams, self.name_rows, nothing=0.0)  # type: ignore[assignment]

    def _join_entries(self) -> None:
        """Collect each concept's names from all parts, in part order."""
        n, n_names = len(self.ids), len(self.names)
        concept = self._owners("concept_offsets")
        name = self._mapped("concept_names", self.name_rows)
        source_rows = np.split(np.arange(len(self.sources)), self.built_sources[1:])
        sources = self._mapped("name_sources", source_rows)
        starts = offsets_of([len(part.concept_names) for part in self.parts])
        is_first = np.zeros(len(name), dtype=bool)
        for start, part in zip(starts, self.parts, strict=False):
            is_first[start + part.concept_offsets[:-1]] = True
        kept = _first_of_pairs(concept, name, below=n_names)
        # A name is preferred if it is the preferred name in any part.
        keys = concept * n_names + name
        is_preferred = np.isin(keys[kept], keys[is_first])
        concept, name = concept[kept], name[kept]
        by_name = np.lexsort((concept, name))
        self._names_of_concept = _ragged(concept, name, n, below=n_names)
        self._sources_of_concept = _ragged(concept, sources[kept], n, below=len(self.sources))
        self._concepts_of_name = _ragged(name[by_name], concept[by_name], n_names, below=n)
        self.name_is_preferred = is_preferred[by_name]

    def _join_types(self) -> None:
        row_of = {name: row for row, name in enumerate(self.type_names)}
        rows = [np.array([row_of[name] for name in p.type_names], np.int64) for p in self.parts]
        types = self._mapped("type_ids", rows)
        self._types_of_concept = self._distinct("type_offsets", types, below=len(row_of))

    def _join_parents(self) -> None:
        parents = self._mapped("parents", self.concept_rows)
        self._parents_of_concept = self._distinct("parent_offsets", parents, below=len(self))

    def _join_retired(self) -> None:
        """Keep retired ids that are not current in any part, each with its first replacement."""
        targets: dict[str, int] = {}
        for rows, part in zip(self.concept_rows, self.parts, strict=True):
            for id, row in zip(part.retired, rows[part.retired_targets].tolist(), strict=True):
                targets.setdefault(id, row)
        ids = list(targets)
        current = self._by_id.find(word_keys(ids), ids, self.ids.take)
        ids = [ids[i] for i in np.flatnonzero(current < 0).tolist()]
        lines = [f"{id}\n".encode() for id in ids]
        blob = np.frombuffer(b"".join(lines), np.uint8)
        ends = offsets_of([len(line) for line in lines]).astype(np.uint64)
        self.retired = StringColumn(KbColumn(blob), KbColumn(ends))
        self.retired_targets = np.array([targets[id] for id in ids], dtype=np.int32)
        self._by_retired = SortedKeys.from_keys(word_keys(ids))

    def _join_meta(self) -> None:
        """Build `meta` from the parts' sources, releases and licences, with new counts."""
        origin = {
            key: ", ".join(str(part.meta.get(key, "")) for part in self.parts)
            for key in ("source", "release", "licence")
        }
        counts = {"concepts": len(self), "names": self.n_names, "entries": len(self.concept_names)}
        self.meta = {**origin, "fingerprint": self.fingerprint, "counts": counts}

    def _mapped(self, column: str, joined_rows: Sequence[NDArray[np.integer]]) -> IntArray:
        """Concatenate a column of row numbers from all parts, converting them to joined rows."""
        pairs = zip(joined_rows, self.parts, strict=True)
        values = [rows[getattr(part, column)] for rows, part in pairs]
        return np.concatenate(values).astype(np.int64)

    def _owners(self, offsets: str) -> IntArray:
        """For a ragged column in all parts, return the joined row of each value's concept."""
        pairs = zip(self.concept_rows, self.parts, strict=True)
        owners = [np.repeat(rows, np.diff(getattr(part, offsets))) for rows, part in pairs]
        return np.concatenate(owners).astype(np.int64)

    def _distinct(self, offsets: str, values: IntArray, *, below: int) -> Ragged:
        """Merge a ragged column from all parts, dropping duplicate values within each concept."""
        owner = self._owners(offsets)
        kept = _first_of_pairs(owner, values, below=below)
        return _ragged(owner[kept], values[kept], len(self), below=below)

    # -- Concepts -------------------------------------------------------------------------------

    def definition(self, concept: int) -> str:
        for _, part, rows in self._in_parts(np.array([concept])):
            for row in rows.tolist():
                if definition := part.definition(row):
                    return definition
        return ""

    def xrefs_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        xrefs_of: list[dict[str, None]] = [{} for _ in concepts]
        for positions, part, rows in self._in_parts(concepts):
            for i, xrefs in zip(positions.tolist(), part.xrefs_of_all(rows), strict=True):
                xrefs_of[i] |= dict.fromkeys(xrefs)
        return list(map(tuple, xrefs_of))

    def labels_of(self, concepts: IntArray) -> list[str]:
        label_of_part = {number: label for label, number in reversed(self.labels.items())}
        taken = np.empty(len(concepts), dtype=object)
        for number, positions, rows in self.ids.local(concepts):
            taken[positions] = label_of_part.get(number) or self.parts[number].labels_of(rows)
        return list(taken)

    def has_concepts(self, part: int) -> NDArray[np.bool_]:
        """Return a mask of the concepts in a part. Shape (n_concepts,)."""
        mask = np.zeros(len(self), dtype=bool)
        mask[self.concept_rows[part]] = True
        return mask

    def memberships(self) -> Iterator[NDArray[np.bool_]]:
        return map(self.has_concepts, range(len(self.parts)))

    def _in_parts(self, concepts: IntArray) -> Iterator[tuple[IntArray, KnowledgeBase, IntArray]]:
        """For each part, yield the positions of its concepts, the part, and its rows for them."""
        ids = self.ids.take(concepts)
        for part in self.parts:
            rows = part._by_id.find(word_keys(ids), ids, part.ids.take)
            positions = np.flatnonzero(rows >= 0)
            yield positions, part, rows[positions]

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

    def verify(self, *, homes: bool = False) -> None:
        for part in self.parts:
            part.verify(homes=homes)

    def to_bytes(self) -> bytes:
        raise BioelError(Errors.B322.format(path=self.where))

    def save_to(self, path: str | Path) -> None:
        raise BioelError(Errors.B322.format(path=self.where))

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        return partial(JoinedKnowledgeBase, self.parts, labels=self.labels), ()


def parts_of(kb: KnowledgeBase) -> tuple[KnowledgeBase, ...]:
    """Return a joined knowledge base's parts; any other knowledge base counts as one part."""
    return kb.parts if isinstance(kb, JoinedKnowledgeBase) else (kb,)


def _first_of_pairs(owner: IntArray, values: IntArray, *, below: int) -> IntArray:
    """Return the first position of each distinct (owner, value) pair, sorted by owner."""
    first = np.sort(np.unique(owner * max(below, 1) + values, return_index=True)[1])
    return first[np.argsort(owner[first], kind="stable")]


def _ragged(owner: IntArray, values: IntArray, n: int, *, below: int) -> Ragged:
    """Create a ragged column of n rows from (owner, value) pairs sorted by owner."""
    offsets = offsets_of(np.bincount(owner, minlength=n))
    return Ragged(KbColumn(offsets), KbColumn(values.astype(np.int32)), below=below)


SearchResult = tuple[IntArray, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class JoinedSearch:
    """Search several knowledge bases and merge the results."""

    searches: Sequence[Any]  # objects with `search(queries, k) -> (rows, scores)`
    rows: Sequence[NDArray[Any]]  # arrays that map each search's rows to joined rows
    nothing: float  # score of a missing result (row -1)

    def search(self, queries: Sequence[str] | NDArray[np.float32], k: int) -> SearchResult:
        """Find the k best rows for each query, best first; the lower row wins ties."""
        all_rows, all_scores = [], []
        for search, joined_rows in zip(self.searches, self.rows, strict=True):
            rows, scores = search.search(queries, k)
            all_rows.append(np.where(rows >= 0, joined_rows[rows], -1))
            all_scores.append(scores)
        rows, scores = np.concatenate(all_rows, axis=1), np.concatenate(all_scores, axis=1)
        rows, scores = _sort_by_score(rows, scores)
        # Several searches may find the same name; keep its best score.
        for column in range(1, rows.shape[1]):
            is_repeated = (rows[:, :column] == rows[:, column : column + 1]).any(axis=1)
            rows[is_repeated, column] = -1
        rows, scores = _sort_by_score(rows, scores)
        return rows[:, :k], np.where(rows >= 0, scores, np.float32(self.nothing))[:, :k]

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Return each 3-gram's inverse document frequency, averaged over the knowledge bases."""
        return np.mean([search.rarity(codes) for search in self.searches], axis=0)


def _sort_by_score(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> SearchResult:
    """Sort each query's rows by score, with row -1 last."""
    order = np.lexsort((rows, -np.where(rows >= 0, scores, -np.inf)))
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
