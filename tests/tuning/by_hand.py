"""Links as tests write them down."""

from __future__ import annotations

from spacy_bioel.types import Candidate, Link


def linked(start: int, end: int, *scored: tuple[str, float], n: int = 1, label: str = "D") -> Link:
    """A link to the first n candidates."""
    candidates = tuple(Candidate(id_, score) for id_, score in scored)
    return Link(start, end, label, tuple(sorted(c.id for c in candidates[:n])), candidates)
