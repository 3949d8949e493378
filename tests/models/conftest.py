import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copy(checkpoint, tmp_path) -> Path:
    """The checkpoint, to be changed."""
    return shutil.copytree(checkpoint, tmp_path / "copy")
