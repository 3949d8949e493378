"""Knowledge bases that are open in this process, by fingerprint.

A candidate has only the fingerprint of its knowledge base, so that it can be pickled and stored,
and reads there what it does not carry.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol
from weakref import WeakSet

from spacy_bioel.errors import BioelError, Errors


class Opened(Protocol):
    """A knowledge base, as records know it."""

    fingerprint: str

    def find(self, id: str) -> int: ...
    def xrefs(self, concept: int) -> tuple[str, ...]: ...


# Several may be open that have the same contents.
_OPENED: dict[str, WeakSet[Opened]] = {}
_LOCK = Lock()


def remember(kb: Opened) -> None:
    """Let records find a knowledge base for as long as it is open."""
    with _LOCK:
        _OPENED.setdefault(kb.fingerprint, WeakSet()).add(kb)


def opened(fingerprint: str) -> Opened:
    """The knowledge base of this fingerprint. RAISES BioelError: [B320] when none is open."""
    with _LOCK:
        for kb in _OPENED.get(fingerprint, ()):
            return kb
    raise BioelError(Errors.B320.format(found=fingerprint or "unknown"))
