"""The files of a saved pipe, with a manifest of their sizes and digests, so that damage is told.

    manifest.json   {"files": {"cfg.json": {"bytes": 512, "sha256": "9f3a..."}, ...}}

Loading compares all sizes, and the digests of files of up to `CHECKED` bytes; `bioel verify`
compares all digests. Pipes of earlier versions have no manifest, and load as they did.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.storage.atomic import replacing_file

Parts = Mapping[str, Callable[[], bytes]]
MANIFEST = "manifest.json"
CHECKED = 1 << 22  # hashing them is 2 % of loading the pipeline of the package


class SavedFiles:
    """The files of a saved pipe; `manifest` is None if there is nothing to compare them with.

    whole (bool): Compare the digests of large files too.
    RAISES BioelError: [B466] when the manifest is damaged.
    """

    def __init__(self, folder: Path, *, whole: bool = False) -> None:
        self.folder = folder
        self._most = sys.maxsize if whole else CHECKED
        self.manifest: dict[str, Any] | None = None
        if (folder / MANIFEST).is_file():
            try:
                self.manifest = dict(json.loads((folder / MANIFEST).read_bytes())["files"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise self._changed(MANIFEST, expected="a table of files", found=error) from None

    def read(self, name: str) -> bytes:
        """RAISES BioelError: [B042] the file is missing, [B466] it is not as it was saved."""
        path = self.folder / name
        if not path.is_file():
            raise BioelError(Errors.B042.format(path=path))
        data = path.read_bytes()
        if self.manifest is not None:
            saved = self.manifest.get(name)
            found = _describe(data) if len(data) <= self._most else {"bytes": len(data)}
            if not (isinstance(saved, dict) and found.items() <= saved.items()):
                raise self._changed(name, expected=_words(saved), found=_words(found))
        return data

    def _changed(self, name: str, *, expected: object, found: object) -> BioelError:
        path = self.folder / name
        return BioelError(
            Errors.B466.format(path=path, expected=expected, found=found, manifest=MANIFEST)
        )


def _words(file: object) -> str:
    if not isinstance(file, dict):
        return "no such file"
    return ", ".join(f"{name} {value}" for name, value in file.items())


def save_files(folder: Path, parts: Parts) -> None:
    """Write each part to its own file, by way of a temporary name, and the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, part in parts.items():
        files[name] = _describe(data := part())
        _write(folder / name, data)
    _write(folder / MANIFEST, json.dumps({"files": files}, indent=1).encode("utf8"))


def _write(path: Path, data: bytes) -> None:
    with replacing_file(path, follow=False) as temporary:
        temporary.write_bytes(data)


def _describe(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": sha256(data).hexdigest()}
