"""Stored vectors of a knowledge base: of all encoders, current, outdated or damaged."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.arrays import RawFile
from spacy_bioel.kb.columns.files import check_contents, check_seal, read_array, read_json
from spacy_bioel.kb.columns.layout import ABOUT_FILE, encoder_of, homes_of
from spacy_bioel.kb.columns.schema import HEAD_COLUMNS, VECTOR_COLUMNS
from spacy_bioel.kb.columns.store import KnowledgeBase, open_kb
from spacy_bioel.kb.vectors.index import BITS, Heads, QuantizedVectors

Columns = dict[str, NDArray[Any]]

# Of a description, beside "text", its own checksum. "ann": None, or what `ann.write_index` returns.
_KEYS = ("fingerprint", "kb", "n", "dim", "bits", "checksums", "ann")


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
        self.encoder = encoder_of(name)
        self.n_bytes = sum(raw.size for raw in files.values())

    @cached_property
    def about(self) -> dict[str, Any]:
        """Description of the vectors.

        RAISES BioelError: [B030] unreadable, [B210] edited, [B180] vectors of an earlier version.
        """
        where, file = self._kb.where, self._path(ABOUT_FILE)
        text = self.files[ABOUT_FILE].tobytes()
        about = read_json(text, where=where, file=file)
        if "dim" in about and about.get("bits") != BITS:
            raise BioelError(Errors.B180.format(path=where))
        check_seal(text, about.get("text"), where=where, file=file)
        return {"heads": 0} | {key: about[key] for key in (*_KEYS, *({"heads"} & about.keys()))}

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
        self._check_parts([*columns], if_small=True)
        return columns

    @property
    def vectors(self) -> QuantizedVectors:
        """Vectors, with their heads or their approximate index if they have them.

        RAISES BioelError: Errors of `about` and `columns`, also for heads and index.
        """
        vectors = vectors_of(self.columns)
        if width := self.about["heads"]:
            shapes = (len(vectors), width), (vectors.shape[1], width)
            vectors.heads = Heads(*map(self._column, HEAD_COLUMNS, shapes))
        if ann := self.about["ann"]:
            expected = f"{ann['bytes']} bytes"
            vectors.ann = self._raw("ann", expected)
            if vectors.ann.size != ann["bytes"]:
                raise self._bad("ann", expected, f"{vectors.ann.size} bytes")
            vectors.ann_steps = ann["steps"]
            vectors.ann_checksum = self.about["checksums"]["ann"]
        return vectors

    def verify(self) -> None:
        """Read all files and compare checksums.

        RAISES BioelError: [B024] with the first file that differs, [B033] missing file.
        """
        self._check_parts([*self.about["checksums"]])

    def _check_parts(self, parts: list[str], *, if_small: bool = False) -> None:
        for part in parts:
            expected = self.about["checksums"][part]
            file = part if part == "ann" else f"{part}.npy"
            raw, path = self._raw(file, f"checksum {expected}"), self._path(file)
            check_contents(raw, expected, where=self._kb.where, file=path, if_small=if_small)

    def _column(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        kind = (VECTOR_COLUMNS | HEAD_COLUMNS)[name]
        file, expected = f"{name}.npy", f"{kind} of shape {shape}"
        raw = self._raw(file, expected)
        try:
            column = read_array(raw)
        except ValueError as error:
            raise self._bad(file, expected, f"{raw.size} bytes ({error})") from None
        found = f"{column.dtype.name} of shape {column.shape}"
        if found != expected:
            raise self._bad(file, expected, found)
        return column

    def _raw(self, file: str, expected: str) -> RawFile:
        if (raw := self.files.get(file)) is None:
            raise self._bad(file, expected, "no file")
        return raw

    def _path(self, file: str) -> str:
        return f"vectors/{self.name}/{file}"

    def _bad(self, file: str, expected: str, found: str) -> BioelError:
        where, file = self._kb.where, self._path(file)
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
        foreign vectors, [B034] outdated vectors only, [B030] unreadable description, [B180]
        vectors of an earlier version.
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


def verify_vectors(kb: KnowledgeBase) -> None:
    """Read the vectors and indexes of all encoders, and compare checksums.

    RAISES BioelError: [B024] when a checksum differs; errors of `open_vectors`.
    """
    for stored in stored_vectors(kb):
        stored.verify()
