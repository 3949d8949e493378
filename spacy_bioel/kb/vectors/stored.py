"""Stored vectors of a knowledge base: of all encoders, current, outdated or damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import (
    RawFile,
    check_contents,
    check_seal,
    check_small,
    mistyped,
    read_json,
)
from spacy_bioel.kb.columns.files import read_array
from spacy_bioel.kb.columns.layout import (
    ABOUT_FILE,
    UNKNOWN_ENCODER,
    encoder_of,
    files_of_set,
    set_file,
    set_names,
)
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.encoding import Columns, column_shapes, vectors_of
from spacy_bioel.kb.vectors.quantized import BITS, QuantizedVectors

# Types of the values of a description. It also has "ann" (None, or the values below), "text" (its
# own checksum) and, in an earlier version, "generation".
_TYPES = {"fingerprint": str, "kb": str, "n": int, "dim": int, "bits": int}
_TYPES |= {"checksums": dict}
_ANN_TYPES = {"kind": str, "bytes": int, "steps": list, "queries": int}
_ANN_TYPES |= {"recall@1": float, "recall@10": float}
_KEYS = (*_TYPES, "ann")


def stored_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> list[StoredVectors]:
    """Vectors of a knowledge base, current ones first, then newer before older ones.

    fingerprint (str | None): Fingerprint of the encoder; None: all encoders.
    """
    files = kb.files()
    found = [StoredVectors(kb, name, files) for name in set_names(files)]
    if fingerprint is not None:
        found = [stored for stored in found if stored.is_of(fingerprint)]
    return sorted(found, key=lambda stored: (stored.is_current, stored.age), reverse=True)


class StoredVectors:
    """Vectors of one encoder: their description and their files.

    kb (KnowledgeBase): Knowledge base with the vectors.
    name (str): Name of the vectors, see `kb.columns.layout.set_name`.
    files (Mapping[str, RawFile]): Files of the knowledge base.
    """

    def __init__(self, kb: KnowledgeBase, name: str, files: Mapping[str, RawFile]) -> None:
        self.name = name
        self._kb = kb
        self._files = files

    @cached_property
    def about(self) -> dict[str, Any]:
        """Description of the vectors.

        RAISES BioelError: [B030] unreadable, [B210] edited, [B180] vectors of an earlier version.
        """
        where, file = self._kb.where, self.file(ABOUT_FILE)
        text = self._files[file].tobytes()
        about = read_json(text, where=where, file=file)
        if "dim" in about and about.get("bits") != BITS:
            raise BioelError(Errors.B180.format(path=where))
        if wrong := _wrong(about):
            message = f"unexpected {', '.join(wrong)}"
            raise BioelError(Errors.B030.format(path=where, file=file, error=message))
        if "text" in about:  # earlier versions wrote no checksum
            check_seal(text, about["text"], where=where, file=file)
        return {key: about[key] for key in _KEYS}

    @property
    def encoder(self) -> str:
        """Fingerprint of the encoder that made the vectors."""
        return encoder_of(self.name)

    def is_of(self, fingerprint: str) -> bool:
        """Whether this encoder made the vectors, or their encoder is unknown."""
        return self.encoder in (fingerprint, UNKNOWN_ENCODER)

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

    @property
    def age(self) -> str:
        """Time of writing; newer ones sort after older ones."""
        return self.name.rpartition(".")[2]

    @property
    def files(self) -> dict[str, RawFile]:
        """All files, by the names that they have in their own folder."""
        return files_of_set(self._files, self.name)

    @property
    def n_bytes(self) -> int:
        """Total size of the files."""
        return sum(raw.size for raw in self.files.values())

    def file(self, part: str) -> str:
        """Name of a column's file, or of the approximate index "ann"."""
        return set_file(self.name, part)

    @cached_property
    def columns(self) -> Columns:
        """Mapped columns; see `schema.VECTOR_COLUMNS`.

        RAISES BioelError: [B033] missing, truncated or foreign column, or a scale that is negative
            or not finite; [B024] damaged small column.
        """
        shapes = column_shapes(self.about["n"], self.about["dim"])
        columns = {name: self._column(name, shape) for name, shape in shapes.items()}
        scales = columns["scales"]
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise self._bad("scales", "numbers from 0", "others")
        for name in columns:
            self._check(name, check_small)
        return columns

    @property
    def vectors(self) -> QuantizedVectors:
        """Vectors, with their approximate index if they have one.

        RAISES BioelError: Errors of `about` and `columns`, also for the index.
        """
        columns, ann = self.columns, self.about["ann"]
        if not ann:
            return vectors_of(columns)
        expected = ann["bytes"]
        index = self._raw("ann", f"{expected} bytes")
        if index.size != expected:
            raise self._bad("ann", f"{expected} bytes", f"{index.size} bytes")
        checksum = self.about["checksums"]["ann"]
        return vectors_of(columns, ann=index, ann_steps=ann["steps"], ann_checksum=checksum)

    def verify(self) -> None:
        """Read all files and compare checksums.

        RAISES BioelError: [B024] with the first file that differs, [B033] missing file.
        """
        for part in self.about["checksums"]:
            self._check(part, check_contents)

    def _check(self, part: str, check: Callable[..., None]) -> None:
        expected = self.about["checksums"][part]
        raw = self._raw(part, f"checksum {expected}")
        check(raw, expected, where=self._kb.where, file=self.file(part))

    def _column(self, name: str, shape: tuple[int, ...]) -> Any:
        expected = f"{VECTOR_COLUMNS[name]} of shape {shape}"
        raw = self._raw(name, expected)
        try:
            column = read_array(raw)
        except ValueError as error:
            raise self._bad(name, expected, f"{raw.size} bytes ({error})") from None
        found = f"{column.dtype.name} of shape {column.shape}"
        if found != expected:
            raise self._bad(name, expected, found)
        return column

    def _raw(self, part: str, expected: str) -> RawFile:
        if (raw := self._files.get(self.file(part))) is None:
            raise self._bad(part, expected, "no file")
        return raw

    def _bad(self, part: str, expected: str, found: str) -> BioelError:
        name = self.file(part)
        return BioelError(
            Errors.B033.format(path=self._kb.where, file=name, expected=expected, found=found)
        )


def _wrong(about: Mapping[str, Any]) -> list[str]:
    """Keys of a description with missing, unknown or invalid values."""
    ann, parts = about.get("ann"), {*VECTOR_COLUMNS}
    wrong = [*mistyped(about, _TYPES), *sorted(about.keys() - {*_KEYS, "text", "generation"})]
    if ann is not None:
        wrong += mistyped(ann, _ANN_TYPES) if isinstance(ann, dict) else ["ann"]
        parts.add("ann")
    if not wrong and about["checksums"].keys() != parts:
        wrong.append("checksums")
    if not wrong and ann is not None and not _are_steps(ann["steps"]):
        wrong.append("steps")
    return wrong


def _are_steps(steps: list[Any]) -> bool:
    """Whether steps are numbers of lists with a cosine each; see `kb.vectors.ann`."""
    return bool(steps) and all(
        isinstance(step, list)
        and [type(n) in (int, float) for n in step] == [True, True]
        and type(step[0]) is int
        and step[0] > 0
        for step in steps
    )
