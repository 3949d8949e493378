"""Encoding of blocks of names to columns of vectors, which the next process continues after a stop;
known vectors are copied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import UNSEALED, checksum, sealed_json
from spacy_bioel.kb.columns.files import map_folder, read_array
from spacy_bioel.kb.columns.layout import ABOUT_FILE
from spacy_bioel.kb.columns.schema import VECTOR_COLUMNS
from spacy_bioel.kb.transaction import Transaction
from spacy_bioel.kb.vectors.quantized import FloatArray, IntArray, QuantizedVectors, quantize
from spacy_bioel.storage.atomic import replacing_file

Encode = Callable[[Sequence[str]], FloatArray]
Columns = dict[str, NDArray[Any]]
Digests = NDArray[np.uint64]


def name_digests(names: Sequence[str]) -> Digests:
    """Digests of 128 bits, which identify names in stored vectors. Shape (n, 2)."""
    digests = (blake2b(name.encode("utf8"), digest_size=16).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(names), 2)


class KnownVectors:
    """Vectors of names that an encoder has encoded before, by the digest of the name.

    vectors (QuantizedVectors): Shape (n, dim).
    digests (Digests): Digests of the names. Shape (n, 2).
    """

    def __init__(self, vectors: QuantizedVectors, digests: Digests) -> None:
        self.vectors = vectors
        self._digests = digests
        self._order = np.argsort(digests[:, 0], kind="stable")
        self._sorted = digests[self._order, 0]

    def find(self, digests: Digests) -> IntArray:
        """Row of each name, -1 for new names. Shape (n,)."""
        if not len(self._sorted):
            return np.full(len(digests), -1)
        at = np.minimum(np.searchsorted(self._sorted, digests[:, 0]), len(self._sorted) - 1)
        rows = self._order[at]
        # Of names with the same first half only one is found; the others are encoded again.
        return np.where((self._digests[rows] == digests).all(axis=1), rows, -1)


def fill_block(
    columns: Columns,
    rows: range,
    names: Sequence[str],
    known: KnownVectors | None,
    *,
    encode: Encode,
    batch_size: int,
    report: Callable[[int], None],
) -> int:
    """Fill the rows of one block; vectors of known names are copied.

    Batches have names of similar length, which saves padding.

    columns (Columns): Columns to write to, see `VECTOR_COLUMNS`.
    rows (range): Rows of the block.
    names (Sequence[str]): Normalised names, one for each row.
    known (KnownVectors | None): Vectors to copy from.
    encode (Encode): From n names to vectors of shape (n, dim).
    batch_size (int): Names per call of `encode`.
    report (Callable): Called with the number of names after each batch.
    RETURNS (int): Number of encoded names.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape.
    """
    digests = name_digests(names)
    columns["digests"][rows.start : rows.stop] = digests
    old = np.full(len(names), -1) if known is None else known.find(digests)
    copied = np.flatnonzero(old >= 0)
    if known is not None and len(copied):
        _put(columns, rows.start + copied, known.vectors, old[copied])
        report(len(copied))
    new = sorted(np.flatnonzero(old < 0).tolist(), key=lambda i: len(names[i]))
    for at in range(0, len(new), batch_size):
        batch = new[at : at + batch_size]
        texts = [names[i] for i in batch]
        vectors = np.asarray(encode(texts), dtype=np.float32)
        _check_encoded(vectors, texts, dim=columns["codes"].shape[1])
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = quantize(vectors / np.maximum(norms, np.finfo(np.float32).tiny))
        _put(columns, rows.start + np.array(batch), unit, slice(None))
        report(len(batch))
    return len(new)


def _put(columns: Columns, rows: IntArray, vectors: QuantizedVectors, of: IntArray | slice) -> None:
    columns["codes"][rows] = vectors.codes[of]
    columns["fine"][rows] = vectors.fine[of]
    columns["scales"][rows] = vectors.scales[of]


def _check_encoded(vectors: FloatArray, names: Sequence[str], *, dim: int) -> None:
    expected = len(names), dim
    if vectors.shape != expected:
        found = f"numbers of shape {vectors.shape}"
    elif not np.isfinite(vectors).all():
        found = "NaN or infinity"
    else:
        return
    raise BioelError(
        Errors.B035.format(found=found, first=names[0], last=names[-1], expected=expected)
    )


def new_columns(n: int, dim: int) -> Columns:
    """Empty columns in memory."""
    shapes = column_shapes(n, dim)
    return {name: np.zeros(shapes[name], dtype) for name, dtype in VECTOR_COLUMNS.items()}


def column_shapes(n: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the columns of `VECTOR_COLUMNS`."""
    return {"codes": (n, dim), "fine": (n, dim), "scales": (n,), "digests": (n, 2)}


def vectors_of(columns: Columns, **ann: Any) -> QuantizedVectors:
    """Vectors of columns, without a copy; `ann` goes to `QuantizedVectors`."""
    parts = (columns[name] for name in ("codes", "fine", "scales"))
    return QuantizedVectors(*parts, **ann)


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
