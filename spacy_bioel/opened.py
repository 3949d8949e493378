"""Knowledge bases that are open in this process, by fingerprint.

A candidate has only the fingerprint of its knowledge base, so that it can be pickled and stored,
and reads there what it does not carry.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol
from weakref import WeakSet

from spacy_bioel.errors import BioelError, Errors


class Opened(Protocol):
    """A knowledge base, as records know it."""

    fingerprint: str

    def __contains__(self, id: object) -> bool: ...
    def __getitem__(self, id: str) -> Any: ...
    def find(self, id: str) -> int: ...
    def preferred_name(self, concept: int) -> str: ...
    @property
    def releases(self) -> tuple[Any, ...]: ...


class Opener(Protocol):
    """A pipe, which opens its knowledge base when it is asked for, if it has been built."""

    def kb_if_built(self) -> Opened: ...


# Several may be open that have the same contents.
_OPENED: dict[str, WeakSet[Opened]] = {}
_OPENERS: WeakSet[Opener] = WeakSet()
_LOCK = Lock()


def remember(kb: Opened) -> None:
    """Let records find a knowledge base for as long as it is open."""
    with _LOCK:
        _OPENED.setdefault(kb.fingerprint, WeakSet()).add(kb)


def remember_opener(opener: Opener) -> None:
    """Let records find the knowledge base of a pipe whose documents other processes have made."""
    with _LOCK:
        _OPENERS.add(opener)


def opened(fingerprint: str) -> Opened:
    """The knowledge base of this fingerprint. RAISES BioelError: [B320] when there is none."""
    if (found := _find(fingerprint)) is not None:
        return found
    with _LOCK:
        openers = list(_OPENERS)
    for opener in openers:
        with suppress(BioelError):
            if (kb := opener.kb_if_built()).fingerprint == fingerprint:
                return kb
            if (found := _find(fingerprint)) is not None:  # a part of it
                return found
    raise BioelError(Errors.B320.format(found=fingerprint or "unknown"))


def preferred_name(fingerprint: str, id: str) -> str:
    """Preferred name of a concept, read where it is open; "" where it is not, or is unknown."""
    try:
        return _read_preferred_name(fingerprint, id)
    except BioelError:
        return ""


@lru_cache(maxsize=1 << 16)  # the same few concepts are asked for again and again
def _read_preferred_name(fingerprint: str, id: str) -> str:
    kb = opened(fingerprint)
    row = kb.find(id)
    return kb.preferred_name(row) if row >= 0 else ""


def releases_of(fingerprint: str) -> tuple[str, ...]:
    """Releases of a knowledge base, in words; none where it is not open."""
    try:
        return tuple(map(str, opened(fingerprint).releases))
    except BioelError:
        return ()


def _find(fingerprint: str) -> Opened | None:
    with _LOCK:
        return next(iter(_OPENED.get(fingerprint, ())), None)
