"""Read, write and check knowledge base files: the columns, their schema, and meta.json.

Each file is a flat array of bytes, either mapped from a folder or part of a container in memory;
all other modules treat both alike. Opening checks headers, lengths and the checksums of small
files, which takes milliseconds at any size. `KnowledgeBase.verify` compares all checksums.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.text.normalize import NORMALIZER_VERSION
from spacy_bioel.types import IntArray

RawFile = NDArray[np.uint8]
Rows = TypeVar("Rows", bound=NDArray[np.integer])

LINE_END = ord("\n")


@dataclass(frozen=True, slots=True)
class Origin:
    """The folder and file of an array, for error messages, and checks that raise these errors."""

    where: str = "memory"
    file: str = "an array"

    def error(self, message: str, expected: object, found: object) -> BioelError:
        """Return an error about the file, for the caller to raise."""
        about = {"path": self.where, "file": self.file, "expected": expected, "found": found}
        return BioelError(message.format(**about))

    def rows(self, values: Rows, *, below: int) -> Rows:
        """Return the values if all are from 0 to `below` - 1. RAISES BioelError: [B211] if not."""
        # As unsigned integers, negative numbers are the largest: one pass checks both bounds.
        unsigned = values.view(f"u{values.itemsize}")
        if values.size and int(unsigned.max()) >= below:
            wrong = values[unsigned >= below].flat[0]
            raise self.error(Errors.B211, f"rows from 0 to {below - 1}", wrong)
        return values

    def ends(self, offsets: NDArray[Any], *, end: int) -> NDArray[Any]:
        """Return the offsets if they run from 0 to `end`. RAISES BioelError: [B211] if not."""
        found = (int(offsets[0]), int(offsets[-1])) if len(offsets) else "none"
        if found != (0, end):
            raise self.error(Errors.B211, f"offsets from 0 to {end}", found)
        return offsets

    def growing(self, offsets: NDArray[Any], *, least: int) -> NDArray[Any]:
        """Return the offsets if each step is at least `least`. RAISES BioelError: [B211] if not."""
        if (np.diff(offsets.view(np.int64)) < least).any():
            expected = f"offsets that grow by {least} or more"
            raise self.error(Errors.B211, expected, "other offsets")
        return offsets


MEMORY = Origin()


def offsets_of(counts: Sequence[int] | NDArray[Any]) -> IntArray:
    """Return the offsets of runs of values with these lengths. Shape (n,); returns (n + 1,)."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def positions_of(offsets: NDArray[Any], rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return the positions of the values of many rows in a ragged (CSR) column.

    RETURNS (tuple): indptr, shape (n + 1,), and positions: the values of rows[i] are at
        positions[indptr[i] : indptr[i + 1]]. Negative rows have no values.
    """
    known = np.maximum(np.asarray(rows, dtype=np.int64), 0)
    starts, ends = offsets[known].astype(np.int64), offsets[known + 1].astype(np.int64)
    return entries_of(starts, np.where(rows >= 0, ends - starts, 0))


def find_sorted(values: NDArray[Any], wanted: NDArray[Any]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Look up numbers in an ascending array, of the same data type for speed.

    RETURNS (tuple): Position of each number, and whether it is there; if not, the position is
        meaningless. Shape of `wanted` each.
    """
    if not len(values):
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, bool)
    positions = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return positions, values[positions] == wanted


def entries_of(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return indptr and the positions in all runs, from the start and length of each run."""
    indptr = offsets_of(counts)
    return indptr, np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])


UNSEALED = "0" * 32  # placeholder for a text's own checksum
SMALL = 1 << 18  # bytes; the checksums of files up to this size are compared on opening

# Header of the .npy files that numpy writes for arrays of plain little-endian numbers.
_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '(\|[biu]1|<[iuf][248])', 'fortran_order': False, "
    rb"'shape': \((\d{1,18},|\d{1,18}(?:, \d{1,18})+)\), \} *\n"
)
_FILE_NAME = re.compile(r"((vectors|tries)/\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
_MAGIC = b"BIOELKB1"
_STRINGS_PER_WRITE = 1 << 14
_ALIGNMENT = 64  # bytes; numbers in .npy files, and packed files, start at multiples of this


# -- Arrays -------------------------------------------------------------------------------------


def read_array(raw: RawFile) -> NDArray[Any]:
    """View the bytes of a .npy file as an array, without copying.

    numpy's own reader parses the header as Python source, so a damaged header can lead to tokenizer
    errors or to shapes of exabytes.

    RAISES ValueError: If this is not a plain .npy file of little-endian numbers, or it is
        truncated. Callers add the file name.
    """
    start = 10 + int.from_bytes(raw[8:10].tobytes(), "little")
    header = _NPY_HEADER.fullmatch(raw[:start].tobytes())
    if header is None:
        raise ValueError("not a .npy file of version 1.0 with plain little-endian numbers")
    dtype = np.dtype(header[1].decode("ascii"))
    shape = tuple(int(n) for n in header[2].decode("ascii").split(",") if n)
    expected = start + dtype.itemsize * math.prod(shape)
    if raw.size != expected:
        raise ValueError(f"{raw.size} bytes, but {expected} according to its header")
    return raw[start:].view(dtype).reshape(shape)


def write_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write NAME.npy."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)


def write_strings(folder: Path, name: str, values: Iterable[str]) -> None:
    """Write NAME.txt and NAME.offsets.npy. Strings must not contain newlines.

    RAISES BioelError: [B480] if a string contains a lone surrogate.
    """
    waiting, end, offsets = iter(values), 0, [np.zeros(1, np.uint64)]
    with (folder / f"{name}.txt").open("wb") as stream:
        while block := list(islice(waiting, _STRINGS_PER_WRITE)):
            try:
                lines = "\n".join([*block, ""]).encode("utf8")
            except UnicodeEncodeError as error:
                wrong = next(value for value in block if error.object[error.start] in value)
                raise BioelError(Errors.B480.format(found=wrong)) from None
            stream.write(lines)
            ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == LINE_END) + 1
            offsets.append((end + ends).astype(np.uint64))
            end += len(lines)
    write_array(folder, f"{name}.offsets", np.concatenate(offsets))


def give_back(*arrays: NDArray[Any]) -> None:
    """Release the pages of mapped arrays from the process; they stay in the page cache.

    Otherwise the memory used by the process grows to the size of the files. Arrays that are not
    mapped are ignored.
    """
    for base in arrays:
        while isinstance(base, np.ndarray):
            base = base.base  # type: ignore[assignment]
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


# -- Folders and containers ---------------------------------------------------------------------


def map_folder(folder: Path, names: Iterable[str]) -> dict[str, RawFile]:
    """Map files into memory, read-only. Missing files are left out."""
    files = {}
    for name in names:
        path = folder / name
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            empty = path.stat().st_size == 0  # mmap refuses empty files
            raw = np.zeros(0, np.uint8) if empty else np.memmap(path, dtype=np.uint8, mode="r")
            files[name] = np.asarray(raw)
    return files


def read_small(folder: Path, name: str) -> dict[str, RawFile]:
    """Read a file that a writer may replace. RETURNS (dict): Empty if the file is missing."""
    try:
        return {name: np.frombuffer((folder / name).read_bytes(), dtype=np.uint8)}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def write_files(folder: Path, files: Mapping[str, RawFile]) -> None:
    """Write files to a folder, unchanged."""
    for name, raw in files.items():
        (folder / name).write_bytes(memoryview(raw))  # type: ignore[arg-type]


def pack(files: Mapping[str, RawFile]) -> bytes:
    """Serialise files to one block of bytes: magic, header length, JSON table, aligned contents."""
    table = json.dumps([[name, int(raw.size)] for name, raw in files.items()]).encode("utf8")
    head = _MAGIC + len(table).to_bytes(8, "little") + table
    pieces = [head, bytes(-len(head) % _ALIGNMENT)]
    for raw in files.values():
        pieces.append(memoryview(raw))  # type: ignore[arg-type]
        pieces.append(bytes(-raw.size % _ALIGNMENT))
    return b"".join(pieces)


def unpack(block: bytes) -> dict[str, RawFile]:
    """Deserialise the result of `pack`, without copying.

    RAISES BioelError: [B025] if the block is truncated or was not written by `pack`, or if a file
        name points outside the folder.
    """
    files: dict[str, RawFile] = {}
    try:
        if block[:8] != _MAGIC:
            raise ValueError(repr(bytes(block[:8])))
        table_end = 16 + int.from_bytes(block[8:16], "little")
        raw, start = np.frombuffer(block, dtype=np.uint8), table_end + -table_end % _ALIGNMENT
        for name, size in json.loads(block[16:table_end]):
            is_new = isinstance(name, str) and _FILE_NAME.fullmatch(name) and name not in files
            if not is_new or type(size) is not int or not 0 <= size <= raw.size - start:
                raise ValueError(f"a file called {name!r} of size {size!r}")
            files[name] = raw[start : start + size]
            start += size + -size % _ALIGNMENT
        if start != raw.size:
            raise ValueError(f"{raw.size} bytes, expected {start}")
    except (ValueError, TypeError, RecursionError) as error:
        raise BioelError(Errors.B025.format(found=error)) from None
    return files


# -- Checksums and descriptions -----------------------------------------------------------------


def checksum(raw: RawFile | bytes) -> str:
    """Return the BLAKE2b digest of a file as 32 hexadecimal digits."""
    return blake2b(memoryview(raw), digest_size=16).hexdigest()  # type: ignore[arg-type]


def check_contents(
    raw: RawFile | None, expected: object, origin: Origin, *, if_small: bool = False
) -> None:
    """Compare a file with its checksum; with `if_small`, skip large files.

    RAISES BioelError: [B024] missing or damaged file.
    """
    if raw is not None and if_small and raw.size > SMALL:
        return
    if (found := "no file" if raw is None else checksum(raw)) != expected:
        raise origin.error(Errors.B024, expected, found)


def read_json(raw: bytes, origin: Origin) -> dict[str, Any]:
    """Parse a JSON file that contains one object. RAISES BioelError: [B030] if it does not."""
    try:
        parsed = json.loads(raw)
        if not isinstance(parsed, dict):
            raise TypeError(f"expected an object, found {type(parsed).__name__}")
    except (ValueError, TypeError, RecursionError) as error:
        message = Errors.B030.format(path=origin.where, file=origin.file, error=error)
        raise BioelError(message) from None
    return parsed


def sealed_json(about: Mapping[str, Any]) -> bytes:
    """Serialise `about` to JSON, and replace `UNSEALED` in the text with its checksum."""
    text = json.dumps(about, indent=1).encode("utf8")
    return text.replace(UNSEALED.encode("ascii"), checksum(text).encode("ascii"))


def check_seal(text: bytes, seal: object, origin: Origin) -> None:
    """Compare a result of `sealed_json` with the checksum that it contains.

    seal (object): Checksum in the text.
    RAISES BioelError: [B210] if any byte differs.
    """
    expected = str(seal)
    unsealed = text.replace(expected.encode("utf8", "replace"), UNSEALED.encode("ascii"))
    if (found := checksum(unsealed)) != expected:
        raise origin.error(Errors.B210, f"checksum {expected}", found)


# -- Schema, and meta.json -----------------------------------------------------------------------

# Increase this number whenever a column is added or removed, or its meaning changes.
SCHEMA_VERSION = 4

META_FILE = "meta.json"
STRING_COLUMNS = (
    "ids", "names", "definitions", "type_names", "retired",
    "xrefs",  # cross-references of each concept, separated by `XREF_SEPARATOR`
    "sources",  # sources of names: the source of the build, and the sources of later additions
)  # fmt: skip
XREF_SEPARATOR = "\t"
ARRAY_COLUMNS = {
    # Sorted keys, and the row of each key, for binary search.
    "name_keys": "uint64",
    "name_key_rows": "int32",
    "id_keys": "uint64",
    "id_key_rows": "int32",
    "retired_keys": "uint64",
    "retired_key_rows": "int32",
    "retired_targets": "int32",  # the current concept of each retired id
    # Ragged (CSR) columns: offsets and values.
    "name_offsets": "int64",
    "name_concepts": "int32",
    "name_is_preferred": "bool",  # one value per entry of name_concepts
    "concept_offsets": "int64",
    "concept_names": "int32",  # the preferred name first
    "name_sources": "int32",  # row of the source of each entry of concept_names
    "type_offsets": "int64",
    "type_ids": "int32",
    "parent_offsets": "int64",
    "parents": "int32",
    # Inverted index of character 3-grams (see `kb.spelling`).
    "ngram_codes": "uint32",
    "ngram_offsets": "int64",
    "ngram_names": "int32",
    "ngram_norms": "float32",
} | {f"{name}.offsets": "uint64" for name in STRING_COLUMNS}

# Groups of columns with the same number of rows; offsets have one more entry.
_SAME_ROWS = (
    ("names.offsets", "name_offsets", "name_keys", "name_key_rows", "ngram_norms"),
    ("ids.offsets", "definitions.offsets", "concept_offsets", "type_offsets", "parent_offsets")
    + ("id_keys", "id_key_rows", "xrefs.offsets"),
    ("name_concepts", "name_is_preferred", "concept_names", "name_sources"),
    ("retired.offsets", "retired_keys", "retired_key_rows", "retired_targets"),
    ("ngram_codes", "ngram_offsets"),
)

COLUMN_FILES = tuple(f"{name}.txt" for name in STRING_COLUMNS) + tuple(
    f"{name}.npy" for name in ARRAY_COLUMNS
)
KB_FILES = (META_FILE, *COLUMN_FILES)


def meta_of(folder: Path, *, counts: Mapping[str, int], **about: object) -> dict[str, Any]:
    """Describe the finished columns in a folder, for meta.json.

    counts (Mapping[str, int]): Counts from the build report.
    about: source, release and licence, and the withdrawn ids.
    """
    columns = {
        name: {"bytes": int(raw.size), "checksum": checksum(raw)}
        for name, raw in map_folder(folder, COLUMN_FILES).items()
    }
    return {
        "schema": SCHEMA_VERSION,
        "normalizer": NORMALIZER_VERSION,
        "fingerprint": fingerprint_of(columns),
        "created": datetime.now(UTC).date().isoformat(),
        **about,
        "counts": dict(counts),
        "columns": columns,
    }


def sealed_meta(meta: Mapping[str, Any]) -> bytes:
    """Return the contents of meta.json, with its own checksum next to the column checksums."""
    columns = {**meta["columns"], META_FILE: {"checksum": UNSEALED}}
    return sealed_json({**meta, "columns": columns})


def fingerprint_of(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the fingerprint of columns: a hash of their checksums."""
    lines = "".join(f"{name} {columns[name]['checksum']}\n" for name in sorted(columns))
    return blake2b(lines.encode("utf8"), digest_size=16).hexdigest()


def checked_meta(files: Mapping[str, RawFile], *, where: str) -> dict[str, Any]:
    """Read meta.json, and check that it matches the size, type and length of every column.

    RAISES BioelError: [B020] not a knowledge base, [B409] the name of a bundled knowledge base
        instead of a folder, [B408] a saved pipeline, [B030] unreadable meta.json, [B021] another
        schema, [B022] another normaliser, [B210] edited meta.json, [B023] missing, truncated or
        foreign column, [B024] damaged small column.
    """
    if META_FILE not in files:
        is_bundled_name = Path(where).name.startswith("starter:")
        raise BioelError((Errors.B409 if is_bundled_name else Errors.B020).format(path=where))
    text, origin = files[META_FILE].tobytes(), Origin(where, META_FILE)
    meta = read_json(text, origin)
    try:
        schema, normalizer, columns = meta["schema"], meta["normalizer"], dict(meta["columns"])
    except (ValueError, KeyError, TypeError) as error:
        if {"lang", "pipeline"} <= set(meta):  # the meta.json of a spaCy pipeline
            raise BioelError(Errors.B408.format(path=where)) from None
        raise BioelError(Errors.B030.format(path=where, file=META_FILE, error=error)) from None
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise BioelError(Errors.B021.format(path=where, found=schema, expected=SCHEMA_VERSION))
    if normalizer != NORMALIZER_VERSION:
        raise BioelError(
            Errors.B022.format(path=where, found=normalizer, expected=NORMALIZER_VERSION)
        )
    counts = meta.get("counts")
    if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
        raise origin.error(Errors.B210, "counts", counts)
    about = columns.get(META_FILE)
    seal = about.get("checksum") if isinstance(about, dict) else None
    check_seal(text, seal, origin)
    lengths = {
        name: _checked_length(files.get(name), columns.get(name), Origin(where, name))
        for name in COLUMN_FILES
    }
    for group in _SAME_ROWS:
        n_rows = {f"{name}.npy": lengths[f"{name}.npy"] - ("offsets" in name) for name in group}
        expected, *_ = n_rows.values()
        for name, n in n_rows.items():
            if n != expected:
                raise Origin(where, name).error(Errors.B023, f"{expected} rows", f"{n} rows")
    fingerprint = fingerprint_of({name: columns[name] for name in COLUMN_FILES})
    if (found := meta.get("fingerprint")) != fingerprint:
        raise origin.error(Errors.B210, f"fingerprint {fingerprint}", found)
    return meta


def _checked_length(raw: RawFile | None, recorded: object, origin: Origin) -> int:
    """Compare a column with meta.json (including its contents if small), and return its length."""
    about = recorded if isinstance(recorded, dict) else {}
    dtype = ARRAY_COLUMNS.get(origin.file.removesuffix(".npy"))
    expected = f"{about.get('bytes')} bytes" + (f" of {dtype}" if dtype else "")
    if raw is None:
        raise origin.error(Errors.B023, expected, "no file")
    n_bytes = f"{raw.size} bytes"
    if raw.size != about.get("bytes"):
        raise origin.error(Errors.B023, expected, n_bytes)
    array: NDArray[Any] = raw
    if dtype:
        try:
            array = read_array(raw)
        except ValueError as error:
            raise origin.error(Errors.B023, expected, f"{n_bytes} ({error})") from None
        if array.dtype != dtype or array.ndim != 1:
            found = f"{n_bytes} of {array.dtype} in {array.ndim} dimensions"
            raise origin.error(Errors.B023, expected, found)
    check_contents(raw, about.get("checksum"), origin, if_small=True)
    return len(array)
