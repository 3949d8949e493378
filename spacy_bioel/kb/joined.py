"""Several knowledge bases as one, for reading.

Strings, searches and vectors stay those of the parts. In memory are only numbers, some 50 bytes a
name, each column from its first use on, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import RawFile, offsets_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, Ragged, SortedKeys, StringColumn, word_keys
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import IntArray, KbRelease, remember

SameForm = Callable[[list[str]], list[str]]


class JoinedStrings(StringColumn):
    """Strings of several columns, each different one with a row of its own.

    columns (Sequence[StringColumn]): One of each knowledge base.
    part, row (NDArray): Number of the column of each joined row, and the row there. Shape (n,).
    """

    def __init__(
        self, columns: Sequence[StringColumn], part: NDArray[np.int16], row: NDArray[np.int32]
    ) -> None:
        self._columns, self._part, self._row = columns, part, row

    def __len__(self) -> int:
        return len(self._part)

    def _read(self, rows: IntArray) -> list[str]:
        taken = np.empty(len(rows), dtype=object)
        for number, at, own in self.local(rows):
            taken[at] = self._columns[number].take(own)
        strings: list[str] = taken.tolist()
        return strings

    def local(self, rows: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """For each column, its number, the places in `rows` of its rows, and these rows in it."""
        parts = self._part[rows]
        for number in range(len(self._columns)):
            if len(at := np.flatnonzero(parts == number)):
                yield number, at, self._row[rows[at]].astype(np.int64)

    def raw(self) -> tuple[RawFile, NDArray[np.uint64]]:
        return string_column(self).raw()


def join_strings(
    columns: Sequence[StringColumn], by_key: Sequence[SortedKeys], *, same_form: SameForm
) -> tuple[JoinedStrings, list[NDArray[np.int32]], SortedKeys]:
    """Number the different strings of several columns, whose rows `by_key` has.

    same_form (Callable): The form in which strings of equal keys are compared.
    RETURNS (tuple): The strings; of each column, the joined row of each of its rows; and the
        joined rows by their keys.
    """
    strings = JoinedStrings(columns, np.zeros(0, np.int16), np.zeros(0, np.int32))
    joined_keys = np.zeros(0, np.uint64)
    rows_of: list[NDArray[np.int32]] = []
    for number, (column, own) in enumerate(zip(columns, by_key, strict=True)):
        keys = np.empty(len(own.keys), dtype=np.uint64)
        keys[own.rows] = own.keys
        rows = SortedKeys.of(joined_keys).search(keys)
        known = np.flatnonzero(rows >= 0)
        # Keys are hashes: strings are compared too.
        is_same = _are_same(strings.take(rows[known]), column.take(known), same_form)
        rows[known[~is_same]] = -1
        new = np.flatnonzero(rows < 0)
        rows[new] = len(strings) + np.arange(len(new))
        rows_of.append(rows.astype(np.int32))
        part = np.append(strings._part, np.full(len(new), number, np.int16))
        strings = JoinedStrings(columns, part, np.append(strings._row, new.astype(np.int32)))
        joined_keys = np.append(joined_keys, keys[new])
    return strings, rows_of, SortedKeys.of(joined_keys)


def _are_same(there: list[str], here: list[str], same_form: SameForm) -> NDArray[np.bool_]:
    """Whether strings are the same in the form that counts; most are as they are."""
    is_same = np.array([a == b for a, b in zip(there, here, strict=True)], dtype=bool)
    others = np.flatnonzero(~is_same).tolist()
    forms = (same_form([strings[i] for i in others]) for strings in (there, here))
    is_same[others] = [a == b for a, b in zip(*forms, strict=True)]
    return is_same


def string_column(strings: Sequence[str] | StringColumn) -> StringColumn:
    """A column of strings in memory."""
    lines = [f"{string}\n".encode() for string in strings]
    blob = np.frombuffer(b"".join(lines), dtype=np.uint8)
    return StringColumn(blob, offsets_of([len(line) for line in lines]).astype(np.uint64))


# Columns that are made together, at first use, and by which method.
_MADE = {
    "_join_ids": ("ids", "concept_rows", "_by_id"),
    "_join_names": ("names", "name_rows", "name_keys", "_by_name", "ngrams"),
    "_join_entries": (
        "_names_of_concept", "_sources_of_concept", "_concepts_of_name", "name_is_preferred",
    ),
    "_join_types": ("_types_of_concept",),
    "_join_parents": ("_parents_of_concept",),
    "_join_retired": ("retired", "retired_targets", "_by_retired"),
    "_join_meta": ("meta",),
}  # fmt: skip
_MAKER = {column: maker for maker, columns in _MADE.items() for column in columns}


class JoinedKnowledgeBase(KnowledgeBase):
    """Knowledge bases as one, in their order; it is written to by way of its parts.

    Concepts with the same id are one concept, with the names, types, parents and cross-references
    of all. Its preferred name and its definition are those of the first part that has it. An id
    that is retired in one part and current in another is current.

    parts (Sequence[KnowledgeBase]): Two or more.
    labels (Mapping[str, int]): Number of the part whose concepts mentions of a label may link to.
        Others may link to all.

    concept_rows, name_rows (list): Of each part, the joined row of each of its rows.
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
        before = offsets_of([len(part.sources) for part in parts])
        self.built_sources = tuple(before[:-1].tolist())
        lines = [part.fingerprint for part in parts]
        lines += [f"{label}\t{number}" for label, number in sorted(self.labels.items())]
        self.fingerprint = blake2b("\n".join(lines).encode("utf8"), digest_size=16).hexdigest()
        remember(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _MAKER:
            raise AttributeError(name)
        getattr(self, _MAKER[name])()
        return self.__dict__[name]

    # -- Columns --------------------------------------------------------------------------------

    def _join_ids(self) -> None:
        keys = [part._by_id for part in self.parts]
        joined = join_strings([part.ids for part in self.parts], keys, same_form=list)
        self.ids, self.concept_rows, self._by_id = joined

    def _join_names(self) -> None:
        keys = [part._by_name for part in self.parts]
        names = [part.names for part in self.parts]
        joined = join_strings(names, keys, same_form=normalize_names)
        self.names, self.name_rows, self._by_name = joined
        self.name_keys = self._by_name.keys
        ngrams = [part.ngrams for part in self.parts]
        self.ngrams = JoinedSearch(ngrams, self.name_rows, nothing=0.0)  # type: ignore[assignment]

    def _join_entries(self) -> None:
        """Give concepts the names of all parts, those of the first part first."""
        n, n_names = len(self.ids), len(self.names)
        concept = self._owners("concept_offsets")
        name = self._mapped("concept_names", self.name_rows)
        numbers = np.split(np.arange(len(self.sources)), self.built_sources[1:])
        sources = self._mapped("name_sources", numbers)
        starts = offsets_of([len(part.concept_names) for part in self.parts])
        is_first = np.zeros(len(name), dtype=bool)
        for start, part in zip(starts, self.parts, strict=False):
            is_first[start + part.concept_offsets[:-1]] = True
        kept = _different(concept, name, below=n_names)
        # A name may be the preferred one of any part.
        keys = concept * n_names + name
        is_preferred = np.isin(keys[kept], keys[is_first])
        concept, name = concept[kept], name[kept]
        by_name = np.lexsort((concept, name))
        self._names_of_concept = _ragged(concept, name, n, below=n_names)
        self._sources_of_concept = _ragged(concept, sources[kept], n, below=len(self.sources))
        self._concepts_of_name = _ragged(name[by_name], concept[by_name], n_names, below=n)
        self.name_is_preferred = is_preferred[by_name]

    def _join_types(self) -> None:
        number = {name: i for i, name in enumerate(self.type_names)}
        rows = [np.array([number[name] for name in p.type_names], np.int64) for p in self.parts]
        types = self._mapped("type_ids", rows)
        self._types_of_concept = self._unique("type_offsets", types, below=len(number))

    def _join_parents(self) -> None:
        parents = self._mapped("parents", self.concept_rows)
        self._parents_of_concept = self._unique("parent_offsets", parents, below=len(self))

    def _join_retired(self) -> None:
        """Keep retired ids that are current in no part, each with its first replacement."""
        targets: dict[str, int] = {}
        for rows, part in zip(self.concept_rows, self.parts, strict=True):
            for id, row in zip(part.retired, rows[part.retired_targets].tolist(), strict=True):
                targets.setdefault(id, row)
        ids = list(targets)
        current = self._by_id.find(word_keys(ids), ids, self.ids.take)
        ids = [ids[i] for i in np.flatnonzero(current < 0).tolist()]
        self.retired = string_column(ids)
        self.retired_targets = np.array([targets[id] for id in ids], dtype=np.int32)
        self._by_retired = SortedKeys.of(word_keys(ids))

    def _join_meta(self) -> None:
        """Contents that other knowledge bases have in meta.json."""
        of_parts = {
            key: ", ".join(str(part.meta.get(key, "")) for part in self.parts)
            for key in ("source", "release", "licence")
        }
        counts = {"concepts": len(self), "names": self.n_names, "entries": len(self.concept_names)}
        self.meta = {**of_parts, "fingerprint": self.fingerprint, "counts": counts}

    def _mapped(self, column: str, rows: Sequence[NDArray[np.integer]]) -> IntArray:
        """A column of rows of all parts, as joined rows."""
        pairs = zip(rows, self.parts, strict=True)
        return np.concatenate([own[getattr(part, column)] for own, part in pairs]).astype(np.int64)

    def _owners(self, offsets: str) -> IntArray:
        """Joined concept row of each value of a ragged column of all parts."""
        pairs = zip(self.concept_rows, self.parts, strict=True)
        counts = [(rows, np.diff(getattr(part, offsets))) for rows, part in pairs]
        return np.concatenate([np.repeat(*pair) for pair in counts]).astype(np.int64)

    def _unique(self, offsets: str, values: IntArray, *, below: int) -> Ragged:
        owner = self._owners(offsets)
        kept = _different(owner, values, below=below)
        return _ragged(owner[kept], values[kept], len(self), below=below)

    # -- Concepts -------------------------------------------------------------------------------

    def definition(self, concept: int) -> str:
        found = self._in_parts(np.array([concept]))
        texts = (part.definition(row) for _, part, rows in found for row in rows.tolist())
        return next(filter(None, texts), "")

    def xrefs_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        found: list[dict[str, None]] = [{} for _ in concepts]
        for at, part, rows in self._in_parts(concepts):
            for i, xrefs in zip(at.tolist(), part.xrefs_of_all(rows), strict=True):
                found[i] |= dict.fromkeys(xrefs)
        return list(map(tuple, found))

    def labels_of(self, concepts: IntArray) -> list[str]:
        label_of = {number: label for label, number in reversed(self.labels.items())}
        labels = np.empty(len(concepts), dtype=object)
        for number, at, rows in self.ids.local(concepts):
            labels[at] = label_of.get(number) or self.parts[number].labels_of(rows)
        found: list[str] = labels.tolist()
        return found

    def part_of(self, label: str) -> int | None:
        """Number of the part that mentions of a label may link to; None: all."""
        return self.labels.get(label)

    def has_concepts(self, part: int) -> NDArray[np.bool_]:
        """Concepts that are in a part. Shape (n_concepts,)."""
        mask = np.zeros(len(self), dtype=bool)
        mask[self.concept_rows[part]] = True
        return mask

    def memberships(self) -> Iterator[NDArray[np.bool_]]:
        return map(self.has_concepts, range(len(self.parts)))

    def _in_parts(self, concepts: IntArray) -> Iterator[tuple[IntArray, KnowledgeBase, IntArray]]:
        """For each part, the places of the concepts that it has, and their rows in it."""
        ids = self.ids.take(concepts)
        for part in self.parts:
            rows = part._by_id.find(word_keys(ids), ids, part.ids.take)
            at = np.flatnonzero(rows >= 0)
            yield at, part, rows[at]

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

    def verify_homes(self) -> None:
        for part in self.parts:
            part.verify_homes()

    def to_bytes(self) -> bytes:
        raise BioelError(Errors.B322.format(path=self.where))

    def save_to(self, path: str | Path) -> None:
        raise BioelError(Errors.B322.format(path=self.where))

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        return partial(JoinedKnowledgeBase, self.parts, labels=self.labels), ()


def parts_of(kb: KnowledgeBase) -> tuple[KnowledgeBase, ...]:
    """The knowledge bases that have folders and vectors: the parts of a joined one, or itself."""
    return kb.parts if isinstance(kb, JoinedKnowledgeBase) else (kb,)


def _different(owner: IntArray, values: IntArray, *, below: int) -> IntArray:
    """Positions of the first of each pair of owner and value, by owner, otherwise in order."""
    first = np.sort(np.unique(owner * max(below, 1) + values, return_index=True)[1])
    order: IntArray = first[np.argsort(owner[first], kind="stable")]
    return order


def _ragged(owner: IntArray, values: IntArray, n: int, *, below: int) -> Ragged:
    """A ragged column of n rows, from pairs of owner and value, by owner."""
    offsets = offsets_of(np.bincount(owner, minlength=n))
    return Ragged(offsets, values.astype(np.int32), below=below)


SearchResult = tuple[IntArray, NDArray[np.float32]]


class JoinedSearch:
    """A search in each of several knowledge bases, whose results are one list.

    searches (Sequence): With `search(queries, k) -> (rows, scores)`; -1 stands for no row.
    rows (Sequence[NDArray]): Of each, the joined row of each of its rows.
    nothing (float): Score of no row.
    """

    def __init__(
        self, searches: Sequence[Any], rows: Sequence[NDArray[Any]], *, nothing: float
    ) -> None:
        self._searches, self._rows, self._nothing = searches, rows, nothing

    def search(self, queries: Sequence[str] | NDArray[np.float32], k: int) -> SearchResult:
        """The k best rows for each query, best first, lower row first among equals."""
        found = [search.search(queries, k) for search in self._searches]
        pairs = zip(found, self._rows, strict=True)
        rows = np.concatenate([np.where(r >= 0, new[r], -1) for (r, _), new in pairs], axis=1)
        scores = np.concatenate([scores for _, scores in found], axis=1)
        rows, scores = _in_order(rows, scores)
        # A name of two knowledge bases is found by both searches, and stays where it is better.
        for at in range(1, rows.shape[1]):
            again = (rows[:, :at] == rows[:, at : at + 1]).any(axis=1)
            rows[again, at] = -1
        rows, scores = _in_order(rows, scores)
        return rows[:, :k], np.where(rows >= 0, scores, np.float32(self._nothing))[:, :k]

    def rarity(self, codes: IntArray) -> NDArray[np.float64]:
        """Inverse document frequency of 3-grams: the mean over the knowledge bases."""
        mean: NDArray[np.float64] = np.mean([s.rarity(codes) for s in self._searches], axis=0)
        return mean


def _in_order(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> SearchResult:
    """Rows of each query by score; -1 last."""
    order = np.lexsort((rows, -np.where(rows >= 0, scores, -np.inf)))
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
