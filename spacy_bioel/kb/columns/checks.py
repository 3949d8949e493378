"""Checks of what is read from a knowledge base: damage becomes a coded error.

At opening, headers, lengths and the checksums of small files are checked, which takes milliseconds
whatever the size. What is too large for that is checked where it is used: offsets for their order,
rows for their range, strings for their ends. `KnowledgeBase.verify` reads everything.
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

# Files of at most this size are compared with their checksum when they are opened.
SMALL = 1 << 18
_UNSIGNED: dict[int, type[np.unsignedinteger]] = {4: np.uint32, 8: np.uint64}
# Stands in a text where the checksum of this text will be.
UNSEALED = "0" * 32

# The header that numpy writes before arrays of plain numbers, and nothing else.
_NPY = re.compile(
    rb"\{'descr': '([<>|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \((\d{1,18},|\d{1,18}(?:, \d{1,18})+)\), \} *\n"
)
_NPY_START = b"\x93NUMPY\x01\x00"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an array comes from, for messages.

    where (str): The folder of the knowledge base, or what stands for it.
    file (str): The file in it.
    """

    where: str = "memory"
    file: str = "an array"

    def damaged(self, *, expected: str, found: object) -> BioelError:
        """The error [B211] to raise."""
        return BioelError(
            Errors.B211.format(path=self.where, file=self.file, expected=expected, found=found)
        )

    def rows(self, values: Rows, *, below: int) -> Rows:
        """These values, if they are rows from 0 to `below` - 1.

        values (NDArray): Signed integers of any shape.
        RAISES BioelError: [B211].
        """
        # Without their sign negative numbers are the largest: one pass in the place of two.
        unsigned = values.view(_UNSIGNED[values.itemsize])
        if values.size and int(unsigned.max()) >= below:
            wrong = values[unsigned >= below].flat[0]
            raise self.damaged(expected=f"rows from 0 to {below - 1}", found=wrong)
        return values

    def check_offsets(self, offsets: NDArray[np.integer], *, least: int, end: int) -> None:
        """Hold all offsets of a column against the values that they divide.

        least (int): Fewest values of a row.
        end (int): How many values there are.
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
        """Hold the first and the last offset against their values. RAISES BioelError: [B211]."""
        found = (int(offsets[0]), int(offsets[-1])) if len(offsets) else "none"
        if found != (0, end):
            raise self.damaged(expected=f"offsets from 0 to {end}", found=found)


def npy_layout(raw: RawFile) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type, shape and first byte of the numbers of a .npy file, by its header.

    numpy's own reader takes the header for Python source: damage there can end in errors of the
    tokenizer, or in shapes of exabytes.

    raw (RawFile): The whole file. Shape (n_bytes,).
    RAISES ValueError: When this is not a plain .npy file of this byte order, or it was cut.
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
    """Whether this can name a file of a knowledge base: letters, digits, '_', '-' and dots within,
    alone or as "vectors/.../...", so that it leads out of the folder on no system."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    is_placed = len(parts) == 1 or (len(parts) == 3 and parts[0] == "vectors")
    return is_placed and all(map(_FILE_NAME.fullmatch, parts))


def read_json(raw: bytes, *, where: str, file: str) -> dict[str, Any]:
    """The object in a JSON file. RAISES BioelError: [B030] when there is none."""
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise TypeError(f"expected an object, found {type(found).__name__}")
    except (ValueError, TypeError, RecursionError) as error:
        raise BioelError(Errors.B030.format(path=where, file=file, error=error)) from None
    return found


def mistyped(about: Mapping[str, Any], types: Mapping[str, type]) -> list[str]:
    """Keys whose values are missing or of another type; True is no number here."""
    return [key for key, expected in types.items() if type(about.get(key)) is not expected]


def checksum(raw: RawFile | bytes) -> str:
    """BLAKE2b of a file's bytes, 32 hexadecimal digits."""
    return blake2b(memoryview(raw), digest_size=16).hexdigest()  # type: ignore[arg-type]


def sealed_json(about: Mapping[str, Any]) -> bytes:
    """A JSON text that holds its own checksum, in the place of the one `UNSEALED` in `about`."""
    text = json.dumps(about, indent=1).encode("utf8")
    return text.replace(UNSEALED.encode("ascii"), checksum(text).encode("ascii"))


def check_seal(text: bytes, seal: object, *, where: str, file: str) -> None:
    """Compare a text with the checksum that `sealed_json` has put into it.

    seal (object): What was found where the checksum should be.
    RAISES BioelError: [B210] when one byte or more is another one.
    """
    found = str(seal)
    unsealed = text.replace(found.encode("utf8", "replace"), UNSEALED.encode("ascii"))
    if len(found) != len(UNSEALED) or checksum(unsealed) != found:
        raise edited(where, file, expected=f"checksum {found}", found=checksum(unsealed))


def edited(where: str, file: str, *, expected: str, found: object) -> BioelError:
    """The error [B210] to raise."""
    return BioelError(Errors.B210.format(path=where, file=file, expected=expected, found=found))


def check_contents(raw: RawFile, expected: object, *, where: str, file: str) -> None:
    """Compare a file with its checksum. RAISES BioelError: [B024] when they differ."""
    if (found := checksum(raw)) != expected:
        raise BioelError(Errors.B024.format(path=where, file=file, expected=expected, found=found))


def check_small(raw: RawFile, expected: object, *, where: str, file: str) -> None:
    """`check_contents` of a file that is read in no time; larger ones are for `verify`."""
    if raw.size <= SMALL:
        check_contents(raw, expected, where=where, file=file)
