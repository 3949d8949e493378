"""The vector files of a knowledge base, in whatever state they are."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.files import RawFile, checksum, read_array
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS, VECTORS_FILE, vector_file
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.encoding import Columns, column_shapes, vectors_of
from spacy_bioel.kb.vectors.quantized import BITS, QuantizedVectors

_KEYS = ("fingerprint", "kb", "n", "dim", "bits", "ann", "generation", "checksums")


class StoredVectors:
    """What vectors.json says, and the files that it names.

    RAISES BioelError: [B030] an unreadable vectors.json, [B032] no vectors, [B180] an earlier
        version's.
    """

    def __init__(self, kb: KnowledgeBase) -> None:
        self._where, self._folder = kb.where, kb.path
        self._files = kb.files()
        if VECTORS_FILE not in self._files:
            raise BioelError(Errors.B032.format(path=kb.where))
        try:
            about = dict(json.loads(self._files[VECTORS_FILE].tobytes()))
            is_old = "dim" in about and about.get("bits") != BITS
            self.about: dict[str, Any] = about if is_old else {key: about[key] for key in _KEYS}
        except (ValueError, KeyError, TypeError) as error:
            message = Errors.B030.format(path=kb.where, file=VECTORS_FILE, error=error)
            raise BioelError(message) from None
        if is_old:
            raise BioelError(Errors.B180.format(path=kb.where))

    def file(self, part: str) -> str:
        """Name of a column's file, or of the approximate index "ann"."""
        return vector_file(self.about["generation"], part)

    @cached_property
    def columns(self) -> Columns:
        """The columns, mapped; see `schema.VECTOR_COLUMNS`.

        RAISES BioelError: [B033] when one is missing, cut or foreign, or is no numbers.
        """
        shapes = column_shapes(self.about["n"], self.about["dim"])
        columns = {name: self._column(name, shape) for name, shape in shapes.items()}
        scales = columns["scales"]
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise self._bad("scales", "numbers from 0", "others")
        return columns

    @property
    def vectors(self) -> QuantizedVectors:
        """The vectors, with their approximate index if it is in a folder; raises [B033]."""
        columns, ann = self.columns, self.about["ann"]
        if ann and self._folder:
            expected = ann["bytes"]
            found = self._raw("ann", f"{expected} bytes").size
            if found != expected:
                raise self._bad("ann", f"{expected} bytes", f"{found} bytes")
            file = self._folder / self.file("ann")
            return vectors_of(columns, ann_file=file, ann_steps=ann["steps"])
        return vectors_of(columns)

    def verify(self) -> None:
        """Read all files and compare checksums.

        RAISES BioelError: [B024] naming the first file that differs, [B033] when one is missing.
        """
        for part, expected in self.about["checksums"].items():
            found = checksum(self._raw(part, f"checksum {expected}"))
            if found != expected:
                raise BioelError(
                    Errors.B024.format(
                        path=self._where, file=self.file(part), expected=expected, found=found
                    )
                )

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
            Errors.B033.format(path=self._where, file=name, expected=expected, found=found)
        )
