"""Small models that the tests of several files build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spacy_bioel.models.document_transformer import build_transformer_v1

LETTERS = "the heart attack was not a renal failure"


def make_transformer(path: Path | str | None, **settings: Any) -> Any:
    """One that reads documents, in windows as long as the fixture `checkpoint` can read."""
    path = None if path is None else str(path)
    settings = {"width": 32, "max_pieces": 32, "overlap": 8} | settings
    return build_transformer_v1(path=path, **settings)
