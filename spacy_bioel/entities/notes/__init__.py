"""Rules for clinical notes: layout, shorthand, measurements, and the context of mentions."""

from functools import cache
from typing import Any

import srsly

from spacy_bioel.kb.bundled import ASSETS_FOLDER


def read_asset(name: str) -> dict[str, Any]:
    """Read a JSON file in spacy_bioel/assets (see assets/SOURCES.md)."""
    table: dict[str, Any] = srsly.read_json(ASSETS_FOLDER / name)
    return table


@cache
def note_tables() -> dict[str, Any]:
    """Return the tables of shorthand, measurements and words for clinical notes."""
    return read_asset("notes.json")
