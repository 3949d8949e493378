"""Bad records of a source: errors, unless the caller asks for them to be skipped and noted.

A reader wraps what it does with one record in `one_record`. An error of the file as a whole, such
as a damaged archive, is raised in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType

from spacy_bioel.errors import BioelError

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
