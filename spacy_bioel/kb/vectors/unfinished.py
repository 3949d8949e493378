"""Unfinished columns of vectors on disk, which the next process continues after a stop."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.kb.columns.checks import UNSEALED, checksum, sealed_json
from spacy_bioel.kb.columns.files import map_folder, read_array
from spacy_bioel.kb.columns.layout import ABOUT_FILE
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS
from spacy_bioel.kb.transaction import Transaction
from spacy_bioel.kb.vectors.encoding import Columns, column_shapes, vectors_of
from spacy_bioel.kb.vectors.quantized import QuantizedVectors
from spacy_bioel.storage.atomic import replacing_file

_JOURNAL = "journal.json"
_CHUNK = 1 << 20  # bytes per write


class Unfinished:
    """Columns that are being filled, with a journal of the finished rows.

    folder (Path): Folder of these columns only.
    about (Mapping): Description of the vectors, with n and dim. Columns in the folder with another
        description are removed.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._about = dict(about)
        self._shapes = column_shapes(about["n"], about["dim"])
        self.done = self._done_before()
        if not self.done:
            self.discard()
            self._allocate_all()
        self.columns: Columns = self._map("r+")

    @property
    def vectors(self) -> QuantizedVectors:
        return vectors_of(self.columns)

    def file(self, part: str) -> Path:
        """Path of a column, or of the approximate index "ann"."""
        return self.folder / (f"{part}.npy" if part in VECTOR_COLUMNS else part)

    def finish_rows(self, done: int) -> None:
        """Flush all rows before `done`, and record them in the journal."""
        for column in self.columns.values():
            column.flush()  # type: ignore[attr-defined]
        with replacing_file(self.folder / _JOURNAL, follow=False) as path:
            path.write_text(json.dumps(self._about | {"done": done}), encoding="utf8")
        self.done = done

    def put_in_place(self, about: Mapping[str, Any], transaction: Transaction) -> str:
        """Write the description of the finished vectors, and add them to the knowledge base.

        about (Mapping): Description, with ann: None if there is no approximate index.
        RETURNS (str): Name of the vectors.
        """
        self.columns.clear()  # some systems cannot move mapped files
        checksums = {}
        for part in [*VECTOR_COLUMNS, "ann"] if about["ann"] else VECTOR_COLUMNS:
            path = self.file(part)
            checksums[part] = checksum(map_folder(path.parent, [path.name])[path.name])
        described = sealed_json({**about, "checksums": checksums, "text": UNSEALED})
        (self.folder / ABOUT_FILE).write_bytes(described)
        home = transaction.put_vectors(self.folder, about["fingerprint"])
        (home / _JOURNAL).unlink(missing_ok=True)
        return home.name

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _done_before(self) -> int:
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            journal = json.loads((self.folder / _JOURNAL).read_text(encoding="utf8"))
            done = journal.pop("done")
            files = map_folder(self.folder, [self.file(name).name for name in VECTOR_COLUMNS])
            found = {name: read_array(files[self.file(name).name]).shape for name in VECTOR_COLUMNS}
            # A copy by hard links has the same files; they are not written to.
            is_own = all(self.file(name).stat().st_nlink == 1 for name in VECTOR_COLUMNS)
            if journal == self._about and found == self._shapes and is_own:
                return int(done)
        return 0

    def _allocate_all(self) -> None:
        self.folder.mkdir()
        try:
            for name, dtype in VECTOR_COLUMNS.items():
                _allocate(self.file(name), self._shapes[name], np.dtype(dtype))
        except OSError:
            self.discard()
            raise

    def _map(self, mode: Any) -> Columns:
        return {
            name: np.lib.format.open_memmap(self.file(name), mode=mode) for name in VECTOR_COLUMNS
        }


def _allocate(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Write an array of zeros; a sparse file would kill the process on a full disk."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    with path.open("wb") as stream:
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, dtype)) | {"shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, n_bytes, _CHUNK):
            stream.write(bytes(min(_CHUNK, n_bytes - start)))
