import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copy(checkpoint, tmp_path) -> Path:
    """A copy of the checkpoint, for tests that change it."""
    return shutil.copytree(checkpoint, tmp_path / "copy")
