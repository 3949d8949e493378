from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """The checkpoint, to be changed."""
    return shutil.copytree(checkpoint, tmp_path / "copy")
