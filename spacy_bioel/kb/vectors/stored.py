"""The vector files of a knowledge base, in whatever state they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS, VECTORS_FILE, vector_file
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.encoding import Columns, column_shapes, vectors_of
from spacy_bioel.kb.vectors.quantized import BITS, QuantizedVectors

# What vectors.json has, beside "ann" (None or the rest) and "text", its own checksum.
_TYPES = {"fingerprint": str, "kb": str, "n": int, "dim": int, "bits": int}
_TYPES |= {"generation": str, "checksums": dict}
_ANN_TYPES = {"kind": str, "bytes": int, "steps": list, "queries": int}
_ANN_TYPES |= {"recall@1": float, "recall@10": float}
_KEYS = (*_TYPES, "ann")


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
        text = self._files[VECTORS_FILE].tobytes()
        about = read_json(text, where=kb.where, file=VECTORS_FILE)
        if "dim" in about and about.get("bits") != BITS:
            raise BioelError(Errors.B180.format(path=kb.where))
        if wrong := _wrong(about):
            message = f"unexpected {', '.join(wrong)}"
            raise BioelError(Errors.B030.format(path=kb.where, file=VECTORS_FILE, error=message))
        if "text" in about:  # those of an earlier version have none
            check_seal(text, about["text"], where=kb.where, file=VECTORS_FILE)
        self.about: dict[str, Any] = {key: about[key] for key in _KEYS}

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
        for name in columns:
            self._check(name, check_small)
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
            expected = self.about["checksums"]["ann"]
            return vectors_of(columns, ann_file=file, ann_steps=ann["steps"], ann_checksum=expected)
        return vectors_of(columns)

    def verify(self) -> None:
        """Read all files and compare checksums.

        RAISES BioelError: [B024] naming the first file that differs, [B033] when one is missing.
        """
        for part in self.about["checksums"]:
            self._check(part, check_contents)

    def _check(self, part: str, check: Callable[..., None]) -> None:
        expected = self.about["checksums"][part]
        raw = self._raw(part, f"checksum {expected}")
        check(raw, expected, where=self._where, file=self.file(part))

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


def _wrong(about: Mapping[str, Any]) -> list[str]:
    """What in vectors.json cannot be there."""
    ann, parts = about.get("ann"), {*VECTOR_COLUMNS}
    wrong = [*mistyped(about, _TYPES), *sorted(about.keys() - {*_KEYS, "text"})]
    if ann is not None:
        wrong += mistyped(ann, _ANN_TYPES) if isinstance(ann, dict) else ["ann"]
        parts.add("ann")
    if not wrong and (about["checksums"].keys() != parts or not about["generation"].isalnum()):
        wrong.append("checksums or generation")
    if not wrong and ann is not None and not _are_steps(ann["steps"]):
        wrong.append("steps")
    return wrong


def _are_steps(steps: list[Any]) -> bool:
    """Whether these are numbers of lists with a cosine each; see `kb.vectors.ann`."""
    return bool(steps) and all(
        isinstance(step, list)
        and [type(n) in (int, float) for n in step] == [True, True]
        and type(step[0]) is int
        and step[0] > 0
        for step in steps
    )
