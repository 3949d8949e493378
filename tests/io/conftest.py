from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write a file, of text or bytes."""

    def write(content: str | bytes, name: str = "x.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
