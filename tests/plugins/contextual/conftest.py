"""Fixtures of the six documents, for the contextual models."""

import shutil
from pathlib import Path

import pytest
from six_documents import (  # noqa: F401
    dual_folder,
    kb,
    kb_folder,
    one_thread,
    start_method,
    texts,
    trained,
    trained_folder,
)


@pytest.fixture
def copy(checkpoint, tmp_path) -> Path:
    """A copy of the checkpoint, for tests that change it."""
    return shutil.copytree(checkpoint, tmp_path / "copy")
