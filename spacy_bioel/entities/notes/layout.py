"""The layout of notes: headers of sections, and words that mean something else in notes."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray

from spacy_bioel.types import IntArray

ASSETS = Path(__file__).parents[2] / "assets"
OTHER = "the name of a section, or another meaning of the word in notes"
_HEADER = re.compile(
    r"(?:^|(?<=[.;])[ \t])[ \t]*(?P<name>[A-Za-z][A-Za-z/&' -]{1,48}?)[ \t]*:", re.M
)


def headers(
    text: str, names: Container[str], *, capitals: bool = False
) -> Iterator[tuple[re.Match[str], str]]:
    """Find headers, "Allergies:", with their names in small letters.

    capitals (bool): Also those in capitals that are not among the names.
    """
    for match in _HEADER.finditer(text):
        name = " ".join(match["name"].lower().split())
        if name in names or (capitals and match["name"].isupper()):
            yield match, name


def mean_other(text: str, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Tell which places of a note are no mentions: in the name of a section ("PE:"), or as "RA" in
    "98% on RA". starts, ends: shape (n,).
    """
    found = [header.span("name") for header, _ in headers(text, _sections())]
    found += [match.span(1) for one in _other() for match in one.finditer(text)]
    if not found:
        return np.zeros(len(starts), dtype=bool)
    first, last = np.array(sorted(found)).T
    before = np.searchsorted(first, starts, side="right")
    return np.append(-1, np.maximum.accumulate(last))[before] >= ends


@cache
def _other() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in tables()["other_meanings"]]


@cache
def _sections() -> frozenset[str]:
    """Names of sections, see entities/notes/context.py."""
    of_all: dict[str, list[str]] = srsly.read_json(ASSETS / "context.json")["sections"]
    return frozenset(name for names in of_all.values() for name in names)


@cache
def tables() -> dict[str, Any]:
    """Read what is clear in clinical notes alone, see assets/SOURCES.md."""
    tables: dict[str, Any] = srsly.read_json(ASSETS / "notes.json")
    return tables


def words_of_notes() -> list[str]:
    """Words that are no mentions in notes, though a detector may take them for some."""
    return list(tables()["never"])
