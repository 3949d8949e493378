"""Clinical note layout: section headers, and words that mean something else in notes."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray

from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.types import IntArray

NO_MENTION = "the name of a section, or a word with another meaning in notes"
_HEADER = re.compile(
    r"(?:^|(?<=[.;])[ \t])[ \t]*+(?P<name>[A-Za-z][A-Za-z/&' -]{1,48}?)[ \t]{0,4}:", re.M
)


def headers(
    text: str, names: Container[str], *, capitals: bool = False
) -> Iterator[tuple[re.Match[str], str]]:
    """Yield section headers such as "Allergies:", with their names in lower case.

    capitals (bool): Also yield headers in capitals that are not in `names`.
    """
    for match in _HEADER.finditer(text):
        name = " ".join(match["name"].lower().split())
        if name in names or (capitals and match["name"].isupper()):
            yield match, name


def have_other_meaning(text: str, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Return which spans in a note are not mentions, because they are in a section name ("PE:") or
    mean something else ("RA" in "98% on RA").

    starts, ends (IntArray): Character offsets. Shape (n,) each.
    """
    places = [header.span("name") for header, _ in headers(text, _section_names())]
    for pattern in _other_meanings():
        places += [match.span(1) for match in pattern.finditer(text)]
    if not places:
        return np.zeros(len(starts), dtype=bool)
    place_starts, place_ends = np.array(sorted(places)).T
    # A span is inside a place if any place that starts before the span ends after it.
    n_before = np.searchsorted(place_starts, starts, side="right")
    return np.append(-1, np.maximum.accumulate(place_ends))[n_before] >= ends


@cache
def _other_meanings() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in note_tables()["other_meanings"]]


@cache
def _section_names() -> frozenset[str]:
    """Return the section names (see entities/notes/context.py)."""
    names_by_status: dict[str, list[str]] = read_asset("context.json")["sections"]
    return frozenset(name for names in names_by_status.values() for name in names)


def read_asset(name: str) -> dict[str, Any]:
    """Read a JSON file in spacy_bioel/assets (see assets/SOURCES.md)."""
    table: dict[str, Any] = srsly.read_json(ASSETS_FOLDER / name)
    return table


@cache
def note_tables() -> dict[str, Any]:
    """Return the tables of shorthand, measurements and words for clinical notes."""
    return read_asset("notes.json")
