"""Read the plugin's tables of shorthand, measurements and cues (see assets/SOURCES.md)."""

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import srsly

CUES_FILE = Path(__file__).parent / "assets" / "context.json"


def cue_tables() -> dict[str, Any]:
    """Return the default rules of `bioel_context`: word classes, cues, sections and answers."""
    tables: dict[str, Any] = srsly.read_json(CUES_FILE)
    return tables


@cache
def note_tables() -> dict[str, Any]:
    """Return the tables of shorthand, measurements and words for clinical notes."""
    tables: dict[str, Any] = srsly.read_json(CUES_FILE.with_name("notes.json"))
    return tables


@cache
def _section_names() -> frozenset[str]:
    return frozenset(chain.from_iterable(cue_tables()["sections"].values()))


def is_section_name(words: str) -> bool:
    """Whether a string, such as "Family History", is the name of a known section."""
    return " ".join(words.lower().split()) in _section_names()
