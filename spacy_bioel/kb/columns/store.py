"""The knowledge base: memory-mapped columns and the lookups over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import RawFile
from spacy_bioel.kb.columns.files import (
    IntArray,
    pack,
    unpack,
    write_files,
)
from spacy_bioel.kb.columns.keys import KeyArray, name_keys, word_key
from spacy_bioel.kb.columns.layout import (
    check_replaceable,
    encoder_of,
    files_of_set,
    known_files,
    left_by_earlier,
    map_columns,
    map_vectors,
    set_names,
)
from spacy_bioel.kb.columns.reader import ColumnReader
from spacy_bioel.kb.columns.schema import KB_FILES, check_columns, checked_meta
from spacy_bioel.kb.columns.tries import files_of_trie, known_tries, map_tries, trie_names
from spacy_bioel.kb.transaction import editing
from spacy_bioel.kb.words.ngrams import NgramIndex
from spacy_bioel.text.normalize import normalize_name

_N_SHOWN = 5  # missing ids named in a Coverage


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of ids that a knowledge base knows: n = found + retired + missing.

    retired (int): Ids that were replaced by a newer id.
    first_missing (tuple[str, ...]): The first few distinct missing ids.
    """

    n: int
    found: int
    retired: int
    missing: int
    first_missing: tuple[str, ...] = ()


class KnowledgeBase:
    """Concepts and their names; the rows of both are numbered from 0.

    Concepts are sorted by id, so the lower of two rows has the lower id. There is one name row for
    each distinct `normalize_name` string; all concepts of that name point to it.

    files (Mapping[str, RawFile]): Bytes of each file, by the names of `kb.columns.layout`; files
        with other names are ignored.
    path (Path | None): Folder that the files are mapped from; None in memory.

    The columns are attributes, for work on all rows at once. Columns *_offsets have the start of
    the values of each row: the concepts of name i are name_concepts[name_offsets[i] :
    name_offsets[i + 1]], and name_is_preferred has the same layout.

    RAISES BioelError: Errors of `schema.checked_meta`. Methods and whole columns raise [B211] when
        they read damage that is not visible at opening.
    """

    def __init__(self, files: Mapping[str, RawFile], *, path: Path | None = None) -> None:
        self.path = path
        self.meta: dict[str, Any] = checked_meta(files, where=self.where)
        self.fingerprint = str(self.meta["fingerprint"])
        self._files = known_files(files) | known_tries(files)
        read = ColumnReader(files, self.where)
        self.ids = read.strings("ids")
        self.names = read.strings("names")
        self.definitions = read.strings("definitions")
        self.retired = read.strings("retired")
        self.type_names = tuple(read.strings("type_names"))
        n, n_names, n_types = len(self.ids), len(self.names), len(self.type_names)
        self._concepts_of_name = read.ragged("name_offsets", "name_concepts", below=n, least=1)
        self._names_of_concept = read.ragged(
            "concept_offsets", "concept_names", below=n_names, least=1
        )
        self._types_of_concept = read.ragged("type_offsets", "type_ids", below=n_types)
        self._parents_of_concept = read.ragged("parent_offsets", "parents", below=n)
        self.name_is_preferred: NDArray[np.bool_] = read.array("name_is_preferred")
        self.name_keys: KeyArray = read.array("name_keys")
        grams = (read.array(f"ngram_{part}") for part in ("codes", "offsets", "names", "norms"))
        self.ngrams = NgramIndex(*grams, origin=read.origin("ngram_names"))
        self._by_name = read.sorted_keys("name", below=n_names)
        self._by_id = read.sorted_keys("id", below=n)
        self._by_retired = read.sorted_keys("retired", below=len(self.retired))
        self._read = read

    # Whole columns, each checked on first access.
    name_offsets = property(attrgetter("_concepts_of_name.offsets"))
    name_concepts = property(attrgetter("_concepts_of_name.values"))
    concept_offsets = property(attrgetter("_names_of_concept.offsets"))
    concept_names = property(attrgetter("_names_of_concept.values"))
    type_offsets = property(attrgetter("_types_of_concept.offsets"))
    type_ids = property(attrgetter("_types_of_concept.values"))
    parent_offsets = property(attrgetter("_parents_of_concept.offsets"))
    parents = property(attrgetter("_parents_of_concept.values"))
    name_key_rows = property(attrgetter("_by_name.rows"))

    @cached_property
    def retired_targets(self) -> NDArray[np.int32]:
        targets = self._read.array("retired_targets")
        return self._read.origin("retired_targets").rows(targets, below=len(self))

    # -- Opening and saving ---------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path) -> KnowledgeBase:
        """Map a folder that `build_kb` wrote, which takes milliseconds at any size.

        Later changes of the folder do not affect an open knowledge base or its vectors.

        path (str | Path): Folder of the knowledge base.
        RAISES BioelError: Errors of `schema.checked_meta`; [B213] only a backup is left.
        """
        folder = Path(path).resolve()
        files = map_columns(folder)
        if not files and (left := left_by_earlier(folder)):
            raise BioelError(Errors.B213.format(path=folder, left=left[0]))
        kb = cls(files, path=folder)
        kb.attach(map_vectors(folder, of=kb.fingerprint))
        return kb

    @classmethod
    def from_bytes(cls, block: bytes) -> KnowledgeBase:
        """Load the result of `to_bytes`. RAISES BioelError: [B025] when it is something else."""
        return cls(unpack(block))

    def to_bytes(self) -> bytes:
        """Serialise the whole knowledge base, with its vectors."""
        return pack(self.files())

    def save_to(self, path: str | Path) -> None:
        """Copy the whole knowledge base to a folder, replacing a knowledge base in it.

        RAISES BioelError: [B029] when the folder holds something else, [B212] when another writer
            does not finish in time.
        """
        out = Path(path).resolve()
        if out == self.path:
            return
        check_replaceable(out)
        files = self.files()
        with editing(out, to="save a copy", make=True) as transaction:
            check_replaceable(out)
            before = set_names(map_vectors(out))
            for name in set_names(files):
                with transaction.vectors(encoder_of(name)) as folder:
                    write_files(folder, files_of_set(files, name))
            with transaction.columns() as folder:
                write_files(folder, {name: files[name] for name in KB_FILES})
            transaction.remove_vectors(before)
            for name in trie_names(files):
                with transaction.trie(name) as folder:
                    write_files(folder, files_of_trie(files, name))

    def files(self) -> dict[str, RawFile]:
        """All files by name, with vectors and tries that were written after opening."""
        if self.path is None:
            return dict(self._files)
        return self._files | map_vectors(self.path) | map_tries(self.path, of=self.fingerprint)

    def attach(self, files: Mapping[str, RawFile]) -> None:
        """Add files (vectors) to an open knowledge base."""
        self._files |= files

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        # By path, so that all workers share one copy in the page cache.
        if self.path is None:
            return KnowledgeBase.from_bytes, (self.to_bytes(),)
        return _reopen, (self.path, self.fingerprint)

    def verify(self) -> None:
        """Read every column and compare checksums; that of meta.json is compared when it is opened.

        RAISES BioelError: [B024] with the first file that differs.
        """
        check_columns(self._files, self.meta, where=self.where)

    @property
    def title(self) -> str:
        """A short name: of the folder; within a pipeline, or in memory, of the first source."""
        if self.path is not None and self.path.name != "kb":
            return self.path.name
        return str(self.meta.get("source", "")).partition(",")[0].partition(".")[0].strip() or "KB"

    @property
    def where(self) -> str:
        """Folder, or "memory", for messages."""
        return str(self.path) if self.path else "memory"

    # -- Concepts -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

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
        keys = np.fromiter((word_key(id) for id in ids), dtype=np.uint64, count=len(ids))
        rows = self._by_id.find(keys, lambda i, row: self.ids[row] == ids[i])
        retired = self._by_retired.find(keys, lambda i, row: self.retired[row] == ids[i])
        if len(self.retired):
            retired = np.where(retired >= 0, self.retired_targets[retired], -1)
        return rows, retired

    def definition(self, concept: int) -> str:
        """Definition of the concept, "" if it has none."""
        return self.definitions[concept]

    def parents_of(self, concept: int) -> IntArray:
        """Rows of the parents of the concept. Shape (n_parents,)."""
        return self._parents_of_concept[concept]

    def types_of(self, concept: int) -> tuple[str, ...]:
        """Semantic types of the concept, in the order of the source."""
        return tuple(self.type_names[i] for i in self._types_of_concept[concept].tolist())

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

    def preferred_name(self, concept: int) -> str:
        return self.names[int(self.names_of(concept)[0])]

    def preferred_rows(self, concepts: IntArray) -> IntArray:
        """Name rows of the preferred names of concepts. Any shape; returns the same."""
        return self._names_of_concept.first(concepts)

    def names_of_all(self, concepts: IntArray) -> tuple[IntArray, IntArray]:
        """Name rows of many concepts at once.

        concepts (IntArray): Shape (n,).
        RETURNS (tuple): indptr, shape (n + 1,), and name rows, shape (n_entries,): the names of
            concepts[i], the preferred one first, are at indptr[i] : indptr[i + 1].
        """
        indptr, positions = self._names_of_concept.gather(concepts)
        return indptr, self._names_of_concept.at(positions)

    def lookup(self, keys: KeyArray) -> IntArray:
        """Name row of each key of `kb.columns.keys`, e.g. of all spans of a document.

        keys (KeyArray): Any shape; 0 stands for no name.
        RETURNS (IntArray): Rows, -1 if there is no such name. Same shape.
        """
        return np.where(np.asarray(keys) == 0, -1, self._by_name.search(keys))

    def lookup_names(self, normalized: Sequence[str]) -> IntArray:
        """Name row of each normalised string, by comparing strings, not only hashes.

        normalized (Sequence[str]): Results of `normalize_name`.
        RETURNS (IntArray): Rows, -1 if there is no such name. Shape (n,).
        """
        return self._by_name.find(
            name_keys(normalized),
            lambda i, row: normalize_name(self.names[row]) == normalized[i],
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


def open_kb(kb: KnowledgeBase | str | Path) -> KnowledgeBase:
    """Open a knowledge base by its folder, or return an open one: settings may have either."""
    return kb if isinstance(kb, KnowledgeBase) else KnowledgeBase.open(kb)


def open_knowledge_base_v1(path: str) -> KnowledgeBase:
    """spacy-bioel.KnowledgeBase.v1: open a knowledge base by path."""
    return KnowledgeBase.open(path)


def _reopen(path: Path, fingerprint: str) -> KnowledgeBase:
    kb = KnowledgeBase.open(path)
    if kb.fingerprint != fingerprint:
        raise BioelError(Errors.B037.format(path=path, expected=fingerprint, found=kb.fingerprint))
    return kb
