"""Encoding of all names of a knowledge base to unit vectors, stored in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import UNSEALED, checksum, sealed_json
from spacy_bioel.kb.columns.files import npy_bytes
from spacy_bioel.kb.columns.layout import ABOUT_FILE, set_file, set_name
from spacy_bioel.kb.columns.store import KnowledgeBase, open_kb
from spacy_bioel.kb.transaction import PATIENCE, Transaction, editing
from spacy_bioel.kb.vectors.ann import ANN_NAMES, has_faiss, write_index
from spacy_bioel.kb.vectors.encoding import (
    Columns,
    Encode,
    KnownVectors,
    Unfinished,
    fill_block,
    new_columns,
)
from spacy_bioel.kb.vectors.quantized import BITS, QuantizedVectors
from spacy_bioel.kb.vectors.stored import StoredVectors, stored_vectors
from spacy_bioel.text.normalize import normalize_name

_BLOCK = 1 << 16  # names per block; a stopped process loses at most one block


@dataclass(frozen=True, slots=True)
class Encoded:
    """Result of `write_vectors`.

    encoded (int): Names that were encoded.
    copied (int): Names whose vectors were kept, copied, or left by a stopped process.
    ann (dict | None): Approximate index, as `ann.write_index` returns it; None: there is none.
    """

    encoded: int
    copied: int
    ann: dict[str, Any] | None


def write_vectors(
    kb: KnowledgeBase,
    encode: Encode,
    *,
    fingerprint: str,
    dim: int,
    batch_size: int = 4096,
    wait: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode all names and store the vectors with the knowledge base, beside other encoders'.

    Vectors of this encoder for an earlier state of the knowledge base are copied and then removed;
    if they are current and complete, nothing is done. If the process is stopped, the earlier
    vectors stay, and the next process continues where it stopped. Writers of a knowledge base wait
    for each other. The names in the folder after waiting are encoded, which may differ from the
    names of `kb`.

    kb (KnowledgeBase): Gets the vectors, in its folder, or attached if it is in memory.
    encode (Encode): From n normalised names to vectors of shape (n, dim).
    fingerprint (str): Fingerprint of the encoder; `open_vectors` compares it.
    dim (int): Width of the vectors.
    batch_size (int): Names per call of `encode`.
    wait (bool): Wait up to `kb.transaction.PATIENCE` seconds for another writer; False: raise
        [B212] at once.
    progress (Callable | None): Called with the number of finished names, each time there are more.
    RETURNS (Encoded): Number of encoded and copied names, and the approximate index.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape, [B182] when
        the disk is full or the folder is not writable, [B212] when another writer does not finish
        in time.
    """
    about: dict[str, Any] = {"fingerprint": fingerprint, "kb": kb.fingerprint}
    about |= {"n": kb.n_names, "dim": dim, "bits": BITS}
    report = progress or (lambda n: None)
    fill = partial(fill_block, encode=encode, batch_size=batch_size, report=report)
    if kb.path is None:
        columns = new_columns(kb.n_names, dim)
        known = _known_vectors(_usable(stored_vectors(kb, fingerprint), dim=dim))
        n_encoded = sum(fill(columns, rows, names, known) for rows, names in _blocks(kb))
        _attach(kb, about, columns)
        return Encoded(n_encoded, kb.n_names - n_encoded, None)
    to = f"encode names with encoder {fingerprint}"
    try:
        with editing(kb.path, to=to, patience=PATIENCE if wait else 0) as transaction:
            now = KnowledgeBase.open(kb.path)
            about |= {"kb": now.fingerprint, "n": now.n_names}
            return _write(transaction, now, about, fill, encode, report)
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def _write(
    transaction: Transaction,
    kb: KnowledgeBase,
    about: dict[str, Any],
    fill: Callable[..., int],
    encode: Encode,
    report: Callable[[int], None],
) -> Encoded:
    """Encode the names of a locked folder."""
    before = stored_vectors(kb, about["fingerprint"])
    usable = _usable(before, dim=about["dim"])
    if usable is not None and usable.is_current and _is_indexed(usable):
        report(kb.n_names)
        _remove_others(transaction, before, keep=usable.name)
        return Encoded(0, kb.n_names, usable.about["ann"])
    unfinished = Unfinished(transaction.folder / ".encoding", about)
    if unfinished.done:
        report(unfinished.done)
    n_encoded = _finish(kb, unfinished, fill, _known_vectors(usable))
    ann = write_index(kb.names, unfinished.vectors, encode, unfinished.file("ann"))
    name = unfinished.put_in_place(about | {"ann": ann}, transaction)
    _remove_others(transaction, before, keep=name)
    return Encoded(n_encoded, kb.n_names - n_encoded, ann)


def _is_indexed(stored: StoredVectors) -> bool:
    """Whether there is an approximate index exactly if one is needed."""
    wanted = stored.about["n"] > ANN_NAMES and has_faiss()
    return wanted == (stored.about["ann"] is not None)


def _remove_others(transaction: Transaction, stored: list[StoredVectors], *, keep: str) -> None:
    """Remove outdated vectors of an encoder, and unreadable ones."""
    transaction.remove_vectors(vectors.name for vectors in stored if vectors.name != keep)


def _finish(
    kb: KnowledgeBase,
    unfinished: Unfinished,
    fill: Callable[..., int],
    known: KnownVectors | None,
) -> int:
    """Fill the remaining blocks. RETURNS (int): Number of encoded names."""
    n_encoded = 0
    try:
        for rows, names in _blocks(kb, start=unfinished.done):
            n_encoded += fill(unfinished.columns, rows, names, known)
            unfinished.finish_rows(rows.stop)
    finally:
        if not unfinished.done:
            unfinished.discard()  # no finished block to continue from
    return n_encoded


def _blocks(kb: KnowledgeBase, *, start: int = 0) -> Iterator[tuple[range, list[str]]]:
    """Rows and normalised names of each block."""
    for first in range(start, kb.n_names, _BLOCK):
        rows = range(first, min(first + _BLOCK, kb.n_names))
        yield rows, [normalize_name(name) for name in kb.names.take(rows)]


def _usable(stored: list[StoredVectors], *, dim: int) -> StoredVectors | None:
    """The first vectors that are complete and of this width."""
    for one in stored:
        with suppress(BioelError):
            if one.about["dim"] == dim:
                one.verify()
                return one
    return None


def _known_vectors(stored: StoredVectors | None) -> KnownVectors | None:
    if stored is None:
        return None
    return KnownVectors(stored.vectors, stored.columns["digests"])


def _attach(kb: KnowledgeBase, about: dict[str, Any], columns: Columns) -> None:
    """Attach vectors to a knowledge base in memory."""
    name = set_name(about["fingerprint"])
    files = {part: npy_bytes(array) for part, array in columns.items()}
    checksums = {part: checksum(raw) for part, raw in files.items()}
    about = about | {"ann": None, "checksums": checksums, "text": UNSEALED}
    files[ABOUT_FILE] = np.frombuffer(sealed_json(about), dtype=np.uint8)
    kb.attach({set_file(name, part): raw for part, raw in files.items()})


def has_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> bool:
    """Whether a knowledge base has vectors, current or outdated.

    fingerprint (str | None): Fingerprint of the encoder; None: any encoder.
    """
    return bool(stored_vectors(kb, fingerprint))


def are_outdated(kb: KnowledgeBase, fingerprint: str | None = None) -> bool:
    """Whether there are vectors, and all are of earlier states of the knowledge base.

    Vectors with an unreadable description do not count as outdated.

    fingerprint (str | None): Fingerprint of the encoder; None: any encoder.
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
    """Map the vectors of the names of a knowledge base.

    kb (KnowledgeBase | str | Path): Knowledge base, or its folder.
    fingerprint (str | None): Fingerprint of the encoder of the queries; None: any encoder.
    RETURNS (QuantizedVectors): Read-only unit vectors. Shape (n_names, dim).
    RAISES BioelError: [B031] vectors of other encoders only, [B032] no vectors, [B033] truncated or
        foreign vectors, [B034] outdated vectors only, [B030] unreadable description, [B180]
        vectors of an earlier version.
    """
    kb = open_kb(kb)
    stored = stored_vectors(kb)  # read once, since writers may change it meanwhile
    found = [one for one in stored if fingerprint is None or one.is_of(fingerprint)]
    if not found:
        others = sorted({one.encoder for one in stored})
        if not others:
            raise BioelError(Errors.B032.format(path=kb.where))
        message = Errors.B031.format(path=kb.where, found=", ".join(others), expected=fingerprint)
        raise BioelError(message)
    best = found[0]
    if best.about["kb"] != kb.fingerprint:
        of = best.about["kb"]
        raise BioelError(Errors.B034.format(path=kb.where, found=of, expected=kb.fingerprint))
    return best.vectors


def verify_vectors(kb: KnowledgeBase) -> None:
    """Read the vectors and indexes of all encoders, and compare checksums.

    RAISES BioelError: [B024] when a checksum differs; errors of `open_vectors`.
    """
    for stored in stored_vectors(kb):
        stored.verify()
