"""The vectors of a knowledge base, of each encoder, in whatever state they are."""

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

# What a description has, beside "ann" (None or the rest) and "text", its own checksum; an earlier
# version's names the generation of its files.
_TYPES = {"fingerprint": str, "kb": str, "n": int, "dim": int, "bits": int}
_TYPES |= {"checksums": dict}
_ANN_TYPES = {"kind": str, "bytes": int, "steps": list, "queries": int}
_ANN_TYPES |= {"recall@1": float, "recall@10": float}
_KEYS = (*_TYPES, "ann")


def stored_vectors(kb: KnowledgeBase, fingerprint: str | None = None) -> list[StoredVectors]:
    """The vectors of an encoder, those of the names that the knowledge base has now first.

    fingerprint (str | None): Of the encoder; None: of all encoders.
    """
    files = kb.files()
    found = [StoredVectors(kb, name, files) for name in set_names(files)]
    if fingerprint is not None:
        found = [stored for stored in found if stored.is_of(fingerprint)]
    return sorted(found, key=lambda stored: (stored.is_current, stored.age), reverse=True)


class StoredVectors:
    """What one description of vectors says, and the files that belong to it.

    kb (KnowledgeBase): The knowledge base that they are with.
    name (str): Theirs, see `kb.columns.layout`.
    files (Mapping[str, RawFile]): Those of the knowledge base.
    """

    def __init__(self, kb: KnowledgeBase, name: str, files: Mapping[str, RawFile]) -> None:
        self.name = name
        self._kb = kb
        self._files = files

    @cached_property
    def about(self) -> dict[str, Any]:
        """The description.

        RAISES BioelError: [B030] it is unreadable, [B180] the vectors are an earlier version's.
        """
        where, file = self._kb.where, self.file(ABOUT_FILE)
        text = self._files[file].tobytes()
        about = read_json(text, where=where, file=file)
        if "dim" in about and about.get("bits") != BITS:
            raise BioelError(Errors.B180.format(path=where))
        if wrong := _wrong(about):
            message = f"unexpected {', '.join(wrong)}"
            raise BioelError(Errors.B030.format(path=where, file=file, error=message))
        if "text" in about:  # those of an earlier version have none
            check_seal(text, about["text"], where=where, file=file)
        return {key: about[key] for key in _KEYS}

    @property
    def encoder(self) -> str:
        """The fingerprint of the encoder that made them."""
        return encoder_of(self.name)

    def is_of(self, fingerprint: str) -> bool:
        """Whether this encoder made them, or nobody can say which."""
        return self.encoder in (fingerprint, UNKNOWN_ENCODER)

    @property
    def state(self) -> str | None:
        """Fingerprint of the knowledge base when it was encoded; None if that is unreadable."""
        with suppress(BioelError):
            return str(self.about["kb"])
        return None

    @property
    def is_current(self) -> bool:
        """Whether they are of the names that the knowledge base has now."""
        return self.state == self._kb.fingerprint

    @property
    def age(self) -> str:
        """Higher for newer ones, in the order of the alphabet."""
        return self.name.rpartition(".")[2]

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(raw.size for raw in files_of_set(self._files, self.name).values())

    def file(self, part: str) -> str:
        """Name of a column's file, or of the approximate index "ann"."""
        return set_file(self.name, part)

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
        """The vectors, with their approximate index if they have one; raises [B033]."""
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

        RAISES BioelError: [B024] naming the first file that differs, [B033] when one is missing.
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
    """Keys of a description whose values cannot be right."""
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
    """Whether these are numbers of lists with a cosine each; see `kb.vectors.ann`."""
    return bool(steps) and all(
        isinstance(step, list)
        and [type(n) in (int, float) for n in step] == [True, True]
        and type(step[0]) is int
        and step[0] > 0
        for step in steps
    )
