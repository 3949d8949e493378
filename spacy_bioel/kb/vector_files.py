"""Write and open the name vectors stored in a knowledge base folder.

A folder may contain vectors from several encoders, current and outdated. When names are encoded
again, the vectors of unchanged names are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import scratch_folder
from spacy_bioel.kb.columns import (
    MEDIUM,
    Origin,
    RawFile,
    TensorFile,
    checksums_of,
    map_file,
    serialized,
)
from spacy_bioel.kb.faiss_index import ANN_NAMES, has_faiss, write_index
from spacy_bioel.kb.folder import Transaction, editing, new_home
from spacy_bioel.kb.knowledge_base import KnowledgeBase, SortedKeys, open_kb
from spacy_bioel.kb.vectors import EncodeNames, QuantizedVectors, quantize
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import FloatArray, IntArray

VectorColumns = dict[str, NDArray[Any]]

# Data type and shape of each column; see `TensorFile.check`.
_SCHEMA = {
    "codes": "int8 n dim",  # see `QuantizedVectors` for codes, fine and scales
    "fine": "uint8 n dim",
    "scales": "float32 n",
    "digests": "uint64 n halves",  # digests of the normalised names
}
_ANN_SCHEMA = {"ann": "uint8 bytes"}  # see `kb.faiss_index`


def vectors_of(columns: VectorColumns) -> QuantizedVectors:
    """Create `QuantizedVectors` from columns, without copying."""
    return QuantizedVectors(columns["codes"], columns["fine"], columns["scales"])


class StoredVectors:
    """Vectors from one encoder, stored with a knowledge base.

    path (str): Path in the folder of the knowledge base.
    raw (RawFile): Bytes of the file.
    """

    def __init__(self, kb: KnowledgeBase, path: str, raw: RawFile) -> None:
        self._kb, self.path, self.raw = kb, path, raw
        self.encoder = path.partition("/")[2].partition(".")[0]

    @cached_property
    def file(self) -> TensorFile:
        """The file. RAISES BioelError: [B030] if unreadable or truncated, [B210] if edited."""
        return TensorFile(self.raw, Origin(self._kb.where, self.path))

    # Description with the keys fingerprint, kb, n, dim and ann (the result of `write_index`).
    about = property(attrgetter("file.about"))

    @property
    def state(self) -> str | None:
        """Fingerprint of the encoded knowledge base, or None if the file is unreadable."""
        with suppress(BioelError):
            return str(self.about["kb"])
        return None

    @property
    def is_current(self) -> bool:
        """Whether the vectors match the knowledge base's current names."""
        return self.state == self._kb.fingerprint

    @cached_property
    def columns(self) -> VectorColumns:
        """The memory-mapped columns of these vectors.

        RAISES BioelError: [B033] missing or foreign column, or a scale that is negative or not
            finite; [B024] damaged column of up to 16 MB.
        """
        schema = _SCHEMA | (_ANN_SCHEMA if self.about["ann"] else {})
        sizes = {"n": self.about["n"], "dim": self.about["dim"], "halves": 2}
        self.file.check(schema, Errors.B033, up_to=MEDIUM, **sizes)
        scales = self.file.arrays["scales"]
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise self.file.origin_of("scales").error(Errors.B033, "numbers from 0", "others")
        return self.file.arrays

    @property
    def vectors(self) -> QuantizedVectors:
        """The vectors, with their approximate index if there is one.

        RAISES BioelError: The same errors as `file` and `columns`.
        """
        vectors = vectors_of(self.columns)
        if ann := self.about["ann"]:
            vectors.ann, vectors.ann_steps = self.columns["ann"], ann["steps"]
            vectors.ann_checksum = self.file.checksums["ann"]
        return vectors


def stored_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> list[StoredVectors]:
    """Return a knowledge base's stored vectors: current before outdated, then newest first.

    fingerprint (str | None): Fingerprint of the encoder; None: all encoders.
    """
    prefix = "vectors/" if fingerprint is None else f"vectors/{fingerprint}."
    homes = kb.files().items()
    stored = [StoredVectors(kb, path, raw) for path, raw in homes if path.startswith(prefix)]
    return sorted(stored, key=lambda v: (v.is_current, v.path.split(".")[1]), reverse=True)


def has_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> bool:
    """Return whether a knowledge base has any vectors (from this encoder), even outdated ones."""
    return bool(stored_vectors(kb, fingerprint))


def are_outdated(kb: KnowledgeBase, fingerprint: str) -> bool:
    """Return whether all of an encoder's vectors are for earlier versions of the knowledge base.

    Unreadable vectors do not count as outdated.
    """
    states = [stored.state for stored in stored_vectors(kb, fingerprint)]
    return bool(states) and not {None, kb.fingerprint} & set(states)


def is_encoded(kb: KnowledgeBase, *, fingerprint: str) -> bool:
    """Return whether a knowledge base has current, readable vectors from an encoder."""
    return any(stored.is_current for stored in stored_vectors(kb, fingerprint))


def describe_vectors(kb: KnowledgeBase) -> list[dict[str, Any]]:
    """Describe each vector file; the key "current" says whether its vectors are up to date.

    RAISES BioelError: The same errors as `open_vectors`, but not for outdated vectors.
    """
    return [
        {**stored.about, "n": len(stored.vectors), "current": stored.is_current}
        for stored in stored_vectors(kb)
    ]


def open_vectors(kb: KnowledgeBase | str | Path, *, fingerprint: str | None) -> QuantizedVectors:
    """Memory-map the unit vectors of all names in a knowledge base. Shape (n_names, dim).

    kb (KnowledgeBase | str | Path): Knowledge base, or its folder.
    fingerprint (str | None): Fingerprint of the encoder of the queries; None: any encoder.
    RAISES BioelError: [B031] only vectors from other encoders, [B032] no vectors, [B033] truncated
        or foreign vectors, [B034] only outdated vectors, [B030] unreadable vectors.
    """
    kb = open_kb(kb)
    stored = stored_vectors(kb)  # read once, because a writer may change the folder
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

_NAMES_PER_BLOCK = 1 << 16  # number of names held in memory (and sorted by length) at a time
_NAMES_PER_CALL = 4096  # number of names per call to the encoder


@dataclass(frozen=True, slots=True)
class Encoded:
    """Result of `write_vectors`: name counts, and details of the approximate index."""

    encoded: int  # number of names that were encoded
    copied: int  # number of names whose vectors were kept or copied
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

    If this encoder's vectors are current and complete, nothing is done. The encoder's old vectors
    are copied for unchanged names, and removed at the end, so a stopped process loses nothing.
    Writers to a knowledge base wait for each other. After waiting, the names that are then in the
    folder are encoded, even if they differ from the names in `kb`.

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
            kb.attach({written.path: written.raw.copy()})
        return encoded
    try:
        with editing(kb.path, to=f"encode names with encoder {fingerprint}") as transaction:
            current = KnowledgeBase.open(kb.path)
            about: dict[str, Any] = {"fingerprint": fingerprint, "kb": current.fingerprint}
            about |= {"n": current.n_names, "dim": dim}
            return _write_locked(transaction, current, encode, about, progress or (lambda n: None))
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def _write_locked(
    transaction: Transaction,
    kb: KnowledgeBase,
    encode: EncodeNames,
    about: dict[str, Any],
    report: ReportProgress,
) -> Encoded:
    """Encode the names in a locked folder, and remove this encoder's old vectors."""
    old = stored_vectors(kb, about["fingerprint"])
    usable = _first_usable(old, dim=about["dim"])
    needs_ann = kb.n_names > ANN_NAMES and has_faiss()
    if usable and usable.is_current and (usable.about["ann"] is not None) == needs_ann:
        report(kb.n_names)
        transaction.remove(stored.path for stored in old if stored is not usable)
        return Encoded(0, kb.n_names, usable.about["ann"])
    with scratch_folder(transaction.folder / "encoding") as scratch:
        columns = _scratch_columns(scratch, n=kb.n_names, dim=about["dim"])
        n_encoded = _fill(columns, kb, usable, encode, report)
        vectors = vectors_of(columns)
        ann = write_index(kb.names, vectors, encode, scratch / "ann")
        if ann is not None:
            columns["ann"] = map_file(scratch / "ann")
        path, checksums = new_home("vectors", about["fingerprint"]), checksums_of(columns)
        about |= {"ann": ann, "checksums": checksums}
        transaction.put(path, serialized(columns, **about))
        del columns, vectors  # some systems cannot remove mapped files
    transaction.remove(stored.path for stored in old)
    return Encoded(n_encoded, kb.n_names - n_encoded, ann)


def _scratch_columns(folder: Path, **sizes: int) -> VectorColumns:
    """Memory-map scratch files as zeroed columns, because the columns may not fit in memory."""
    columns: VectorColumns = {}
    for name, declared in _SCHEMA.items():
        dtype, *axes = declared.split()
        shape = tuple((sizes | {"halves": 2})[axis] for axis in axes)
        # Write the zeros explicitly: with a sparse file, a full disk would kill the process later.
        (folder / name).write_bytes(np.zeros(shape, dtype).data)
        columns[name] = np.memmap(folder / name, dtype, mode="r+", shape=shape)
    return columns


def _first_usable(stored: list[StoredVectors], *, dim: int) -> StoredVectors | None:
    """Return the first stored vectors that are intact and have `dim` dimensions, or None."""
    for vectors in stored:
        with suppress(BioelError):
            if vectors.about["dim"] == dim:
                vectors.file.verify()
                return vectors
    return None


# -- Blocks of names ----------------------------------------------------------------------------


def name_digests(names: Sequence[str]) -> NDArray[np.uint64]:
    """Return 128-bit digests that identify names in stored vectors. Shape (n, 2)."""
    digests = (blake2b(name.encode("utf8"), digest_size=16).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(names), 2)


def _fill(
    columns: VectorColumns,
    kb: KnowledgeBase,
    usable: StoredVectors | None,
    encode: EncodeNames,
    report: ReportProgress,
) -> int:
    """Fill the columns block by block, copying the vectors of unchanged names.

    RETURNS (int): Number of names that were encoded.
    """
    n_encoded = 0
    if usable:
        known, known_digests = usable.vectors, usable.columns["digests"]
        by_first_half = SortedKeys.from_keys(known_digests[:, 0])
    for first in range(0, kb.n_names, _NAMES_PER_BLOCK):
        rows = np.arange(first, min(first + _NAMES_PER_BLOCK, kb.n_names))
        names = normalize_names(kb.names.take(rows))
        digests = columns["digests"][rows] = name_digests(names)
        old_rows = np.full(len(names), -1)
        if usable:
            old_rows = by_first_half.search(digests[:, 0])
            # If several digests share their first half, only one of them is found; the other
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
        n_encoded += len(new)
    return n_encoded


def _put(
    columns: VectorColumns, rows: IntArray, vectors: QuantizedVectors, taken: IntArray | slice
) -> None:
    for part in ("codes", "fine", "scales"):
        columns[part][rows] = getattr(vectors, part)[taken]


def _encode_unit(encode: EncodeNames, names: list[str], *, dim: int) -> FloatArray:
    """Encode names and normalise the vectors to unit length. RAISES BioelError: [B035]."""
    vectors = np.asarray(encode(names), dtype=np.float32)
    expected = len(names), dim
    if vectors.shape != expected or not np.isfinite(vectors).all():
        has_other_shape = vectors.shape != expected
        found = f"numbers of shape {vectors.shape}" if has_other_shape else "NaN or infinity"
        ends = {"first": names[0], "last": names[-1]}
        raise BioelError(Errors.B035.format(found=found, expected=expected, **ends))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)
