"""What all readers have in common: places, ids as CURIEs, offsets, and records that are skipped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from spacy_bioel.errors import BioelError, Errors

StrPath = str | os.PathLike[str]
# From spellings of a vocabulary in sources to prefixes of this package. CTD has "DO:DOID:0001816".
_SPELLINGS = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": "", "cellosaurus": ""}
_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")


class Place(NamedTuple):
    """Where a record begins; line 0: the format has no lines."""

    path: StrPath
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}" if self.line else str(self.path)


def curie(raw: str, prefix: str = "") -> str:
    """Convert one id to a CURIE, or for UMLS to the bare CUI.

    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH". With "MESH", six digits are an
        OMIM number: the disease corpora mix the two, and no MeSH id is a plain number.
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
    """Split a field at "|", "+", ";" and "," into distinct CURIEs; "-1", "NIL", ... are no ids."""
    parts = (part.strip() for part in _SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Strip names, and drop empty and repeated ones."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, names))))


def tree_types(trees: Iterable[str]) -> tuple[str, ...]:
    """Return the semantic types of MeSH tree numbers: "C18.452.394.750" gives "C18" and "C"."""
    # CTD appends supplementary records to tree numbers with a slash: "C19.246/C535484".
    codes = list(dict.fromkeys(re.split("[./]", tree.strip())[0] for tree in trees))
    return tuple(dict.fromkeys(filter(None, codes + [code[:1] for code in codes])))


def check_words(
    text: str, fragments: Sequence[tuple[int, int]], words: str | None, *, where: object
) -> None:
    """Refuse a mention outside the text [B105], or with other words than the text has at its
    offsets [B106]; white space may differ, and None are not known.
    """
    for start, end in fragments:
        if not 0 <= start < end <= len(text):
            message = Errors.B105.format(where=where, start=start, end=end, length=len(text))
            raise BioelError(message)
    found = " ".join(text[start:end] for start, end in fragments)
    if words not in (None, found) and "".join(found.split()) != "".join(str(words).split()):
        start, end = fragments[0][0], fragments[-1][1]
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=found, expected=words)
        )


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was skipped; its line is 0 where the format has no lines."""

    path: str
    line: int
    message: str

    @property
    def code(self) -> str:
        return self.message[1:].partition("]")[0]


@dataclass(slots=True)
class Skipped:
    """Bad records so far, of which `note` is told; files that are read twice have theirs once.

    kept (int): Records that were not skipped, as far as the caller counts them.
    """

    note: Callable[[BadRecord], None]
    first: BadRecord | None = None
    n: int = 0
    kept: int = 0
    place: Place = Place("")
    _seen: set[int] = field(default_factory=set)  # hashes: there may be millions

    def add(self, error: BioelError) -> None:
        record = BadRecord(str(self.place.path), self.place.line, str(error))
        if hash(record) not in self._seen:
            self._seen.add(hash(record))
            self.first = self.first or record
            self.n += 1
            self.note(record)


_SKIPPED: ContextVar[Skipped | None] = ContextVar("skipped", default=None)
skipped_so_far = _SKIPPED.get  # None outside `skipping_bad`


@contextmanager
def skipping_bad(note: Callable[[BadRecord], None]) -> Iterator[Skipped]:
    """Skip bad records inside this block, in all readers that are consumed there."""
    skipped = Skipped(note)
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


class one_record:
    """The reading of one record; inside `skipping_bad` its errors are noted and not raised.

    place (Place | None): None: that of the record before, which another function reads on.
    """

    __slots__ = ("_place",)

    def __init__(self, place: Place | None = None) -> None:
        self._place = place

    def __enter__(self) -> None:
        if self._place is not None and (skipped := _SKIPPED.get()) is not None:
            skipped.place = self._place

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, BioelError) or (skipped := _SKIPPED.get()) is None:
            return False
        skipped.add(error)
        return True
