"""A transformer that reads documents, and checkpoints to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny_models import make_transformer


@pytest.fixture(scope="session")
def nlp() -> Language:
    return spacy.blank("en")


@pytest.fixture(scope="module")
def transformer(checkpoint: Path) -> Any:
    model = make_transformer(checkpoint)
    model.initialize()
    return model


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """The checkpoint, to be changed."""
    return shutil.copytree(checkpoint, tmp_path / "copy")
