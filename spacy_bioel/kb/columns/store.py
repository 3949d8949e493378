"""The knowledge base: a folder of memory-mapped columns, opened, saved and passed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import Origin, RawFile
from spacy_bioel.kb.columns.files import (
    SortedKeys,
    StringColumn,
    pack,
    read_array,
    unpack,
    write_files,
)
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
from spacy_bioel.kb.columns.lookups import Lookups
from spacy_bioel.kb.columns.ragged import Ragged
from spacy_bioel.kb.columns.schema import KB_FILES, check_columns, checked_meta
from spacy_bioel.kb.columns.tries import files_of_trie, known_tries, map_tries, trie_names
from spacy_bioel.kb.transaction import editing
from spacy_bioel.kb.words.ngrams import NgramIndex
from spacy_bioel.types import remember


class ColumnReader:
    """Views files as columns, without a copy.

    files (Mapping[str, RawFile]): Files by name, checked by `schema.checked_meta`.
    where (str): Folder, for messages.
    """

    def __init__(self, files: Mapping[str, RawFile], where: str) -> None:
        self._files = files
        self._where = where

    def origin(self, name: str) -> Origin:
        """Origin of an array, for messages."""
        return Origin(self._where, f"{name}.npy")

    def array(self, name: str) -> NDArray[Any]:
        return read_array(self._files[f"{name}.npy"])

    def strings(self, name: str) -> StringColumn:
        offsets = f"{name}.offsets"
        blob = self._files[f"{name}.txt"]
        return StringColumn(blob, self.array(offsets), origin=self.origin(offsets))

    def ragged(self, offsets: str, values: str, *, below: int, least: int = 0) -> Ragged:
        """Ragged column of two arrays; `below` and `least` as in `Ragged`."""
        return Ragged(
            self.array(offsets),
            self.array(values),
            below=below,
            least=least,
            origins=(self.origin(offsets), self.origin(values)),
        )

    def sorted_keys(self, name: str, *, below: int) -> SortedKeys:
        """Sorted keys of the arrays NAME_keys and NAME_key_rows; see `SortedKeys`."""
        rows = f"{name}_key_rows"
        keys = self.array(f"{name}_keys")
        return SortedKeys(keys, self.array(rows), below=below, origin=self.origin(rows))


class KnowledgeBase(Lookups):
    """Concepts and their names; the rows of both are numbered from 0.

    Concepts are sorted by id, so the lower of two rows has the lower id. There is one name row for
    each distinct `normalize_name` string; all concepts of that name point to it.

    files (Mapping[str, RawFile]): Bytes of each file, by the names of `kb.columns.layout`; files
        with other names are ignored.
    path (Path | None): Folder that the files are mapped from; None in memory.

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
        self._xrefs, self.sources = None, (str(self.meta.get("source", "")),)
        if self.meta["schema"] > 1:
            self._xrefs = read.strings("xrefs")
            self.sources = tuple(read.strings("sources"))
            self._sources_of_concept = read.ragged(
                "concept_offsets", "name_sources", below=len(self.sources)
            )
        self._parents_of_concept = read.ragged("parent_offsets", "parents", below=n)
        self.name_is_preferred = read.array("name_is_preferred")
        self.name_keys = read.array("name_keys")
        grams = (read.array(f"ngram_{part}") for part in ("codes", "offsets", "names", "norms"))
        self.ngrams = NgramIndex(*grams, origin=read.origin("ngram_names"))
        self._by_name = read.sorted_keys("name", below=n_names)
        self._by_id = read.sorted_keys("id", below=n)
        self._by_retired = read.sorted_keys("retired", below=len(self.retired))
        self._read = read
        remember(self)

    @cached_property
    def retired_targets(self) -> NDArray[np.int32]:
        """Row of the concept that replaced each retired id; checked on first access."""
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
            with transaction.columns(without=before) as folder:
                write_files(folder, {name: files[name] for name in KB_FILES if name in files})
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
