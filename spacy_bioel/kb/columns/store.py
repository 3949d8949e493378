"""The knowledge base: a folder of memory-mapped columns, opened, saved and passed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.arrays import Origin, Ragged, RawFile, SortedKeys, StringColumn
from spacy_bioel.kb.columns.files import pack, read_array, unpack, write_files
from spacy_bioel.kb.columns.layout import (
    check_replaceable,
    encoder_of,
    homes_of,
    known_files,
    map_columns,
    map_tries,
    map_vectors,
    vectors_name,
)
from spacy_bioel.kb.columns.lookups import Lookups
from spacy_bioel.kb.columns.schema import KB_FILES, check_columns, checked_meta
from spacy_bioel.kb.transaction import editing
from spacy_bioel.kb.words.ngrams import NgramIndex
from spacy_bioel.types import remember


class KnowledgeBase(Lookups):
    """Concepts and their names; the rows of both are numbered from 0.

    Concepts are sorted by id, so the lower of two rows has the lower id. There is one name row for
    each distinct `normalize_name` string; all concepts of that name point to it.

    files (Mapping[str, RawFile]): Files by the names of `kb.columns.layout`; others are ignored.
    path (Path | None): Folder that the files are mapped from; None in memory.
    RAISES BioelError: Errors of `schema.checked_meta`. Methods and whole columns raise [B211] when
        they read damage that is not visible at opening.
    """

    def __init__(self, files: Mapping[str, RawFile], *, path: Path | None = None) -> None:
        self.path = path
        self.meta = checked_meta(files, where=self.where)
        self.fingerprint = str(self.meta["fingerprint"])
        self._files = known_files(files)
        self.ids, self.names = self._strings("ids"), self._strings("names")
        self.definitions, self.retired = self._strings("definitions"), self._strings("retired")
        self.type_names = tuple(self._strings("type_names"))
        n, n_names = len(self.ids), len(self.names)
        self._concepts_of_name = self._ragged("name_offsets", "name_concepts", below=n, least=1)
        names = self._ragged("concept_offsets", "concept_names", below=n_names, least=1)
        self._names_of_concept = names
        self._types_of_concept = self._ragged(
            "type_offsets", "type_ids", below=len(self.type_names)
        )
        self._parents_of_concept = self._ragged("parent_offsets", "parents", below=n)
        self._xrefs, self.sources = self._strings("xrefs"), tuple(self._strings("sources"))
        self._sources_of_concept = self._ragged(
            "concept_offsets", "name_sources", below=len(self.sources)
        )
        self.name_is_preferred = self._array("name_is_preferred")
        self.name_keys = self._array("name_keys")
        grams = (self._array(f"ngram_{part}") for part in ("codes", "offsets", "names", "norms"))
        self.ngrams = NgramIndex(*grams, origin=self._origin("ngram_names"))
        self._by_name = self._sorted_keys("name", below=n_names)
        self._by_id = self._sorted_keys("id", below=n)
        self._by_retired = self._sorted_keys("retired", below=len(self.retired))
        self._retired_targets = self._array("retired_targets")
        remember(self)

    def _origin(self, name: str) -> Origin:
        return Origin(self.where, f"{name}.npy")

    def _array(self, name: str) -> NDArray[Any]:
        return read_array(self._files[f"{name}.npy"])

    def _strings(self, name: str) -> StringColumn:
        offsets = f"{name}.offsets"
        return StringColumn(self._files[f"{name}.txt"], self._array(offsets), self._origin(offsets))

    def _ragged(self, *names: str, below: int, least: int = 0) -> Ragged:
        origins, (offsets, values) = list(map(self._origin, names)), map(self._array, names)
        return Ragged(offsets, values, below=below, least=least, origins=origins)

    def _sorted_keys(self, name: str, *, below: int) -> SortedKeys:
        keys, rows = f"{name}_keys", f"{name}_key_rows"
        origin = self._origin(rows)
        return SortedKeys(self._array(keys), self._array(rows), below=below, origin=origin)

    # -- Opening and saving ---------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path) -> KnowledgeBase:
        """Map a folder that `build_kb` wrote, which takes milliseconds at any size.

        Later changes of the folder do not affect an open knowledge base or its vectors.

        RAISES BioelError: Errors of `schema.checked_meta`.
        """
        folder = Path(path).resolve()
        kb = cls(map_columns(folder), path=folder)
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
            before = homes_of(map_vectors(out), "vectors")
            for name, parts in homes_of(files, "vectors").items():
                with transaction.adding("vectors", vectors_name(encoder_of(name))) as folder:
                    write_files(folder, parts)
            with transaction.columns(without=before) as folder:
                write_files(folder, {name: files[name] for name in KB_FILES if name in files})
            for name, parts in homes_of(files, "tries").items():
                with transaction.adding("tries", name) as folder:
                    write_files(folder, parts)

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
