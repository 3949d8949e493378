"""The knowledge base: memory-mapped columns of concepts and names, with methods to query them.

This module defines the kinds of columns (`StringColumn`, `SortedKeys`, `Ragged`), the keys of
names, and then `KnowledgeBase`. Large columns are not read when they are opened. Offsets and rows
are checked when a column is first used, and strings whenever they are read.

The 64-bit key of a normalised name is a polynomial in the hashes of its words. The keys of all
spans in a document can therefore be computed by one vectorised recurrence, without building
strings. `search_names` finds concepts for a query that a person types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import (
    LINE_END,
    MEDIUM,
    XREF_SEPARATOR,
    KbColumn,
    Origin,
    RawFile,
    TensorFile,
    find_sorted,
    open_columns,
    positions_of,
    serialized,
)
from spacy_bioel.kb.folder import (
    HOME,
    check_replaceable,
    editing,
    generations_of,
    homes_in,
    kb_of,
    map_generation,
    map_homes,
    new_home,
)
from spacy_bioel.kb.spelling import Misspellings, NgramIndex, word_overlap
from spacy_bioel.text.normalize import normalize_name, normalize_names, words_of
from spacy_bioel.types import Concept, IntArray, KbRelease, remember

_STRINGS_PER_BLOCK = 1 << 12  # number of strings to decode at a time when reading a whole column


class StringColumn:
    """A column of strings: newline-terminated UTF-8 text, plus line offsets.

    RAISES BioelError: [B211] if the first or last offset is wrong. Reading raises [B024] if the
        column is damaged, and [B211] if a string is not UTF-8 or (up to 16 MB) not one line.
    """

    def __init__(self, blob: KbColumn, offsets: KbColumn) -> None:
        self._blob, self._bytes, self._offsets = blob, memoryview(blob.values), offsets  # type: ignore[arg-type]
        offsets.origin.ends(offsets.values, end=len(blob.values))

    def __len__(self) -> int:
        return len(self._offsets.values) - 1

    def __getitem__(self, row: int) -> str:
        return self.take([row])[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _STRINGS_PER_BLOCK):
            yield from self.take(np.arange(start, min(start + _STRINGS_PER_BLOCK, len(self))))

    def take(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        """Return the strings in these rows, in the same order. rows: shape (n,)."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and rows.min() < 0:
            raise IndexError(int(rows.min()))  # row -1 means "unknown", not the last string
        return self._read(rows)

    def _read(self, rows: IntArray) -> list[str]:
        starts, ends = self._lines[rows], self._lines[rows + 1]
        try:
            pairs = zip(starts.tolist(), (ends - 1).tolist(), strict=True)
            return [str(self._bytes[start:end], "utf8") for start, end in pairs]
        except UnicodeDecodeError:
            found = f"other bytes from {starts.min()} to {ends.max()}"
            raise self._blob.origin.error(Errors.B211, "lines of UTF-8", found) from None

    @cached_property
    def _lines(self) -> NDArray[np.uint64]:
        """The line offsets, checked on first access."""
        blob, origin = self._blob.values, self._blob.origin
        origin.verify()
        offsets = self._offsets.origin.growing(self._offsets.values, least=1)
        if len(blob) <= MEDIUM:
            ends = np.flatnonzero(blob == LINE_END) + 1
            if not np.array_equal(ends, offsets[1:]):
                raise origin.error(Errors.B211, f"{len(self)} lines", len(ends))
        return offsets


class SortedKeys:
    """Sorted 64-bit keys and their rows, for binary search. The rows of equal keys are ascending.

    below (int): Upper bound of the rows, exclusive.
    """

    def __init__(self, keys: KbColumn, rows: KbColumn, *, below: int) -> None:
        self._keys, self._rows, self._below = keys, rows, below

    @classmethod
    def from_keys(cls, keys: NDArray[np.uint64]) -> SortedKeys:
        """Build the index from keys in row order."""
        order = np.argsort(keys, kind="stable")
        return cls(KbColumn(keys[order]), KbColumn(order.astype(np.int32)), below=len(keys))

    @property
    def keys(self) -> NDArray[np.uint64]:
        """All keys, checked on first access."""
        self._keys.origin.verify()
        return self._keys.values

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """The row of each key, checked on first access."""
        return self._rows.origin.rows(self._rows.values, below=self._below)

    def search(self, keys: NDArray[np.uint64]) -> IntArray:
        """Find the first row of each key, or -1 if it is unknown. Keeps the shape of `keys`."""
        rows = np.full(keys.shape, -1, dtype=np.int64)
        positions, is_known = find_sorted(self.keys, keys)
        rows[is_known] = self.rows[positions[is_known]]
        return rows

    def find(
        self,
        keys: NDArray[np.uint64],
        strings: Sequence[str],
        read: Callable[[IntArray], list[str]],
    ) -> IntArray:
        """Find each string's row, or -1. Strings are compared as well, because keys may collide.

        read (Callable): Returns the strings in given rows, in the form to compare.
        """
        rows = self.search(keys)
        known = np.flatnonzero(rows >= 0)
        for i, string in zip(known.tolist(), read(rows[known]), strict=True):
            if string != strings[i]:
                start = np.searchsorted(self.keys, keys[i])
                end = np.searchsorted(self.keys, keys[i], side="right")
                same_key = self.rows[start:end]
                row_of = dict(zip(read(same_key.astype(np.int64)), same_key, strict=True))
                rows[i] = row_of.get(strings[i], -1)
        return rows


class Ragged:
    """A ragged (CSR) column: each row holds any number of row indices into another column.

    offsets (IntArray): Start of each row's values, and end of the last row. Shape (n_rows + 1,).
    below (int): Upper bound of the values, exclusive.
    least (int): Minimum number of values in a row.
    RAISES BioelError: [B211] if the first or last offset is wrong. Methods raise [B024] or [B211]
        if the column is damaged.
    """

    def __init__(self, offsets: KbColumn, values: KbColumn, *, below: int, least: int = 0) -> None:
        offsets.origin.ends(offsets.values, end=len(values.values))
        self._offsets, self._values, self._below, self._least = offsets, values, below, least

    def __getitem__(self, row: int) -> IntArray:
        """Return a row's values. Shape (n_values,). RAISES IndexError: If there is no such row."""
        if row < 0:
            raise IndexError(row)
        return self.values[self.offsets[row] : self.offsets[row + 1]].astype(np.int64)

    @cached_property
    def offsets(self) -> IntArray:
        """All offsets, checked on first access."""
        return self._offsets.origin.growing(self._offsets.values, least=self._least)

    @cached_property
    def values(self) -> NDArray[np.int32]:
        """All values, checked on first access."""
        return self._values.origin.rows(self._values.values, below=self._below)


_KEY_FACTOR = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits
KEY_MASK = (1 << 64) - 1

KeyArray = NDArray[np.uint64]


@lru_cache(maxsize=1 << 18)
def word_key(word: str) -> int:
    """Hash a normalised word to 64 bits, identically on every machine and in every run."""
    digest = blake2b(word.encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def word_keys(words: Iterable[str]) -> KeyArray:
    """Hash many words or ids. Shape (n_words,)."""
    return np.fromiter(map(word_key, words), dtype=np.uint64)


def name_key(normalized: str) -> int:
    """Return the key of a normalised name, or 0 for an empty name."""
    key = 0
    for word in normalized.split():
        key = (key * _KEY_FACTOR + word_key(word)) & KEY_MASK
    return key


def name_keys(normalized: Iterable[str]) -> KeyArray:
    """Return the keys of many normalised names. Shape (n_names,)."""
    return np.fromiter(map(name_key, normalized), dtype=np.uint64)


def span_keys(tokens: Sequence[str], max_width: int) -> KeyArray:
    """Return the keys of all spans of up to `max_width` tokens.

    tokens (Sequence[str]): Normalised tokens; a token may contain no word ("") or several words.
    RETURNS (KeyArray): keys[i, w] is the key of tokens[i : i + w + 1]; 0 if the span extends beyond
        the text or contains no word. Shape (n_tokens, max_width).
    """
    n = len(tokens)
    keys = np.zeros((n, max_width), dtype=np.uint64)
    # To extend a span by a token, multiply the span's key by a factor and add the token's key.
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=n)
    token_keys = name_keys(numbers)[number]
    n_words = np.array([token.count(" ") + 1 if token else 0 for token in numbers], dtype=np.int64)
    powers = [pow(_KEY_FACTOR, k, 1 << 64) for k in range(n_words.max(initial=0) + 1)]
    factors = np.array(powers, dtype=np.uint64)[n_words][number]
    keys[:, 0] = token_keys
    for width in range(1, min(max_width, n)):
        shorter = keys[: n - width, width - 1]
        keys[: n - width, width] = shorter * factors[width:] + token_keys[width:]
    return keys


class KnowledgeBase:
    """A knowledge base: concepts and their names, in rows numbered from 0.

    Concepts are sorted by id, so the lower of two rows has the lower id. Each distinct normalised
    name has one row, which is shared by all concepts with this name.

    The columns are attributes, for operations on all rows at once. Columns named *_offsets contain
    the start of each row's values: the concepts of name i are name_concepts[name_offsets[i] :
    name_offsets[i + 1]]. name_is_preferred has the same layout as name_concepts, and name_sources
    the same as concept_names. `retired_targets` has the replacement's row for each retired id.

    files (Mapping[str, RawFile]): Files by path (see `kb.folder`); unknown files are ignored.
    path (Path | None): Folder that the files are mapped from; None if they are in memory.
    RAISES BioelError: [B020] if there are no columns, [B409] for a bundled knowledge base's name,
        [B408] for a saved pipeline; the same errors as `kb.columns.open_columns`. Methods and whole
        columns raise [B024] or [B211] if they read damaged data that opening does not detect.
    """

    built_sources: tuple[int, ...] = (0,)  # for each part, the row of its build's source

    def __init__(self, files: Mapping[str, RawFile], *, path: Path | None = None) -> None:
        self.path = path
        if not (generations := generations_of(files)):
            message = Errors.B020
            if path is not None and (path / "config.cfg").is_file():
                message = Errors.B408
            elif Path(self.where).name.startswith("starter:"):
                message = Errors.B409
            raise BioelError(message.format(path=self.where))
        current = generations[-1]
        self._files = {name: files[name] for name in (current, *filter(HOME.fullmatch, files))}
        self._columns = open_columns(files[current], Origin(self.where, current))
        self._column = self._columns.column
        self.fingerprint = self._columns.fingerprint
        self.meta = {"fingerprint": self.fingerprint, **self._columns.about}
        self.ids, self.names = self._strings("ids"), self._strings("names")
        self.definitions, self.retired = self._strings("definitions"), self._strings("retired")
        self._xrefs, self.sources = self._strings("xrefs"), tuple(self._strings("sources"))
        self.type_names = tuple(self._strings("type_names"))
        n_concepts, n_names = len(self.ids), len(self.names)
        self._concepts_of_name = self._ragged("name", "name_concepts", below=n_concepts, least=1)
        self._names_of_concept = self._ragged("concept", "concept_names", below=n_names, least=1)
        self._sources_of_concept = self._ragged("concept", "name_sources", below=len(self.sources))
        self._types_of_concept = self._ragged("type", "type_ids", below=len(self.type_names))
        self._parents_of_concept = self._ragged("parent", "parents", below=n_concepts)
        is_preferred = self._column("name_is_preferred")
        is_preferred.origin.verify()
        self.name_is_preferred = is_preferred.values
        parts = ("codes", "offsets", "names", "norms")
        self.ngrams = NgramIndex(*(self._column(f"ngram_{part}") for part in parts))
        self._by_name = self._sorted_keys("name", below=n_names)
        self._by_id = self._sorted_keys("id", below=n_concepts)
        self._by_retired = self._sorted_keys("retired", below=len(self.retired))
        targets = self._column("retired_targets")
        self.retired_targets = targets.origin.rows(targets.values, below=n_concepts)
        remember(self)

    def _strings(self, name: str) -> StringColumn:
        return StringColumn(self._column(name), self._column(f"{name}.offsets"))

    def _ragged(self, row: str, values: str, *, below: int, least: int = 0) -> Ragged:
        offsets = self._column(f"{row}_offsets")
        return Ragged(offsets, self._column(values), below=below, least=least)

    def _sorted_keys(self, name: str, *, below: int) -> SortedKeys:
        keys, rows = self._column(f"{name}_keys"), self._column(f"{name}_key_rows")
        return SortedKeys(keys, rows, below=below)

    # Whole columns, checked on first access.
    name_offsets = property(attrgetter("_concepts_of_name.offsets"))
    name_concepts = property(attrgetter("_concepts_of_name.values"))
    concept_offsets = property(attrgetter("_names_of_concept.offsets"))
    concept_names = property(attrgetter("_names_of_concept.values"))
    name_sources = property(attrgetter("_sources_of_concept.values"))
    type_offsets = property(attrgetter("_types_of_concept.offsets"))
    type_ids = property(attrgetter("_types_of_concept.values"))
    parent_offsets = property(attrgetter("_parents_of_concept.offsets"))
    parents = property(attrgetter("_parents_of_concept.values"))
    name_keys = property(attrgetter("_by_name.keys"))
    name_key_rows = property(attrgetter("_by_name.rows"))

    # -- Opening and saving ---------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path) -> KnowledgeBase:
        """Open a knowledge base folder. Its files are memory-mapped, which takes milliseconds.

        Later changes to the folder do not affect an open knowledge base or its vectors.

        RAISES BioelError: The same errors as the class.
        """
        folder = Path(path).resolve()
        kb = cls(map_generation(folder), path=folder)
        homes = map_homes(folder).items()
        kb.attach({home: raw for home, raw in homes if kb_of(raw) == kb.fingerprint})
        return kb

    @classmethod
    def from_bytes(cls, block: bytes) -> KnowledgeBase:
        """Load a knowledge base from `to_bytes` output. RAISES BioelError: [B025] if invalid."""
        try:
            return cls(TensorFile(np.frombuffer(block, np.uint8)).arrays)
        except BioelError as error:
            raise BioelError(Errors.B025.format(found=error)) from None

    def to_bytes(self) -> bytes:
        """Serialise the whole knowledge base, including its vectors."""
        return b"".join(serialized(self.files()))

    def save_to(self, path: str | Path) -> None:
        """Copy the whole knowledge base to a folder, replacing any knowledge base in it.

        RAISES BioelError: [B029] if the folder contains something else, [B212] if another writer
            does not finish in time.
        """
        out = Path(path).resolve()
        if out == self.path:
            return
        check_replaceable(out)
        files = self.files()
        columns = files.pop(self._columns.origin.file)
        with editing(out, to="save a copy", make=True) as transaction:
            check_replaceable(out)
            old_homes = homes_in(out)
            for home, raw in files.items():
                kind, _, name = home.partition("/")
                transaction.put(new_home(kind, name.partition(".")[0]), [raw.data])
            transaction.replace_columns(lambda scratch: [columns.data])
            transaction.remove(old_homes)

    def files(self) -> dict[str, RawFile]:
        """Return all files by path, including vectors and tries written after opening."""
        return self._files | (map_homes(self.path) if self.path else {})

    def attach(self, files: Mapping[str, RawFile]) -> None:
        """Add vectors or tries to an open knowledge base."""
        self._files |= files

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        # Pickle the path instead of the data, so that all workers share one copy in memory.
        if self.path is None:
            return KnowledgeBase.from_bytes, (self.to_bytes(),)
        return _reopen_kb, (self.path, self.fingerprint)

    def verify(self, *, homes: bool = False) -> None:
        """Verify all columns against their checksums.

        homes (bool): Verify all vectors and tries too.
        RAISES BioelError: [B024] damaged array, [B030] unreadable file, [B210] edited header.
        """
        self._columns.verify()
        files = self.files() if homes else {}
        for home in filter(HOME.fullmatch, files):
            TensorFile(files[home], Origin(self.where, home)).verify()

    # -- Title and origin -----------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The folder's name; for a KB in a pipeline or in memory, the first source's short name."""
        if self.path is not None and self.path.name != "kb":
            return self.path.name
        return str(self.meta.get("source", "")).partition(",")[0].partition(".")[0].strip() or "KB"

    @property
    def releases(self) -> tuple[KbRelease, ...]:
        """The release that the knowledge base was built from, or one per part if it is joined."""
        source, release, licence = (
            str(self.meta.get(key, "")) for key in ("source", "release", "licence")
        )
        return (KbRelease(self.title, source, release, licence, self.fingerprint, len(self)),)

    @property
    def where(self) -> str:
        """The folder's path, or "memory", for error messages."""
        return str(self.path) if self.path else "memory"

    # -- Concepts -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: object) -> bool:
        """Return whether the knowledge base contains an id, whether current or retired."""
        return isinstance(id, str) and self.find(id) >= 0

    def __getitem__(self, id: str) -> Concept:
        """Return the concept with this id, or the concept that replaced it.

        RAISES BioelError: [B337] if it is unknown, [B637] if it was retired without a replacement.
        """
        if (row := self.find(id)) >= 0:
            return self.concept(row)
        name = self.releases[0].source or self.title
        if (others := self.withdrawn.get(id)) is not None:
            raise BioelError(Errors.B637.format(id=id, kb=name, others=", ".join(others) or "none"))
        example = self.ids[0] if len(self) else "MESH:D003920"
        vocabulary, local_id = example.rpartition(":")[0], id.rpartition(":")[2]
        similar = {f"{vocabulary}:{local_id}", f"{vocabulary}:{local_id.upper()}", id.upper()}
        known = [other for other in sorted(similar) if other in self]
        hint = f" Did you mean {known[0]}?" if known else ""
        raise BioelError(Errors.B337.format(id=id, kb=name, example=example, hint=hint))

    def concept(self, row: int) -> Concept:
        """Return the concept in a row. Names that differ only in case share one spelling."""
        return Concept(
            id=self.ids[row],
            names=tuple(self.names.take(self.names_of(row))),
            types=self.types_of(row),
            parents=tuple(self.ids_of(self.parents_of(row))),
            definition=self.definition(row),
            xrefs=self.xrefs(row),
        )

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[str]:
        """Return the ids of many concepts. rows: shape (n,)."""
        return self.ids.take(rows)

    def find(self, id: str) -> int:
        """Return the row of an id, or of the id that replaced it; -1 if the id is unknown."""
        return int(self.find_all([id])[0])

    def find_all(self, ids: Sequence[str]) -> IntArray:
        """Return the row of each id, or of the id that replaced it; -1 if unknown. Shape (n,)."""
        keys = word_keys(ids)
        rows = self._by_id.find(keys, ids, self.ids.take)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown) and len(self.retired):
            old_ids = [ids[i] for i in unknown.tolist()]
            retired = self._by_retired.find(keys[unknown], old_ids, self.retired.take)
            rows[unknown] = np.where(retired >= 0, self.retired_targets[retired], -1)
        return rows

    def canonical(self, id: str) -> str:
        """Return the replacement for a retired id, or any other id unchanged."""
        row = self.find(id)
        return self.ids[row] if row >= 0 else id

    @property
    def withdrawn(self) -> Mapping[str, list[str]]:
        """The ids retired without a replacement, mapped to the ids to consider instead."""
        return self.meta.get("withdrawn") or {}

    @property
    def selected(self) -> str:
        """A phrase that lists the build's filter options, or "" if the build kept all concepts."""
        selection = self.meta.get("selection", {}).items()
        options = " ".join(f"--{option} {','.join(values)}" for option, values in selection)
        return f"it was built with {options}" if options else ""

    def would_select(self, id: str, other: KnowledgeBase) -> bool:
        """Return whether this build's options would keep a concept from another release."""
        if (row := other.find(id)) < 0:
            return True
        ids, kept = set(other.ids_of(sorted(other.lineage_of(row)))), self.meta.get("selection", {})
        has = {"under": ids, "exclude": ids, "types": {*other.types_of(row)}}
        chosen = {key: not has[key].isdisjoint(map(other.canonical, kept[key])) for key in kept}
        return not chosen.pop("exclude", False) and all(chosen.values())

    def definition(self, concept: int) -> str:
        """Return a concept's definition, or "" if it has none."""
        return self.definitions[concept]

    def xrefs(self, concept: int) -> tuple[str, ...]:
        """Return a concept's cross-references to other vocabularies, as written in its source."""
        return self.xrefs_of_all(np.array([concept]))[0]

    def xrefs_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        """Return each concept's cross-references."""
        lines = self._xrefs.take(concepts)
        return [tuple(line.split(XREF_SEPARATOR)) if line else () for line in lines]

    def parents_of(self, concept: int) -> IntArray:
        """Return the rows of a concept's parents. Shape (n_parents,)."""
        return self._parents_of_concept[concept]

    def lineage_of(self, concept: int) -> frozenset[int]:
        """Return the rows of a concept and all its ancestors."""
        rows, new = set[int](), {concept}
        while new := new - rows:
            rows |= new
            new = {parent for row in new for parent in self.parents_of(row).tolist()}
        return frozenset(rows)

    def children_of(self, concept: int) -> IntArray:
        """Return the rows of a concept's children. Shape (n_children,)."""
        positions = np.flatnonzero(self.parents == concept)
        return np.searchsorted(self.parent_offsets, positions, side="right") - 1

    def retired_ids_of(self, concept: int) -> tuple[str, ...]:
        """Return the ids that a concept replaced, in sorted order."""
        return tuple(self.retired.take(np.flatnonzero(self.retired_targets == concept)))

    def types_of(self, concept: int) -> tuple[str, ...]:
        """Return a concept's semantic types, in source order."""
        return tuple(self.type_names[i] for i in self._types_of_concept[concept].tolist())

    def types_of_all(self, concepts: IntArray) -> list[tuple[str, ...]]:
        """Return each concept's semantic types."""
        indptr, positions = positions_of(self.type_offsets, concepts)
        types = [self.type_names[i] for i in self.type_ids[positions].tolist()]
        return [tuple(types[start:end]) for start, end in pairwise(indptr.tolist())]

    def labels_of(self, concepts: IntArray) -> list[str]:
        """Return each concept's default mention label: its first type, or the KB's title."""
        return [types[0] if types else self.title for types in self.types_of_all(concepts)]

    def memberships(self) -> Iterator[NDArray[np.bool_]]:
        """Yield a mask of each part's concepts (here, one all-True mask). Shape (n_concepts,)."""
        return iter([np.ones(len(self), dtype=bool)])

    def type_mask(self, types: Iterable[str]) -> NDArray[np.bool_]:
        """Return a mask of the concepts that have any of these types. Shape (n_concepts,)."""
        is_wanted_type = np.isin(self.type_names, list(types))
        mask = np.zeros(len(self), dtype=bool)
        concept_of_type = np.repeat(np.arange(len(self)), np.diff(self.type_offsets))
        mask[concept_of_type[is_wanted_type[self.type_ids]]] = True
        return mask

    # -- Names ----------------------------------------------------------------------------------

    @property
    def n_names(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """Return the name in a row, in the spelling of its source."""
        return self.names[row]

    def names_of(self, concept: int) -> IntArray:
        """Return a concept's name rows, the preferred name first. Shape (n_names,)."""
        return self._names_of_concept[concept]

    def sources_of(self, concept: int) -> tuple[str, ...]:
        """Return the source of each name of a concept, such as "edit" for an edited name."""
        return tuple(self.sources[row] for row in self._sources_of_concept[concept].tolist())

    @cached_property
    def is_added(self) -> NDArray[np.bool_]:
        """Mask of names added after the build, for example by `bioel kb add`. Shape (n_names,)."""
        added = np.zeros(len(self.names), dtype=bool)
        if len(self.sources) > len(self.built_sources):
            entries = ~np.isin(self.name_sources, self.built_sources)
            added[self.concept_names[entries]] = True
        return added

    def preferred_name(self, concept: int) -> str:
        return self.names[int(self.names_of(concept)[0])]

    def preferred_rows(self, concepts: IntArray) -> IntArray:
        """Return the row of each concept's preferred name, in the same shape as `concepts`."""
        if concepts.size and concepts.min() < 0:
            raise IndexError(int(concepts.min()))
        return self.concept_names[self.concept_offsets[concepts]].astype(np.int64)

    def names_of_all(self, concepts: IntArray) -> tuple[IntArray, IntArray]:
        """Return the name rows of many concepts.

        RETURNS (tuple): indptr, shape (n + 1,), and name rows: the names of concepts[i], the
            preferred name first, are at indptr[i] : indptr[i + 1].
        """
        indptr, positions = positions_of(self.concept_offsets, concepts)
        return indptr, self.concept_names[positions].astype(np.int64)

    def lookup_names(self, normalized: Sequence[str]) -> IntArray:
        """Return the row of each normalised name, or -1 if it is unknown. Shape (n,)."""
        keys = name_keys(normalized)
        return self._by_name.find(
            keys, normalized, lambda rows: normalize_names(self.names.take(rows))
        )

    def concepts_of_names(self, rows: NDArray[Any]) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Return the concepts of each name.

        rows (NDArray): Name rows; -1 has no concepts. Shape (n,).
        RETURNS (tuple): indptr, shape (n + 1,); concept rows, and whether the name is the
            preferred name of that concept, shape (n_entries,) each. The entries of rows[i] are at
            indptr[i] : indptr[i + 1].
        """
        indptr, positions = positions_of(self.name_offsets, rows)
        concepts = self.name_concepts[positions].astype(np.int64)
        return indptr, concepts, self.name_is_preferred[positions]


def open_kb(kb: KnowledgeBase | str | Path) -> KnowledgeBase:
    """Open the knowledge base in a folder, or return a knowledge base that is already open."""
    return kb if isinstance(kb, KnowledgeBase) else KnowledgeBase.open(kb)


def _reopen_kb(path: Path, fingerprint: str) -> KnowledgeBase:
    """Reopen a pickled knowledge base. RAISES BioelError: [B037] if it has been replaced."""
    kb = KnowledgeBase.open(path)
    if kb.fingerprint != fingerprint:
        raise BioelError(Errors.B037.format(path=path, expected=fingerprint, found=kb.fingerprint))
    return kb


_NAMES_PER_CONCEPT = 8  # number of names to retrieve per requested concept


@dataclass(frozen=True, slots=True)
class Hit:
    """A concept found by `search_names`."""

    concept: Concept
    name: str  # the name most similar to the query, or the concept's id if the query is that id
    score: float  # spelling similarity, from 0.3 to 1


def search_names(kb: KnowledgeBase, words: str, k: int = 10) -> list[Hit]:
    """Find the concepts whose names are most similar to a query, in any word order.

    words (str): Words of a name, which may be misspelled or hyphenated ("IRF-5" finds IRF5), or
        the id of a concept.
    k (int): Number of concepts.
    RETURNS (list[Hit]): Distinct concepts, best first: the concept with this id, then concepts with
        a name that contains all words, then the rest. In a tie, preferred names come first.
    """
    words = words.strip()
    hits = {kb.find(words): Hit(kb[words], words, 1.0)} if words in kb else {}
    query = normalize_name(words)
    queries = list(dict.fromkeys([query, query.replace(" ", "")]))
    found, scores = kb.ngrams.search(queries, k * _NAMES_PER_CONCEPT)
    asked, _ = (found >= 0).nonzero()
    rows, scores = found[found >= 0], scores[found >= 0]
    names = [normalize_name(kb.name(row)) for row in rows.tolist()]
    numbers = np.arange(len(names))
    _, covered = word_overlap(queries, names, asked, numbers)
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    name = np.repeat(numbers, np.diff(indptr))
    order = np.lexsort((concepts, rows[name], ~is_preferred, -scores[name], covered[name] < 1))
    for i in order.tolist():
        if len(hits) >= k:
            break
        concept = int(concepts[i])
        if concept not in hits:
            score = round(float(scores[name[i]]), 4)
            hits[concept] = Hit(kb.concept(concept), kb.name(int(rows[name[i]])), score)
    return list(hits.values())[:k]


def corrected(kb: KnowledgeBase, words: str) -> str:
    """Correct words that are one typing error away from a word in a name. This reads all names.

    The n-gram search alone may miss "siezures": "seizures" contains only half of its 3-grams.
    """
    counts = Counter(word for name in normalize_names(list(kb.names)) for word in words_of(name))
    correction = partial(Misspellings(counts).correction, known={})
    return " ".join(correction(word) or word for word in normalize_name(words).split())
