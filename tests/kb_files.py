"""The files of a knowledge base, for tests that damage them or that have them as they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


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
    """Move the files to where an earlier version had them; of vectors, those of one encoder."""
    meta = json.loads((folder / "meta.json").read_text("utf8"))
    columns = folder / meta.pop("generation")
    del meta["columns"]["meta.json"]  # its own checksum
    (folder / "meta.json").write_text(json.dumps(meta))
    for path in columns.iterdir():
        path.rename(folder / path.name)
    columns.rmdir()
    if (folder / "vectors").exists():
        home = vectors_of(folder)
        about = json.loads((home / "about.json").read_text("utf8"))
        del about["text"]
        (folder / "vectors.json").write_text(json.dumps(about | {"generation": "1a2b3c4d"}))
        for path in set(home.iterdir()) - {home / "about.json"}:
            path.rename(folder / f"vectors.1a2b3c4d.{path.name}")
        shutil.rmtree(folder / "vectors")
    (folder / ".lock").unlink()
