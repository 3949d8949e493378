"""?"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.span_matches import Hits, Words
from spacy_bioel.doc import text_of

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


_ASSETS = Path(__file__).parents[2] / "assets"


OTHER = "the name of a section, or another meaning of the word in notes"


IntArray = NDArray[np.int64]


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


def rule_out(words: Words, hits: Hits, reasons: list[str]) -> None:
    """Write reasons for hits that mean something else in notes."""
    starts, ends = words.places(hits.start, hits.end)
    of_doc = words.doc[hits.start]
    for number, doc in enumerate(words.docs):
        here = np.flatnonzero(of_doc == number)
        for i in here[mean_other(text_of(doc), starts[here], ends[here])].tolist():
            reasons[i] = reasons[i] or OTHER


def without_other_meanings(doc: Doc, spans: Sequence[Span]) -> list[Span]:
    """Drop mentions that mean something else in notes."""
    borders = np.array([[s.start_char, s.end_char] for s in spans], dtype=np.int64).reshape(-1, 2)
    is_other = mean_other(text_of(doc), *borders.T)
    return [span for span, other in zip(spans, is_other, strict=True) if not other]


@cache
def _other() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in _tables()["other_meanings"]]


@cache
def _sections() -> frozenset[str]:
    """Names of sections, see entities/notes/context.py."""
    of_all: dict[str, list[str]] = srsly.read_json(_ASSETS / "context.json")["sections"]
    return frozenset(name for names in of_all.values() for name in names)


@cache
def _tables() -> dict[str, Any]:
    """Read what is clear in clinical notes alone, see assets/SOURCES.md."""
    tables: dict[str, Any] = srsly.read_json(_ASSETS / "notes.json")
    return tables


def words_of_notes() -> list[str]:
    """Words that are no mentions in notes, though a detector may take them for some."""
    return list(_tables()["never"])
