"""Checks of the files of a knowledge base, which turn damage into coded errors.

Opening checks headers, lengths and the checksums of small files, which takes milliseconds at any
size. Large files are checked where they are used: the order of offsets, the range of rows, the
ends of strings. `KnowledgeBase.verify` compares all checksums.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors

RawFile = NDArray[np.uint8]
Rows = TypeVar("Rows", bound=NDArray[np.integer])

# Files up to this size (in bytes) are compared with their checksum when they are opened.
SMALL = 1 << 18
_UNSIGNED: dict[int, type[np.unsignedinteger]] = {4: np.uint32, 8: np.uint64}
# Placeholder of the checksum of a text in this text.
UNSEALED = "0" * 32

# Header of the .npy files that numpy writes for arrays of plain numbers.
_NPY = re.compile(
    rb"\{'descr': '([<>|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \((\d{1,18},|\d{1,18}(?:, \d{1,18})+)\), \} *\n"
)
_NPY_START = b"\x93NUMPY\x01\x00"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an array, for messages.

    where (str): Folder of the knowledge base, or "memory".
    file (str): Name of the file in it.
    """

    where: str = "memory"
    file: str = "an array"

    def damaged(self, *, expected: str, found: object) -> BioelError:
        """Error [B211] for the caller to raise."""
        return BioelError(
            Errors.B211.format(path=self.where, file=self.file, expected=expected, found=found)
        )

    def rows(self, values: Rows, *, below: int) -> Rows:
        """Check that values are rows from 0 to `below` - 1, and return them.

        values (NDArray): Signed integers of any shape.
        RAISES BioelError: [B211].
        """
        # As unsigned integers, negative numbers are the largest: one pass checks both bounds.
        unsigned = values.view(_UNSIGNED[values.itemsize])
        if values.size and int(unsigned.max()) >= below:
            wrong = values[unsigned >= below].flat[0]
            raise self.damaged(expected=f"rows from 0 to {below - 1}", found=wrong)
        return values

    def check_offsets(self, offsets: NDArray[np.integer], *, least: int, end: int) -> None:
        """Check all offsets of a column.

        least (int): Minimum number of values of a row.
        end (int): Number of values.
        RAISES BioelError: [B211].
        """
        self.check_ends(offsets, end=end)
        steps = np.diff(offsets.view(np.int64))
        if steps.size and int(steps.min()) < least:
            row = int(np.argmin(steps))
            raise self.damaged(
                expected=f"offsets that grow by {least} or more",
                found=f"{offsets[row + 1]} after {offsets[row]}",
            )

    def check_ends(self, offsets: NDArray[np.integer], *, end: int) -> None:
        """Check the first and the last offset, 0 and `end`. RAISES BioelError: [B211]."""
        found = (int(offsets[0]), int(offsets[-1])) if len(offsets) else "none"
        if found != (0, end):
            raise self.damaged(expected=f"offsets from 0 to {end}", found=found)


def npy_layout(raw: RawFile) -> tuple[np.dtype, tuple[int, ...], int]:
    """Parse the header of a .npy file.

    numpy's own reader parses the header as Python source: damage there can end in tokenizer errors
    or in shapes of exabytes.

    raw (RawFile): The whole file. Shape (n_bytes,).
    RETURNS (tuple): dtype, shape, and position of the first number in bytes.
    RAISES ValueError: When this is not a plain .npy file of the native byte order, or it is
        truncated.
    """
    head = raw[:10].tobytes()
    start = 10 + int.from_bytes(head[8:], "little")
    header = _NPY.fullmatch(raw[10:start].tobytes())
    if head[:8] != _NPY_START or header is None:
        raise ValueError("not a .npy file of version 1.0 with plain numbers")
    try:
        dtype = np.dtype(header[1].decode("ascii"))
    except TypeError:
        raise ValueError("numbers of an unknown type") from None
    if not dtype.isnative:
        raise ValueError("numbers in the byte order of another kind of machine")
    shape = tuple(int(n) for n in header[2].decode("ascii").split(",") if n)
    expected = start + dtype.itemsize * math.prod(shape)
    if raw.size != expected:
        raise ValueError(f"{raw.size} bytes, its header says {expected}")
    return dtype, shape, start


def is_file_name(name: object) -> bool:
    """Whether a name is safe for a file of a knowledge base, and leads out of no folder.

    A name has letters, digits, '_', '-' and inner dots; vectors are "vectors/NAME/NAME",
    and tries alike.
    """
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    is_placed = len(parts) == 1 or (len(parts) == 3 and parts[0] in ("vectors", "tries"))
    return is_placed and all(map(_FILE_NAME.fullmatch, parts))


def read_json(raw: bytes, *, where: str, file: str) -> dict[str, Any]:
    """Parse a JSON file that is one object. RAISES BioelError: [B030] when it is not."""
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise TypeError(f"expected an object, found {type(found).__name__}")
    except (ValueError, TypeError, RecursionError) as error:
        raise BioelError(Errors.B030.format(path=where, file=file, error=error)) from None
    return found


def mistyped(about: Mapping[str, Any], types: Mapping[str, type]) -> list[str]:
    """Keys whose values are missing or of another type; a bool is not an int here."""
    return [key for key, expected in types.items() if type(about.get(key)) is not expected]


def checksum(raw: RawFile | bytes) -> str:
    """BLAKE2b digest of a file, 32 hexadecimal digits."""
    return blake2b(memoryview(raw), digest_size=16).hexdigest()  # type: ignore[arg-type]


def sealed_json(about: Mapping[str, Any]) -> bytes:
    """Serialise `about` to JSON with its own checksum in place of the value `UNSEALED`."""
    text = json.dumps(about, indent=1).encode("utf8")
    return text.replace(UNSEALED.encode("ascii"), checksum(text).encode("ascii"))


def check_seal(text: bytes, seal: object, *, where: str, file: str) -> None:
    """Compare a result of `sealed_json` with the checksum in it.

    seal (object): Value found in the place of the checksum.
    RAISES BioelError: [B210] when any byte differs.
    """
    found = str(seal)
    unsealed = text.replace(found.encode("utf8", "replace"), UNSEALED.encode("ascii"))
    if len(found) != len(UNSEALED) or checksum(unsealed) != found:
        raise edited(where, file, expected=f"checksum {found}", found=checksum(unsealed))


def edited(where: str, file: str, *, expected: str, found: object) -> BioelError:
    """Error [B210] for the caller to raise."""
    return BioelError(Errors.B210.format(path=where, file=file, expected=expected, found=found))


def check_contents(raw: RawFile, expected: object, *, where: str, file: str) -> None:
    """Compare a file with its checksum. RAISES BioelError: [B024] when they differ."""
    if (found := checksum(raw)) != expected:
        raise BioelError(Errors.B024.format(path=where, file=file, expected=expected, found=found))


def check_small(raw: RawFile, expected: object, *, where: str, file: str) -> None:
    """Compare a small file with its checksum; large files are left to `verify`."""
    if raw.size <= SMALL:
        check_contents(raw, expected, where=where, file=file)
