"""Read and write columns: arrays in safetensors files, with a schema and checksums.

Each file is a flat array of bytes, either memory-mapped or in memory. Opening a file checks the
header and the checksums of small arrays, which takes milliseconds at any size. A larger array is
checked on first use: up to 16 MB, its checksum is compared; above 16 MB, its values only have to be
in range. `TensorFile.verify` compares all checksums.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
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
    """The folder and file that an array was read from, for error messages.

    verify (Callable): Compares the array with its checksum, unless the array is too large or has
        already been compared. RAISES BioelError: [B024] if the checksum differs.
    """

    where: str = "memory"
    file: str = "an array"
    verify: Callable[[], None] = lambda: None

    def error(self, message: str, expected: object, found: object) -> BioelError:
        """Return an error about the file, for the caller to raise."""
        about = {"path": self.where, "file": self.file, "expected": expected, "found": found}
        return BioelError(message.format(**about))

    def rows(self, values: Rows, *, below: int) -> Rows:
        """Check that values are valid rows, and return them. RAISES BioelError: [B024, B211]."""
        self.verify()
        # Viewed as unsigned, negative numbers become the largest, so one pass checks both bounds.
        unsigned = values.view(f"u{values.itemsize}")
        if values.size and int(unsigned.max()) >= below:
            wrong = values[unsigned >= below].flat[0]
            raise self.error(Errors.B211, f"rows from 0 to {below - 1}", wrong)
        return values

    def ends(self, offsets: NDArray[Any], *, end: int) -> None:
        """Check that offsets run from 0 to `end`. RAISES BioelError: [B211] if not."""
        found = (int(offsets[0]), int(offsets[-1])) if len(offsets) else "none"
        if found != (0, end):
            raise self.error(Errors.B211, f"offsets from 0 to {end}", found)

    def growing(self, offsets: NDArray[Any], *, least: int) -> NDArray[Any]:
        """Check that offsets are ascending, and return them. RAISES BioelError: [B024, B211]."""
        self.verify()
        if (np.diff(offsets.view(np.int64)) < least).any():
            expected = f"offsets that grow by {least} or more"
            raise self.error(Errors.B211, expected, "other offsets")
        return offsets


@dataclass(frozen=True, slots=True)
class KbColumn:
    """An array, with its origin for error messages."""

    values: NDArray[Any]
    origin: Origin = Origin()


def offsets_of(counts: Sequence[int] | NDArray[Any]) -> IntArray:
    """Convert n run lengths to n + 1 offsets: (2, 3) becomes (0, 2, 5)."""
    return np.append(0, np.cumsum(counts, dtype=np.int64))


def positions_of(offsets: NDArray[Any], rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Find the positions of many rows' values in a ragged (CSR) column.

    RETURNS (tuple): indptr, shape (n + 1,), and positions: the values of rows[i] are at
        positions[indptr[i] : indptr[i + 1]]. Negative rows have no values.
    """
    known = np.maximum(np.asarray(rows, dtype=np.int64), 0)
    starts, ends = offsets[known].astype(np.int64), offsets[known + 1].astype(np.int64)
    return entries_of(starts, np.where(rows >= 0, ends - starts, 0))


def find_sorted(values: NDArray[Any], wanted: NDArray[Any]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Look up numbers in a sorted array (faster if their data types are the same).

    RETURNS (tuple): Position of each number, and whether the array contains the number; if not, the
        position is meaningless. Both have the shape of `wanted`.
    """
    if not len(values):
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, bool)
    positions = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return positions, values[positions] == wanted


def entries_of(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return indptr and the concatenated positions of runs, given their starts and lengths."""
    indptr = offsets_of(counts)
    return indptr, np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])


UNSEALED = "0" * 32  # placeholder for a header's own checksum.
# Maximum size in bytes of arrays that are verified on opening (small) or on first use (medium).
SMALL, MEDIUM = 1 << 18, 1 << 24
HEADER_START = b'{"__metadata__":{"bioel":'  # bytes 8 to 32 of every file from `serialized`
_MAX_HEADER = 100_000_000  # maximum size in bytes, as in the safetensors library
_DTYPE_CODES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float32": "F32",
}  # fmt: skip
_DTYPES = {code: dtype for dtype, code in _DTYPE_CODES.items()}
_STRINGS_PER_WRITE = 1 << 14


# -- Files --------------------------------------------------------------------------------------


def map_file(path: Path) -> RawFile:
    """Memory-map a file, read-only."""
    empty = path.stat().st_size == 0  # mmap refuses empty files
    return np.zeros(0, np.uint8) if empty else np.asarray(np.memmap(path, np.uint8, mode="r"))


def give_back(*arrays: NDArray[Any]) -> None:
    """Release the pages of memory-mapped arrays from this process; they stay in the page cache.

    Otherwise, the process's memory use grows to the size of the mapped files. Arrays that are not
    mapped are ignored.
    """
    for base in arrays:
        while isinstance(base, np.ndarray):
            base = base.base  # type: ignore[assignment]
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def checksum(data: bytes | memoryview) -> str:
    """Return the BLAKE2b digest as 32 hexadecimal digits."""
    return blake2b(data, digest_size=16).hexdigest()


def checksums_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    return {name: checksum(bytes_of(array)) for name, array in arrays.items()}


def fingerprint_of(checksums: Mapping[str, str]) -> str:
    """Return the fingerprint of several arrays: a hash of their names and checksums."""
    lines = "".join(f"{name} {checksums[name]}\n" for name in sorted(checksums))
    return checksum(lines.encode("utf8"))


def serialized(arrays: Mapping[str, NDArray[Any]], **about: Any) -> list[memoryview]:
    """Return the pieces of a safetensors file: a header, then the arrays (not copied).

    about: JSON values that describe the arrays; `checksums` maps array names to checksums.
    """
    # Put the widest numbers last and make the file's length a multiple of eight, so that all arrays
    # are aligned without gaps, even if this file is embedded in another file.
    ordered = dict(sorted(arrays.items(), key=lambda item: item[1].itemsize))
    header: dict[str, Any] = {"__metadata__": {"bioel": json.dumps({**about, "seal": UNSEALED})}}
    end = 0
    for name, array in ordered.items():
        entry = {"dtype": _DTYPE_CODES[array.dtype.name], "shape": array.shape}
        header[name] = entry | {"data_offsets": (end, end + array.nbytes)}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(len(text) + end) % 8)
    text = text.replace(UNSEALED.encode("ascii"), checksum(text).encode("ascii"))
    start = len(text).to_bytes(8, "little") + text
    return [memoryview(start), *map(bytes_of, ordered.values())]


class TensorFile:
    """The arrays in a file from `serialized`, and their description.

    arrays (dict[str, NDArray]): Arrays by name, sharing the file's memory.
    about (dict[str, Any]): Description of the arrays.
    checksums (dict[str, str]): Checksum of each array, by name.
    fingerprint (str): Fingerprint of all arrays.
    RAISES BioelError: [B030] unreadable or truncated file, [B210] edited header.
    """

    def __init__(self, raw: RawFile, origin: Origin = Origin()) -> None:
        self.origin = origin
        self.arrays: dict[str, NDArray[Any]] = {}
        try:
            start = end = 8 + int.from_bytes(raw[:8].tobytes(), "little")
            if start > min(len(raw), _MAX_HEADER):
                raise ValueError("its header is truncated")
            text = raw[8:start].tobytes()
            header = dict(json.loads(text))
            self.about: dict[str, Any] = dict(json.loads(header.pop("__metadata__")["bioel"]))
            seal = str(self.about.pop("seal", None))
            self.checksums = dict(self.about.pop("checksums", {}))
            ends = [start + entry["data_offsets"][1] for entry in header.values()]
            if len(raw) != (expected := max([start, *ends])):
                raise ValueError(f"{len(raw)} bytes, but {expected} according to its header")
            for name, entry in header.items():
                if start + entry["data_offsets"][0] != end:
                    raise ValueError(f"{name} does not follow the array before it")
                begin, end = end, start + entry["data_offsets"][1]
                array = raw[begin:end].view(_DTYPES[entry["dtype"]])
                self.arrays[name] = array.reshape(entry["shape"])
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            message = Errors.B030.format(path=origin.where, file=origin.file, error=error)
            raise BioelError(message) from None
        unsealed = text.replace(seal.encode("utf8", "replace"), UNSEALED.encode("ascii"))
        if (found := checksum(unsealed)) != seal:
            raise origin.error(Errors.B210, f"checksum {seal}", found)
        self.fingerprint = fingerprint_of(self.checksums)
        self._verified: set[str] = set()

    def check(self, schema: Mapping[str, str], message: str, *, up_to: int, **sizes: int) -> None:
        """Check all arrays against a schema, and small arrays against their checksums.

        schema (Mapping[str, str]): For each array, its data type and the names of its dimensions,
            such as "int8 n dim". "n+1" is one more than "n"; "uint" can have any width.
        message (str): Error template for a missing array, or one with another type or shape.
        up_to (int): Maximum size of a small array, in bytes.
        sizes: Known sizes of dimensions; other dimensions must have one size in all arrays.
        RAISES BioelError: `message`; [B024] damaged small array.
        """
        for name, spec in schema.items():
            array, origin = self.arrays.get(name), self.origin_of(name)
            if array is None:
                raise origin.error(message, spec, "nothing")
            dtype, *dimensions = spec.split()
            shape: list[int] = []
            for dimension, n in zip(dimensions, array.shape, strict=False):
                more = dimension.endswith("+1")
                shape.append(sizes.setdefault(dimension.removesuffix("+1"), n - more) + more)
            is_same_shape = array.shape == tuple(shape) and len(shape) == len(dimensions)
            if not (is_same_shape and array.dtype.name.startswith(dtype)):
                expected = f"{dtype} of shape {tuple(shape)}"
                raise origin.error(message, expected, f"{array.dtype} of shape {array.shape}")
            if array.nbytes <= up_to:
                self._verify(name)

    def verify(self) -> None:
        """Compare all arrays with their checksums. RAISES BioelError: [B024] if one differs."""
        for name in self.arrays:
            self._check_contents(name)

    def origin_of(self, name: str) -> Origin:
        """Return the origin of an array, for error messages and checks."""
        verify = partial(self._verify, name)
        return Origin(self.origin.where, f"{name} in {self.origin.file}", verify)

    def column(self, name: str) -> KbColumn:
        return KbColumn(self.arrays[name], self.origin_of(name))

    def _verify(self, name: str) -> None:
        """Compare an array with its checksum on the first call, unless the array is large."""
        if name not in self._verified and self.arrays[name].nbytes <= MEDIUM:
            self._check_contents(name)
            self._verified.add(name)

    def _check_contents(self, name: str) -> None:
        expected = self.checksums.get(name)
        if (found := checksum(bytes_of(self.arrays[name]))) != expected:
            raise self.origin_of(name).error(Errors.B024, expected, found)


# -- Schema -------------------------------------------------------------------------------------

# Increment this number whenever a column is added or removed, or its meaning changes.
SCHEMA_VERSION = 5

XREF_SEPARATOR = "\t"
# Maps string columns (newline-terminated UTF-8) to their kind of row. NAME.offsets has the offsets.
STRING_COLUMNS = {
    "ids": "concepts",
    "names": "names",
    "definitions": "concepts",
    "type_names": "types",
    "retired": "retired",
    "xrefs": "concepts",  # cross-references of each concept, separated by `XREF_SEPARATOR`
    "sources": "sources",  # sources of the build and of later additions
}
# Data type and length of each column; see `TensorFile.check`.
KB_COLUMNS = {
    **{f"{name}.offsets": f"uint64 {rows}+1" for name, rows in STRING_COLUMNS.items()},
    **{name: f"uint8 {name}_bytes" for name in STRING_COLUMNS},
    # Sorted keys, and the row of each key, for binary search.
    "name_keys": "uint64 names",
    "name_key_rows": "int32 names",
    "id_keys": "uint64 concepts",
    "id_key_rows": "int32 concepts",
    "retired_keys": "uint64 retired",
    "retired_key_rows": "int32 retired",
    "retired_targets": "int32 retired",  # row of the concept that replaced each retired id.
    # Ragged (CSR) columns, each stored as a column of offsets and one or more columns of values.
    "name_offsets": "int64 names+1",
    "name_concepts": "int32 entries",
    "name_is_preferred": "bool entries",  # one flag per entry of name_concepts
    "concept_offsets": "int64 concepts+1",
    "concept_names": "int32 entries",  # rows of each concept's names, the preferred name first
    "name_sources": "int32 entries",  # source row of each entry of concept_names
    "type_offsets": "int64 concepts+1",
    "type_ids": "int32 type_entries",
    "parent_offsets": "int64 concepts+1",
    "parents": "int32 parent_entries",
    # Inverted index of character 3-grams (see `kb.spelling`).
    "ngram_codes": "uint32 ngrams",
    "ngram_offsets": "int64 ngrams+1",
    "ngram_names": "int32 postings",
    "ngram_norms": "float32 names",
}


def write_column(folder: Path, name: str, values: Sequence[Any] | NDArray[Any]) -> None:
    """Write a column to a scratch file, cast to the data type in the schema."""
    column = np.asarray(values, dtype=KB_COLUMNS[name].split()[0])
    (folder / name).write_bytes(bytes_of(column))


def write_strings(folder: Path, name: str, values: Iterable[str]) -> None:
    """Write a column of strings and its offsets. The strings must not contain newlines.

    RAISES BioelError: [B480] if a string contains a lone surrogate.
    """
    waiting, end, offsets = iter(values), 0, [np.zeros(1, np.uint64)]
    with (folder / name).open("wb") as stream:
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
    write_column(folder, f"{name}.offsets", np.concatenate(offsets))


def serialized_columns(folder: Path, **about: Any) -> tuple[list[memoryview], str]:
    """Serialise a folder's columns, and a description of the knowledge base, as a single file.

    about: source, release and licence, counts from the build report, and the withdrawn ids.
    RETURNS (tuple): Pieces of the file (see `serialized`), and the fingerprint of the columns.
    """
    columns = {
        name: map_file(folder / name).view(KB_COLUMNS[name].split()[0]) for name in KB_COLUMNS
    }
    checksums = checksums_of(columns)
    versions = {"schema": SCHEMA_VERSION, "normalizer": NORMALIZER_VERSION}
    about = {**versions, "created": datetime.now(UTC).date().isoformat(), **about}
    return serialized(columns, **about, checksums=checksums), fingerprint_of(checksums)


def open_columns(raw: RawFile, origin: Origin) -> TensorFile:
    """Open a knowledge base's columns, and check their versions and schema.

    RAISES BioelError: [B030] unreadable or truncated file, [B210] edited header, [B021] another
        schema version, [B022] another normaliser version, [B023] missing or foreign column, [B024]
        damaged small column.
    """
    file, path = TensorFile(raw, origin), origin.where
    schema, normalizer, counts = map(file.about.get, ("schema", "normalizer", "counts"))
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise BioelError(Errors.B021.format(path=path, found=schema, expected=SCHEMA_VERSION))
    if normalizer != NORMALIZER_VERSION:
        expected = NORMALIZER_VERSION
        raise BioelError(Errors.B022.format(path=path, found=normalizer, expected=expected))
    if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
        raise origin.error(Errors.B210, "counts", counts)
    file.check(KB_COLUMNS, Errors.B023, up_to=SMALL)
    return file
