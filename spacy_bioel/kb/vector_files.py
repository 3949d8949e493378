"""Vectors of the names of a knowledge base, stored in its folder: of all encoders, current or not.

Names are encoded block by block, so that the next process continues where one was stopped; vectors
of known names are copied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.columns import RawFile, check_contents, map_folder, read_array, write_array
from spacy_bioel.kb.faiss_index import ANN_NAMES, has_faiss, write_index
from spacy_bioel.kb.folder import (
    COARSE_COLUMNS,
    VECTOR_COLUMNS,
    Transaction,
    check_home,
    describe_home,
    described,
    editing,
    encoder_of,
    homes_of,
    in_home,
    vectors_name,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase, SortedKeys, open_kb
from spacy_bioel.kb.vectors import (
    HEAD_NAMES,
    CoarseCodes,
    Encode,
    QuantizedVectors,
    coarse_codes_of,
    quantize,
)
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import FloatArray, IntArray

Columns = dict[str, NDArray[Any]]

# Of a description, beside "text", its own checksum. "ann": None, or what `write_index` returns.
_KEYS = ("fingerprint", "kb", "n", "dim", "checksums", "ann", "coarse")


def column_shapes(n: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the columns of `VECTOR_COLUMNS`."""
    return {"codes": (n, dim), "fine": (n, dim), "scales": (n,), "digests": (n, 2)}


def vectors_of(columns: Columns) -> QuantizedVectors:
    """Vectors of columns, without a copy."""
    return QuantizedVectors(columns["codes"], columns["fine"], columns["scales"])


class StoredVectors:
    """Vectors of one encoder: their description, and their files by their names in their folder."""

    def __init__(self, kb: KnowledgeBase, name: str, files: dict[str, RawFile]) -> None:
        self._kb, self.name, self.files = kb, name, files
        self._place = {"home": f"vectors/{name}", "where": kb.where}
        self.encoder = encoder_of(name)
        self.n_bytes = sum(raw.size for raw in files.values())

    @cached_property
    def about(self) -> dict[str, Any]:
        """Description of the vectors. RAISES BioelError: [B030] unreadable, [B210] edited."""
        about = described(self.files, **self._place)
        return {key: about[key] for key in _KEYS}

    @property
    def state(self) -> str | None:
        """Fingerprint of the encoded knowledge base; None if the description is unreadable."""
        with suppress(BioelError):
            return str(self.about["kb"])
        return None

    @property
    def is_current(self) -> bool:
        """Whether the vectors are of the current names of the knowledge base."""
        return self.state == self._kb.fingerprint

    @cached_property
    def columns(self) -> Columns:
        """Mapped columns.

        RAISES BioelError: [B033] missing, truncated or foreign column, or a scale that is negative
            or not finite; [B024] damaged small column.
        """
        shapes = column_shapes(self.about["n"], self.about["dim"])
        columns = {name: self._column(name, shape) for name, shape in shapes.items()}
        scales = columns["scales"]
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise self._bad("scales.npy", "numbers from 0", "others")
        return columns

    @property
    def vectors(self) -> QuantizedVectors:
        """Vectors, with their heads or their approximate index if they have them.

        RAISES BioelError: Errors of `about` and `columns`, also for heads and index.
        """
        vectors = vectors_of(self.columns)
        if width := self.about["coarse"]:
            shapes = (len(vectors), width), (vectors.shape[1], width)
            vectors.coarse = CoarseCodes(*map(self._column, COARSE_COLUMNS, shapes))
        if ann := self.about["ann"]:
            raw, expected = self.files.get("ann"), f"{ann['bytes']} bytes"
            if raw is None or raw.size != ann["bytes"]:
                raise self._bad("ann", expected, "no file" if raw is None else f"{raw.size} bytes")
            vectors.ann, vectors.ann_steps = raw, ann["steps"]
            vectors.ann_checksum = self.about["checksums"]["ann"]
        return vectors

    def verify(self) -> None:
        """Read all files and compare checksums. RAISES BioelError: Those of `check_home`."""
        check_home(self.files, **self._place)

    def _column(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        kind = (VECTOR_COLUMNS | COARSE_COLUMNS)[name]
        file, expected = f"{name}.npy", f"{kind} of shape {shape}"
        if (raw := self.files.get(file)) is None:
            raise self._bad(file, expected, "no file")
        try:
            column = read_array(raw)
        except ValueError as error:
            raise self._bad(file, expected, f"{raw.size} bytes ({error})") from None
        found = f"{column.dtype.name} of shape {column.shape}"
        if found != expected:
            raise self._bad(file, expected, found)
        where, path = self._kb.where, f"{self._place['home']}/{file}"
        checksums = self.about["checksums"]
        check_contents(raw, checksums[file], where=where, file=path, if_small=True)
        return column

    def _bad(self, file: str, expected: str, found: str) -> BioelError:
        where, file = self._kb.where, f"{self._place['home']}/{file}"
        return BioelError(Errors.B033.format(path=where, file=file, expected=expected, found=found))


def stored_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> list[StoredVectors]:
    """Vectors of a knowledge base, current ones first, then newer before older ones.

    fingerprint (str | None): Fingerprint of the encoder; None: all encoders.
    """
    homes = homes_of(kb.files(), "vectors")
    found = [StoredVectors(kb, name, parts) for name, parts in homes.items()]
    if fingerprint is not None:
        found = [one for one in found if one.encoder == fingerprint]
    age = {one.name: one.name.rpartition(".")[2] for one in found}
    return sorted(found, key=lambda one: (one.is_current, age[one.name]), reverse=True)


def has_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> bool:
    """Whether a knowledge base has vectors of an encoder (None: of any), current or outdated."""
    return bool(stored_vectors(kb, fingerprint))


def are_outdated(kb: KnowledgeBase, fingerprint: str) -> bool:
    """Whether there are vectors of an encoder, and all are of earlier states of the knowledge base.

    Vectors with an unreadable description do not count as outdated.
    """
    states = [stored.state for stored in stored_vectors(kb, fingerprint)]
    return bool(states) and not {None, kb.fingerprint} & set(states)


def is_encoded(kb: KnowledgeBase, *, fingerprint: str) -> bool:
    """Whether there are current vectors of this encoder, with a readable description."""
    return any(stored.is_current for stored in stored_vectors(kb, fingerprint))


def describe_vectors(kb: KnowledgeBase) -> list[dict[str, Any]]:
    """Descriptions of the vectors of each encoder, with "current": whether they are.

    RAISES BioelError: Errors of `open_vectors`, except for outdated vectors.
    """
    return [
        stored.about | {"n": len(stored.vectors), "current": stored.is_current}
        for stored in stored_vectors(kb)
    ]


def open_vectors(kb: KnowledgeBase | str | Path, *, fingerprint: str | None) -> QuantizedVectors:
    """Map the unit vectors of the names of a knowledge base, of shape (n_names, dim).

    kb (KnowledgeBase | str | Path): Knowledge base, or its folder.
    fingerprint (str | None): Fingerprint of the encoder of the queries; None: any encoder.
    RAISES BioelError: [B031] vectors of other encoders only, [B032] no vectors, [B033] truncated or
        foreign vectors, [B034] outdated vectors only, [B030] unreadable description.
    """
    kb = open_kb(kb)
    stored = stored_vectors(kb)  # read once, since writers may change it meanwhile
    found = [one for one in stored if fingerprint in (None, one.encoder)]
    if not stored:
        raise BioelError(Errors.B032.format(path=kb.where))
    if not found:
        others = ", ".join(sorted({one.encoder for one in stored}))
        raise BioelError(Errors.B031.format(path=kb.where, found=others, expected=fingerprint))
    if (of := found[0].about["kb"]) != kb.fingerprint:
        raise BioelError(Errors.B034.format(path=kb.where, found=of, expected=kb.fingerprint))
    return found[0].vectors


Report = Callable[[int], None]
Digests = NDArray[np.uint64]

_BLOCK = 1 << 16  # names per block; a stopped process loses at most one block
_BATCH = 4096  # names per call of the encoder
_JOURNAL = "journal.json"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Result of `write_vectors`: numbers of names, and the approximate index."""

    encoded: int
    copied: int  # whose vectors were kept, copied, or left by a stopped process
    ann: dict[str, Any] | None  # as `write_index` returns it


def write_vectors(
    kb: KnowledgeBase, encode: Encode, *, fingerprint: str, dim: int, progress: Report | None = None
) -> Encoded:
    """Encode all names and store the vectors with the knowledge base, beside other encoders'.

    Vectors of this encoder for an earlier state of the knowledge base are copied and then removed;
    if they are current and complete, nothing is done. If the process is stopped, the earlier
    vectors stay, and the next process continues where it stopped. Writers of a knowledge base wait
    for each other. The names in the folder after waiting are encoded, which may differ from the
    names of `kb`.

    kb (KnowledgeBase): Gets the vectors, in its folder, or attached if it is in memory.
    fingerprint (str): Fingerprint of the encoder; `open_vectors` compares it.
    dim (int): Width of the vectors.
    progress (Callable | None): Called with the number of finished names, each time there are more.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape, [B182] when
        the disk is full or the folder is not writable, [B212] when another writer does not finish
        in time.
    """
    if kb.path is None:
        with TemporaryDirectory() as folder:
            kb.save_to(folder)
            copy = KnowledgeBase.open(folder)
            done = write_vectors(copy, encode, fingerprint=fingerprint, dim=dim, progress=progress)
            [written] = stored_vectors(copy, fingerprint)
            files = {file: raw.copy() for file, raw in written.files.items()}
        kb.attach(in_home("vectors", written.name, files))
        return done
    try:
        with editing(kb.path, to=f"encode names with encoder {fingerprint}") as transaction:
            now = KnowledgeBase.open(kb.path)
            about = {"fingerprint": fingerprint, "kb": now.fingerprint, "n": now.n_names}
            about |= {"dim": dim}
            return _write(transaction, now, encode, about, progress or (lambda n: None))
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def _write(
    transaction: Transaction,
    kb: KnowledgeBase,
    encode: Encode,
    about: dict[str, Any],
    report: Report,
) -> Encoded:
    """Encode the names of a locked folder, and remove other vectors of this encoder."""
    before = stored_vectors(kb, about["fingerprint"])
    usable = _usable(before, dim=about["dim"])
    needs_index = kb.n_names > ANN_NAMES and has_faiss()
    needs_heads = kb.n_names >= HEAD_NAMES and not needs_index
    has = usable and (usable.about["ann"] is not None, usable.about["coarse"] > 0)
    if usable and usable.is_current and has == (needs_index, needs_heads):
        report(kb.n_names)
        transaction.remove_vectors(stored.name for stored in before if stored is not usable)
        return Encoded(0, kb.n_names, usable.about["ann"])
    unfinished = Unfinished(transaction.folder / ".encoding", about)
    if unfinished.done:
        report(unfinished.done)
    n_encoded = 0
    try:
        for done, n in _fill(kb, unfinished, usable, encode, report):
            n_encoded += n
            unfinished.finish_rows(done)
    finally:
        if not unfinished.done:
            unfinished.discard()  # no finished block to continue from
    for file in ("ann", *(f"{name}.npy" for name in COARSE_COLUMNS)):
        (unfinished.folder / file).unlink(missing_ok=True)
    vectors = vectors_of(unfinished.columns)
    ann = write_index(kb.names, vectors, encode, unfinished.folder / "ann")
    width = 0
    if ann is None and (coarse := coarse_codes_of(vectors)):
        width = coarse.codes.shape[1]
        for name, column in zip(COARSE_COLUMNS, coarse, strict=True):
            write_array(unfinished.folder, name, np.asarray(column))
    unfinished.put_in_place(about | {"ann": ann, "coarse": width}, transaction)
    transaction.remove_vectors(stored.name for stored in before)
    return Encoded(n_encoded, kb.n_names - n_encoded, ann)


def _usable(stored: list[StoredVectors], *, dim: int) -> StoredVectors | None:
    """The first vectors that are complete and of this width."""
    for one in stored:
        with suppress(BioelError):
            if one.about["dim"] == dim:
                one.verify()
                return one
    return None


# -- Blocks of names ----------------------------------------------------------------------------


def name_digests(names: Sequence[str]) -> Digests:
    """Digests of 128 bits, which identify names in stored vectors. Shape (n, 2)."""
    digests = (blake2b(name.encode("utf8"), digest_size=16).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(names), 2)


def _fill(
    kb: KnowledgeBase,
    unfinished: Unfinished,
    usable: StoredVectors | None,
    encode: Encode,
    report: Report,
) -> Iterator[tuple[int, int]]:
    """Fill the other rows, block by block; vectors of known names are copied.

    YIELDS (tuple): The row to go on from, and the number of names that were encoded in this block.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape.
    """
    columns = unfinished.columns
    if usable:
        known, digests_of_known = usable.vectors, usable.columns["digests"]
        by_half = SortedKeys.of(digests_of_known[:, 0])
    for first in range(unfinished.done, kb.n_names, _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, kb.n_names))
        names = normalize_names(kb.names.take(rows))
        digests = columns["digests"][rows] = name_digests(names)
        old = np.full(len(names), -1)
        if usable:
            old = by_half.search(digests[:, 0])
            # Of names with the same first half one is found; the others are encoded again.
            old[(digests_of_known[old] != digests).any(axis=1)] = -1
            if len(copied := np.flatnonzero(old >= 0)):
                _put(columns, rows[copied], known, old[copied])
                report(len(copied))
        # Batches have names of similar length, which saves padding.
        new = sorted(np.flatnonzero(old < 0).tolist(), key=lambda i: len(names[i]))
        for at in range(0, len(new), _BATCH):
            batch = new[at : at + _BATCH]
            vectors = _encoded(encode, [names[i] for i in batch], dim=columns["codes"].shape[1])
            _put(columns, rows[batch], quantize(vectors), slice(None))
            report(len(batch))
        yield first + len(rows), len(new)


def _put(columns: Columns, rows: IntArray, vectors: QuantizedVectors, of: IntArray | slice) -> None:
    for part in ("codes", "fine", "scales"):
        columns[part][rows] = getattr(vectors, part)[of]


def _encoded(encode: Encode, names: list[str], *, dim: int) -> FloatArray:
    """Unit vectors of names. RAISES BioelError: [B035]."""
    vectors = np.asarray(encode(names), dtype=np.float32)
    expected = len(names), dim
    if vectors.shape != expected or not np.isfinite(vectors).all():
        is_other = vectors.shape != expected
        found = f"numbers of shape {vectors.shape}" if is_other else "NaN or infinity"
        ends = {"first": names[0], "last": names[-1]}
        raise BioelError(Errors.B035.format(found=found, expected=expected, **ends))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: FloatArray = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


class Unfinished:
    """Columns that are being filled in their own folder, with a journal of the finished rows.

    about (Mapping): Description of the vectors. Columns with another description are removed.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder, self._about = folder, dict(about)
        self._shapes = column_shapes(about["n"], about["dim"])
        self.done = self._done_before()
        if not self.done:
            self.discard()
            self._allocate()
        self.columns: Columns = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in VECTOR_COLUMNS
        }

    def finish_rows(self, done: int) -> None:
        """Flush all rows before `done`, and record them in the journal."""
        for column in self.columns.values():
            column.flush()  # type: ignore[attr-defined]
        with replacing_file(self.folder / _JOURNAL, follow=False) as path:
            path.write_text(json.dumps(self._about | {"done": done}), encoding="utf8")
        self.done = done

    def put_in_place(self, about: Mapping[str, Any], transaction: Transaction) -> None:
        """Write the description of the finished vectors, and add them to the knowledge base."""
        self.columns.clear()  # some systems cannot move mapped files
        describe_home(self.folder, "vectors", about)
        home = transaction.put(self.folder, "vectors", vectors_name(about["fingerprint"]))
        (home / _JOURNAL).unlink(missing_ok=True)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _done_before(self) -> int:
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            journal = json.loads((self.folder / _JOURNAL).read_text(encoding="utf8"))
            done = journal.pop("done")
            files = map_folder(self.folder, [f"{name}.npy" for name in VECTOR_COLUMNS])
            found = {name.removesuffix(".npy"): read_array(files[name]).shape for name in files}
            # A copy by hard links has the same files; they are not written to.
            is_own = all((self.folder / name).stat().st_nlink == 1 for name in files)
            if journal == self._about and found == self._shapes and is_own:
                return int(done)
        return 0

    def _allocate(self) -> None:
        """Write zeros, which take no memory: a sparse file would kill it on a full disk."""
        self.folder.mkdir()
        try:
            for name, dtype in VECTOR_COLUMNS.items():
                write_array(self.folder, name, np.zeros(self._shapes[name], dtype))
        except OSError:
            self.discard()
            raise
