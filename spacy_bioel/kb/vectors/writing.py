"""One unit vector for each name of a knowledge base, as columns in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import UNSEALED, checksum, sealed_json
from spacy_bioel.kb.columns.files import npy_bytes
from spacy_bioel.kb.columns.schema import VECTORS_FILE, vector_file
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.lock import exclusive
from spacy_bioel.kb.vectors.ann import write_index
from spacy_bioel.kb.vectors.encoding import (
    Columns,
    Encode,
    KnownVectors,
    fill_block,
    new_columns,
)
from spacy_bioel.kb.vectors.quantized import BITS, QuantizedVectors
from spacy_bioel.kb.vectors.stored import StoredVectors
from spacy_bioel.kb.vectors.unfinished import Unfinished
from spacy_bioel.text.normalize import normalize_name

_BLOCK = 1 << 16  # names after which a stopped process loses nothing


@dataclass(frozen=True, slots=True)
class Encoded:
    """What `write_vectors` did.

    encoded (int): Names that were encoded.
    copied (int): Names whose vectors were there, in place or left by a process that was stopped.
    ann (dict | None): The approximate index, see `ann.write_index`; None: there is none.
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
    wait: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode all names and keep the vectors with the knowledge base, in place of any before.

    Vectors that this encoder has made for an earlier state of the knowledge base are copied. A
    process that is stopped leaves the vectors from before as they were, and its own to the next.

    kb (KnowledgeBase): Its folder gets the vectors; in memory it carries them.
    encode (Encode): From n names, as `normalize_name` returns them, to vectors of shape (n, dim).
    fingerprint (str): Of the encoder; `open_vectors` compares it.
    batch_size (int): Names in one call of `encode`.
    wait (bool): For another process that is encoding this knowledge base.
    progress (Callable | None): Called with the number of names each time that some are done.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape, [B181] when
        another process is encoding, [B182] when the disk is full or the folder cannot be written.
    """
    about: dict[str, Any] = {"fingerprint": fingerprint, "kb": kb.fingerprint}
    about |= {"n": kb.n_names, "dim": dim, "bits": BITS}
    fill = partial(fill_block, encode=encode, batch_size=batch_size, progress=progress)
    if kb.path is None:
        columns, known = new_columns(kb.n_names, dim), _known_vectors(kb, about)
        n_encoded = sum(fill(columns, rows, names, known) for rows, names in _blocks(kb))
        _attach(kb, about, columns)
        return Encoded(n_encoded, kb.n_names - n_encoded, None)
    try:
        with exclusive(kb.path / ".encoding.lock", wait=wait):
            unfinished = Unfinished(kb.path / ".encoding", about)
            if unfinished.done and progress is not None:
                progress(unfinished.done)
            n_encoded = _finish(kb, unfinished, fill, _known_vectors(kb, about))
            ann = write_index(kb.names, unfinished.vectors, encode, unfinished.file("ann"))
            unfinished.put_in_place(about | {"ann": ann}, out=kb.path)
    except BlockingIOError:
        raise BioelError(Errors.B181.format(path=kb.where)) from None
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error
    return Encoded(n_encoded, kb.n_names - n_encoded, ann)


def _finish(
    kb: KnowledgeBase,
    unfinished: Unfinished,
    fill: Callable[..., int],
    known: KnownVectors | None,
) -> int:
    """Fill the blocks that are not filled yet; returns how many names were encoded."""
    n_encoded = 0
    try:
        for rows, names in _blocks(kb, start=unfinished.done):
            n_encoded += fill(unfinished.columns, rows, names, known)
            unfinished.finish_rows(rows.stop)
    finally:
        if not unfinished.done:
            unfinished.discard()  # nothing to go on with
    return n_encoded


def _blocks(kb: KnowledgeBase, *, start: int = 0) -> Iterator[tuple[range, list[str]]]:
    """Rows of names and the normalised names, block by block."""
    for first in range(start, kb.n_names, _BLOCK):
        rows = range(first, min(first + _BLOCK, kb.n_names))
        yield rows, [normalize_name(name) for name in kb.names.take(rows)]


def _known_vectors(kb: KnowledgeBase, about: dict[str, Any]) -> KnownVectors | None:
    """Vectors of this encoder that are there, whatever names they are of; None if damaged."""
    with suppress(BioelError):
        stored = StoredVectors(kb)
        if all(stored.about[key] == about[key] for key in ("fingerprint", "dim")):
            stored.verify()
            return KnownVectors(stored.vectors, stored.columns["digests"])
    return None


def _attach(kb: KnowledgeBase, about: dict[str, Any], columns: Columns) -> None:
    """Give vectors to a knowledge base in memory."""
    generation = uuid4().hex[:8]
    files = {vector_file(generation, name): npy_bytes(array) for name, array in columns.items()}
    checksums = {name: checksum(files[vector_file(generation, name)]) for name in columns}
    about = about | {"ann": None, "generation": generation, "checksums": checksums}
    described = np.frombuffer(sealed_json(about | {"text": UNSEALED}), dtype=np.uint8)
    kb.attach({**files, VECTORS_FILE: described})


def has_vectors(kb: KnowledgeBase) -> bool:
    """Whether names of this knowledge base were encoded, by whatever encoder."""
    return VECTORS_FILE in kb.files()


def encoded_state(kb: KnowledgeBase) -> str | None:
    """Fingerprint of the knowledge base when it was encoded; None without readable vectors."""
    with suppress(BioelError):
        return str(StoredVectors(kb).about["kb"])
    return None


def are_outdated(kb: KnowledgeBase) -> bool:
    """Whether the vectors are of what the knowledge base was before. Damaged ones are not."""
    return encoded_state(kb) not in (None, kb.fingerprint)


def is_encoded(kb: KnowledgeBase, *, fingerprint: str) -> bool:
    """Whether there are readable vectors of these names by this encoder."""
    with suppress(BioelError):
        about = StoredVectors(kb).about
        return bool(about["fingerprint"] == fingerprint and about["kb"] == kb.fingerprint)
    return False


def describe_vectors(kb: KnowledgeBase) -> dict[str, Any] | None:
    """What vectors.json says, and whether they are current; None without vectors.

    RAISES BioelError: As `open_vectors`, but for vectors of what the knowledge base was before.
    """
    if not has_vectors(kb):
        return None
    stored = StoredVectors(kb)
    is_current = stored.about["kb"] == kb.fingerprint
    return stored.about | {"n": len(stored.vectors), "current": is_current}


def open_vectors(kb: KnowledgeBase | str | Path, *, fingerprint: str | None) -> QuantizedVectors:
    """Map the vectors of a knowledge base.

    kb (KnowledgeBase | str | Path): The knowledge base, or its folder.
    fingerprint (str | None): Of the encoder that will embed the queries; None: any encoder.
    RETURNS (QuantizedVectors): Read-only unit vectors. Shape (n_names, dim).
    RAISES BioelError: [B031] another encoder's, [B032] no vectors, [B033] cut or foreign,
        [B034] another knowledge base's, [B030] an unreadable vectors.json, [B180] an earlier
        version's.
    """
    if not isinstance(kb, KnowledgeBase):
        kb = KnowledgeBase.open(kb)
    stored = StoredVectors(kb)
    found, of = stored.about["fingerprint"], stored.about["kb"]
    if fingerprint is not None and found != fingerprint:
        raise BioelError(Errors.B031.format(path=kb.where, found=found, expected=fingerprint))
    if of != kb.fingerprint:
        raise BioelError(Errors.B034.format(path=kb.where, found=of, expected=kb.fingerprint))
    return stored.vectors


def verify_vectors(kb: KnowledgeBase) -> None:
    """Read the vectors and their index, and compare checksums.

    RAISES BioelError: [B024] when one differs, and what `open_vectors` raises.
    """
    StoredVectors(kb).verify()
