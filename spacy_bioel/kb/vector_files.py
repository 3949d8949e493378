"""Write and open the name vectors stored in a knowledge base folder.

A folder may contain vectors from several encoders, current and outdated. Names are encoded block by
block, so that a process can continue where another was stopped. Vectors of unchanged names are
copied.
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
from spacy_bioel.kb.columns import (
    Origin,
    RawFile,
    check_contents,
    map_folder,
    read_array,
    write_array,
)
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
    MIN_COARSE_NAMES,
    CoarseCodes,
    EncodeNames,
    QuantizedVectors,
    coarse_codes_of,
    quantize,
)
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import FloatArray, IntArray

VectorColumns = dict[str, NDArray[Any]]

# Keys of a description, besides its own checksum ("text"). "ann" is None or the result of
# `write_index`; "coarse" is the width of the coarse codes, or 0 if there are none.
_DESCRIPTION_KEYS = ("fingerprint", "kb", "n", "dim", "checksums", "ann", "coarse")


def column_shapes(n: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the columns in `VECTOR_COLUMNS`."""
    return {"codes": (n, dim), "fine": (n, dim), "scales": (n,), "digests": (n, 2)}


def vectors_of(columns: VectorColumns) -> QuantizedVectors:
    """Return the vectors in columns, without copying."""
    return QuantizedVectors(columns["codes"], columns["fine"], columns["scales"])


class StoredVectors:
    """Vectors from one encoder, stored with a knowledge base.

    name (str): Name of their folder.
    files (dict[str, RawFile]): Files in that folder, by name.
    """

    def __init__(self, kb: KnowledgeBase, name: str, files: dict[str, RawFile]) -> None:
        self._kb, self.name, self.files = kb, name, files
        self._location = {"home": f"vectors/{name}", "where": kb.where}
        self.encoder = encoder_of(name)
        self.n_bytes = sum(raw.size for raw in files.values())

    @cached_property
    def about(self) -> dict[str, Any]:
        """Description of the vectors. RAISES BioelError: [B030] unreadable, [B210] edited."""
        about = described(self.files, **self._location)
        return {key: about[key] for key in _DESCRIPTION_KEYS}

    @property
    def state(self) -> str | None:
        """Fingerprint of the encoded knowledge base; None if the description is unreadable."""
        with suppress(BioelError):
            return str(self.about["kb"])
        return None

    @property
    def is_current(self) -> bool:
        """Whether the vectors belong to the knowledge base's current names."""
        return self.state == self._kb.fingerprint

    @cached_property
    def columns(self) -> VectorColumns:
        """Mapped columns.

        RAISES BioelError: [B033] missing, truncated or foreign column, or a scale that is negative
            or not finite; [B024] damaged small column.
        """
        shapes = column_shapes(self.about["n"], self.about["dim"])
        columns = {name: self._column(name, shape) for name, shape in shapes.items()}
        scales = columns["scales"]
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise self._origin("scales.npy").error(Errors.B033, "numbers from 0", "others")
        return columns

    @property
    def vectors(self) -> QuantizedVectors:
        """The vectors, with coarse codes or an approximate index if there are any.

        RAISES BioelError: The same errors as `about` and `columns`, also for the coarse codes and
            the index.
        """
        vectors = vectors_of(self.columns)
        if width := self.about["coarse"]:
            shapes = (len(vectors), width), (vectors.shape[1], width)
            vectors.coarse = CoarseCodes(*map(self._column, COARSE_COLUMNS, shapes))
        if ann := self.about["ann"]:
            raw = self.files.get("ann")
            if raw is None or raw.size != ann["bytes"]:
                found = "no file" if raw is None else f"{raw.size} bytes"
                raise self._origin("ann").error(Errors.B033, f"{ann['bytes']} bytes", found)
            vectors.ann, vectors.ann_steps = raw, ann["steps"]
            vectors.ann_checksum = self.about["checksums"]["ann"]
        return vectors

    def verify(self) -> None:
        """Read all files and compare checksums. Raises the same errors as `check_home`."""
        check_home(self.files, **self._location)

    def _column(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        dtype = (VECTOR_COLUMNS | COARSE_COLUMNS)[name]
        file, expected = f"{name}.npy", f"{dtype} of shape {shape}"
        raw, origin = self.files.get(file), self._origin(file)
        if raw is None:
            raise origin.error(Errors.B033, expected, "no file")
        try:
            column = read_array(raw)
        except ValueError as error:
            raise origin.error(Errors.B033, expected, f"{raw.size} bytes ({error})") from None
        found = f"{column.dtype.name} of shape {column.shape}"
        if found != expected:
            raise origin.error(Errors.B033, expected, found)
        check_contents(raw, self.about["checksums"][file], origin, if_small=True)
        return column

    def _origin(self, file: str) -> Origin:
        return Origin(self._kb.where, f"{self._location['home']}/{file}")


def stored_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> list[StoredVectors]:
    """Return the vectors stored with a knowledge base: current before outdated, newer before older.

    fingerprint (str | None): Fingerprint of the encoder; None: all encoders.
    """
    homes = homes_of(kb.files(), "vectors")
    stored = [StoredVectors(kb, name, parts) for name, parts in homes.items()]
    if fingerprint is not None:
        stored = [vectors for vectors in stored if vectors.encoder == fingerprint]
    return sorted(stored, key=lambda v: (v.is_current, v.name.rpartition(".")[2]), reverse=True)


def has_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> bool:
    """Return whether there are vectors from an encoder (None: any), current or outdated."""
    return bool(stored_vectors(kb, fingerprint))


def are_outdated(kb: KnowledgeBase, fingerprint: str) -> bool:
    """Return whether an encoder has vectors, but only for earlier states of the knowledge base.

    Vectors with an unreadable description do not count as outdated.
    """
    states = [stored.state for stored in stored_vectors(kb, fingerprint)]
    return bool(states) and not {None, kb.fingerprint} & set(states)


def is_encoded(kb: KnowledgeBase, *, fingerprint: str) -> bool:
    """Return whether an encoder has current vectors with a readable description."""
    return any(stored.is_current for stored in stored_vectors(kb, fingerprint))


def describe_vectors(kb: KnowledgeBase) -> list[dict[str, Any]]:
    """Return the descriptions of all vectors, each with "current": whether they are current.

    RAISES BioelError: The same errors as `open_vectors`, but not for outdated vectors.
    """
    return [
        stored.about | {"n": len(stored.vectors), "current": stored.is_current}
        for stored in stored_vectors(kb)
    ]


def open_vectors(kb: KnowledgeBase | str | Path, *, fingerprint: str | None) -> QuantizedVectors:
    """Map the unit vectors of a knowledge base's names, of shape (n_names, dim).

    kb (KnowledgeBase | str | Path): Knowledge base, or its folder.
    fingerprint (str | None): Fingerprint of the encoder of the queries; None: any encoder.
    RAISES BioelError: [B031] only vectors from other encoders, [B032] no vectors, [B033] truncated
        or foreign vectors, [B034] only outdated vectors, [B030] unreadable description.
    """
    kb = open_kb(kb)
    stored = stored_vectors(kb)  # read once, since a writer may change the folder
    if not stored:
        raise BioelError(Errors.B032.format(path=kb.where))
    of_encoder = [vectors for vectors in stored if fingerprint in (None, vectors.encoder)]
    if not of_encoder:
        others = ", ".join(sorted({vectors.encoder for vectors in stored}))
        raise BioelError(Errors.B031.format(path=kb.where, found=others, expected=fingerprint))
    state = of_encoder[0].about["kb"]
    if state != kb.fingerprint:
        raise BioelError(Errors.B034.format(path=kb.where, found=state, expected=kb.fingerprint))
    return of_encoder[0].vectors


ReportProgress = Callable[[int], None]

_ENCODED_PER_BLOCK = 1 << 16  # max. names per block; an interrupted run loses at most one block
_NAMES_PER_CALL = 4096  # names per encoder call
_JOURNAL = "journal.json"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Result of `write_vectors`: counts of names, and the approximate index."""

    encoded: int  # names that were encoded
    copied: int  # names whose vectors were kept, copied, or left by a stopped process
    ann: dict[str, Any] | None  # result of `write_index`


def write_vectors(
    kb: KnowledgeBase,
    encode: EncodeNames,
    *,
    fingerprint: str,
    dim: int,
    progress: ReportProgress | None = None,
) -> Encoded:
    """Encode all names and store the vectors with the knowledge base; keep other encoders' vectors.

    This encoder's vectors for an earlier state of the knowledge base are copied and then removed;
    if they are current and complete, nothing is done. If the process is stopped, the earlier
    vectors stay, and the next process continues where it stopped. Writers to a knowledge base wait
    for each other. After waiting, the names that are now in the folder are encoded, which may
    differ from the names in `kb`.

    kb (KnowledgeBase): The vectors are stored in its folder, or attached to it if it is in memory.
    fingerprint (str): Fingerprint of the encoder; `open_vectors` compares it.
    dim (int): Width of the vectors.
    progress (Callable | None): Called after each step, with the number of newly finished names.
    RAISES BioelError: [B035] if the encoder returns NaN, infinity or another shape, [B182] if the
        disk is full or the folder is not writable, [B212] if another writer does not finish in
        time.
    """
    if kb.path is None:
        with TemporaryDirectory() as folder:
            kb.save_to(folder)
            copy = KnowledgeBase.open(folder)
            encoded = write_vectors(
                copy, encode, fingerprint=fingerprint, dim=dim, progress=progress
            )
            [written] = stored_vectors(copy, fingerprint)
            files = {file: raw.copy() for file, raw in written.files.items()}
        kb.attach(in_home("vectors", written.name, files))
        return encoded
    try:
        with editing(kb.path, to=f"encode names with encoder {fingerprint}") as transaction:
            current = KnowledgeBase.open(kb.path)
            about: dict[str, Any] = {"fingerprint": fingerprint, "kb": current.fingerprint}
            about |= {"n": current.n_names, "dim": dim}
            report = progress or (lambda n: None)
            return _write_locked(transaction, current, encode, about, report)
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def _write_locked(
    transaction: Transaction,
    kb: KnowledgeBase,
    encode: EncodeNames,
    about: dict[str, Any],
    report: ReportProgress,
) -> Encoded:
    """Encode the names in a locked folder, and remove this encoder's other vectors."""
    old = stored_vectors(kb, about["fingerprint"])
    usable = _first_usable(old, dim=about["dim"])
    needs_ann = kb.n_names > ANN_NAMES and has_faiss()
    needs_coarse = kb.n_names >= MIN_COARSE_NAMES and not needs_ann
    if usable and usable.is_current:
        has_ann, has_coarse = usable.about["ann"] is not None, usable.about["coarse"] > 0
        if (has_ann, has_coarse) == (needs_ann, needs_coarse):
            report(kb.n_names)
            transaction.remove_vectors(stored.name for stored in old if stored is not usable)
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
    coarse_width = 0
    if ann is None and (coarse := coarse_codes_of(vectors)):
        coarse_width = coarse.codes.shape[1]
        for name, column in zip(COARSE_COLUMNS, coarse, strict=True):
            write_array(unfinished.folder, name, np.asarray(column))
    unfinished.put_in_place(about | {"ann": ann, "coarse": coarse_width}, transaction)
    transaction.remove_vectors(stored.name for stored in old)
    return Encoded(n_encoded, kb.n_names - n_encoded, ann)


def _first_usable(stored: list[StoredVectors], *, dim: int) -> StoredVectors | None:
    """Return the first vectors that are complete and have this width."""
    for vectors in stored:
        with suppress(BioelError):
            if vectors.about["dim"] == dim:
                vectors.verify()
                return vectors
    return None


# -- Blocks of names ----------------------------------------------------------------------------


def name_digests(names: Sequence[str]) -> NDArray[np.uint64]:
    """Return 128-bit digests, which identify names in stored vectors. Shape (n, 2)."""
    digests = (blake2b(name.encode("utf8"), digest_size=16).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(names), 2)


def _fill(
    kb: KnowledgeBase,
    unfinished: Unfinished,
    usable: StoredVectors | None,
    encode: EncodeNames,
    report: ReportProgress,
) -> Iterator[tuple[int, int]]:
    """Fill the unfinished rows, block by block, copying the vectors of unchanged names.

    YIELDS (tuple): The first row of the next block, and the number of names encoded in this block.
    """
    columns = unfinished.columns
    if usable:
        known, known_digests = usable.vectors, usable.columns["digests"]
        by_first_half = SortedKeys.from_keys(known_digests[:, 0])
    for first in range(unfinished.done, kb.n_names, _ENCODED_PER_BLOCK):
        rows = np.arange(first, min(first + _ENCODED_PER_BLOCK, kb.n_names))
        names = normalize_names(kb.names.take(rows))
        digests = columns["digests"][rows] = name_digests(names)
        old_rows = np.full(len(names), -1)
        if usable:
            old_rows = by_first_half.search(digests[:, 0])
            # If several digests share their first half, only one of these names is found; the other
            # names are encoded again.
            old_rows[(known_digests[old_rows] != digests).any(axis=1)] = -1
            if len(copied := np.flatnonzero(old_rows >= 0)):
                _put(columns, rows[copied], known, old_rows[copied])
                report(len(copied))
        # Batches of names with similar lengths need less padding.
        new = sorted(np.flatnonzero(old_rows < 0).tolist(), key=lambda i: len(names[i]))
        for start in range(0, len(new), _NAMES_PER_CALL):
            batch = new[start : start + _NAMES_PER_CALL]
            vectors = _encode_unit(encode, [names[i] for i in batch], dim=columns["codes"].shape[1])
            _put(columns, rows[batch], quantize(vectors), slice(None))
            report(len(batch))
        yield first + len(rows), len(new)


def _put(
    columns: VectorColumns, rows: IntArray, vectors: QuantizedVectors, taken: IntArray | slice
) -> None:
    for part in ("codes", "fine", "scales"):
        columns[part][rows] = getattr(vectors, part)[taken]


def _encode_unit(encode: EncodeNames, names: list[str], *, dim: int) -> FloatArray:
    """Encode names and normalise the vectors to length 1. RAISES BioelError: [B035]."""
    vectors = np.asarray(encode(names), dtype=np.float32)
    expected = len(names), dim
    if vectors.shape != expected or not np.isfinite(vectors).all():
        has_other_shape = vectors.shape != expected
        found = f"numbers of shape {vectors.shape}" if has_other_shape else "NaN or infinity"
        ends = {"first": names[0], "last": names[-1]}
        raise BioelError(Errors.B035.format(found=found, expected=expected, **ends))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


class Unfinished:
    """Columns that are being filled in a temporary folder, with a journal of the finished rows.

    about (Mapping): Description of the vectors. Columns with another description are removed.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder, self._about = folder, dict(about)
        self._shapes = column_shapes(about["n"], about["dim"])
        self.done = self._finished_rows()
        if not self.done:
            self.discard()
            folder.mkdir()
            try:  # with sparse files instead of zeros, a full disk would kill the process
                for name, dtype in VECTOR_COLUMNS.items():
                    write_array(folder, name, np.zeros(self._shapes[name], dtype))
            except OSError:
                self.discard()
                raise
        self.columns: VectorColumns = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in VECTOR_COLUMNS
        }

    def finish_rows(self, done: int) -> None:
        """Flush all rows before row `done`, and record them in the journal."""
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

    def _finished_rows(self) -> int:
        """Return the number of rows that a stopped process finished for the same description."""
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            journal = json.loads((self.folder / _JOURNAL).read_text(encoding="utf8"))
            done = journal.pop("done")
            files = map_folder(self.folder, [f"{name}.npy" for name in VECTOR_COLUMNS])
            shapes = {name.removesuffix(".npy"): read_array(files[name]).shape for name in files}
            # If the folder was copied using hard links, writing would change the copy as well.
            is_unshared = all((self.folder / name).stat().st_nlink == 1 for name in files)
            if journal == self._about and shapes == self._shapes and is_unshared:
                return int(done)
        return 0
