"""What all readers have in common: ids as CURIEs, offsets, and records that are skipped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType

from spacy_bioel.errors import BioelError, Errors

# From spellings of a vocabulary in sources to prefixes of this package. CTD has "DO:DOID:0001816".
_SPELLINGS = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": "", "cellosaurus": ""}
_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")


def curie(raw: str, prefix: str = "") -> str:
    """Convert one id to a CURIE.

    raw (str): Id in the source, e.g. "D003920", "MESH:D003920", "UMLS:C0011849".
    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH". With "MESH", six digits are an
        OMIM number: the disease corpora mix the two, and no MeSH id is a plain number.
    RETURNS (str): CURIE, e.g. "MESH:D003920"; the bare CUI for UMLS.
    """
    raw = raw.strip()
    if ":" not in raw:
        if not prefix or not raw:
            return raw
        if prefix.lower() == "mesh" and _OMIM_NUMBER.fullmatch(raw):
            prefix = "OMIM"
        raw = f"{prefix}:{raw}"
    vocabulary, local = raw.split(":", 1)
    return _SPELLINGS.get(vocabulary.lower(), f"{vocabulary}:") + local.strip()


def split_ids(raw: str, prefix: str = "") -> tuple[str, ...]:
    """Split a field of ids at "|", "+", ";" and ",".

    raw (str): Field, e.g. "D000001|D000002"; "-1", "-", "NIL" and "CUI-less" mean no id.
    prefix (str): Vocabulary of ids without a prefix.
    RETURNS (tuple[str, ...]): Distinct CURIEs, in the order of the field.
    """
    parts = (part.strip() for part in _SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: list[str]) -> tuple[str, ...]:
    """Strip names, and drop empty and repeated ones."""
    stripped = (name.strip() for name in names)
    return tuple(dict.fromkeys(name for name in stripped if name))


def check_offsets(text: str, start: int, end: int, *, where: str) -> None:
    """Refuse offsets that are empty or outside the text.

    where (str): File and line (or annotation) for the message.
    RAISES BioelError: [B105].
    """
    if not 0 <= start < end <= len(text):
        raise BioelError(Errors.B105.format(where=where, start=start, end=end, length=len(text)))


def check_surface(found: str, expected: str, *, start: int, end: int, where: str) -> None:
    """Refuse a mention whose words differ from the text by more than white space.

    found (str): Text at the offsets.
    expected (str): Words in the annotation.
    RAISES BioelError: [B106].
    """
    if found != expected and "".join(found.split()) != "".join(expected.split()):
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=found, expected=expected)
        )


Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was skipped.

    line (int): From 1; 0 where the format has no lines.
    message (str): With its code.
    """

    path: str
    line: int
    message: str

    @property
    def code(self) -> str:
        return self.message[1:].partition("]")[0]


@dataclass(slots=True)
class Skipped:
    """Bad records so far. Files that are read twice have theirs once.

    note (Callable): Is told of each.
    first (BadRecord | None): The first of them.
    n (int): How many.
    kept (int): Records that were not skipped, as far as the caller counts them.
    """

    note: Callable[[BadRecord], None]
    first: BadRecord | None = None
    n: int = 0
    kept: int = 0
    _place: tuple[str, int] = ("", 0)
    _seen: set[int] = field(default_factory=set)  # hashes: there may be millions

    def add(self, error: BioelError) -> None:
        record = BadRecord(*self._place, str(error))
        if hash(record) not in self._seen:
            self._seen.add(hash(record))
            self.first = self.first or record
            self.n += 1
            self.note(record)


_SKIPPED: ContextVar[Skipped | None] = ContextVar("skipped", default=None)


@contextmanager
def skipping_bad(note: Callable[[BadRecord], None]) -> Iterator[Skipped]:
    """Skip bad records inside this block, in all readers that are consumed there.

    note (Callable): Is told of each bad record.
    """
    skipped = Skipped(note)
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


def skipped_so_far() -> Skipped | None:
    """Bad records of the block; None outside `skipping_bad`."""
    return _SKIPPED.get()


def is_skipping() -> bool:
    return _SKIPPED.get() is not None


class one_record:
    """The reading of one record; inside `skipping_bad` its errors are noted and not raised.

    path, line: Its place; None: that of the record before, which another function reads on.
    """

    __slots__ = ("_place",)

    def __init__(self, path: Path | None = None, line: int = 0) -> None:
        self._place = None if path is None else (str(path), line)

    def __enter__(self) -> None:
        if self._place is not None and (skipped := _SKIPPED.get()) is not None:
            skipped._place = self._place

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        skipped = _SKIPPED.get() if isinstance(error, BioelError) else None
        if skipped is None:
            return False
        assert isinstance(error, BioelError)
        skipped.add(error)
        return True
