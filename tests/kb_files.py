"""The files of a knowledge base, for tests that damage them or that have them as they were."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np


def columns_of(folder: Path) -> Path:
    """The folder of the columns that a knowledge base has now."""
    return folder / json.loads((folder / "meta.json").read_text("utf8"))["generation"]


def vectors_of(folder: Path, encoder: str = "*") -> Path:
    """The folder of the vectors of the only encoder, or of one of them."""
    [home] = (folder / "vectors").glob(f"{encoder}.*")
    return home


def all_files(folder: Path) -> list[str]:
    """All files but the lock, which stays."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if path != ".lock")


def to_old_layout(folder: Path) -> None:
    """Move the files to where an earlier version had them, without vectors."""
    meta = json.loads((folder / "meta.json").read_text("utf8"))
    columns = folder / meta.pop("generation")
    del meta["columns"]["meta.json"]  # its own checksum
    (folder / "meta.json").write_text(json.dumps(meta))
    for path in columns.iterdir():
        path.rename(folder / path.name)
    columns.rmdir()
    shutil.rmtree(folder / "vectors", ignore_errors=True)
    (folder / ".lock").unlink()


def npy_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)
