"""Opening of text and XML, compressed or not; errors have the file and the line."""

from __future__ import annotations

import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast
from xml.etree.ElementTree import Element, ParseError, iterparse

import zstandard

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.json_values import parse_json
from spacy_bioel.io.records import is_skipping, one_record

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZIP_MAGIC = b"PK\x03\x04"
_BESIDE = re.compile(r"/$|^__MACOSX/")  # folders, and what a Mac adds
_CHUNK = 1 << 16
_ZSTD_CHUNK = 1 << 11  # packed bytes, which become 64 MB at most
# Text becomes up to 40 times smaller; what is many times smaller would only fill the memory.
_MAX_RATIO = 100
_FREE = 1 << 26  # bytes that any archive may have
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, zipfile.BadZipFile)
_Stream = io.RawIOBase | io.BufferedIOBase


class _ZstdStream(io.RawIOBase):
    """Raw bytes of a .zst file. Unlike zstandard's own reader, it detects truncated files."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        while not self._ready:
            chunk = self._next_chunk()
            if not chunk:
                return 0
            self._ready = self._frame.decompress(chunk)
            self._started = True
        n = min(len(view), len(self._ready))
        view[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _next_chunk(self) -> bytes:
        """Next compressed bytes, from a new frame if the last one has ended."""
        rest = b""
        if self._frame.eof:
            rest = self._frame.unused_data
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = False
        chunk = rest or self._packed.read(_ZSTD_CHUNK)
        if not chunk and self._started:
            raise EOFError("the last frame is incomplete")
        return chunk


class _Unpacked(io.RawIOBase):
    """Raw bytes of an archive, which may not be many times larger than the archive."""

    def __init__(self, stream: _Stream, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._limit = max(_FREE, _MAX_RATIO * path.stat().st_size)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        n = self._stream.readinto(buffer) or 0
        self._size += n
        if self._size > self._limit:
            raise BioelError(
                Errors.B478.format(path=self._path, limit=self._limit, ratio=_MAX_RATIO)
            )
        return n


@contextmanager
def open_binary(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes; .gz, .zst and a .zip of one file are recognised by their first
    bytes.

    path (str | PathLike): File, packed or not.
    YIELDS (io.BufferedReader): Unpacked bytes, not empty.
    RAISES BioelError: [B101] no such file, [B407] a folder, [B102] empty file, [B104] damaged
        archive, [B477] a .zip of several files, [B478] an archive of far more bytes than text has.
    """
    path = Path(path)
    if path.is_dir():
        raise BioelError(Errors.B407.format(path=path))
    if not path.is_file():
        raise BioelError(Errors.B101.format(path=path))
    with open(path, "rb") as raw:
        try:
            stream = _unpacking(raw, path)
            reader: io.BufferedReader = raw
            if stream is not None:
                unpacked: io.RawIOBase = _Unpacked(stream, path)
                reader = io.BufferedReader(unpacked, _CHUNK)
            if not reader.peek(1):
                raise BioelError(Errors.B102.format(path=path))
            yield reader
        except _DAMAGED as error:
            raise BioelError(Errors.B104.format(path=path, error=error)) from error


def _unpacking(raw: io.BufferedReader, path: Path) -> _Stream | None:
    """Stream of what is in an archive; None for another file."""
    magic = raw.peek(len(_ZSTD_MAGIC))
    if magic.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(_ZSTD_MAGIC):
        return _ZstdStream(raw)
    if not magic.startswith(_ZIP_MAGIC):
        return None
    try:
        archive = zipfile.ZipFile(raw)
        names = [name for name in archive.namelist() if not _BESIDE.search(name)]
        if len(names) == 1:
            return cast(io.BufferedIOBase, archive.open(names[0]))
    except Exception as error:  # of any kind: damaged, encrypted, an unknown method
        raise BioelError(Errors.B104.format(path=path, error=error)) from error
    first = ", ".join(names[:3]) or "none"
    raise BioelError(Errors.B477.format(path=path, n=len(names), first=first))


@contextmanager
def open_text(
    path: str | os.PathLike[str], *, encoding: str = "utf8", errors: str = "strict"
) -> Iterator[TextIO]:
    """Open a text file for reading; .gz and .zst are decompressed, a byte order mark is dropped.

    Lines end at "\\n" only and keep their ends, so that offsets into the text are exact.

    path (str | PathLike): File, compressed or not.
    encoding (str): Encoding of the file.
    errors (str): As of `open`: "replace" takes any bytes.
    YIELDS (TextIO): Text of the file.
    RAISES BioelError: Errors of `open_binary`; [B103] bytes that do not decode, with their line.
    """
    codec = "utf-8-sig" if encoding.lower().replace("-", "") == "utf8" else encoding
    with open_binary(path) as reader:
        text = io.TextIOWrapper(reader, encoding=codec, errors=errors, newline="\n")
        try:
            yield text
        except UnicodeDecodeError as error:
            raise _decoding_error(path, encoding) or error from error
        finally:
            text.detach()


def _decoding_error(path: str | os.PathLike[str], encoding: str) -> BioelError | None:
    """Find the line that does not decode; TextIOWrapper reads ahead and does not know it."""
    with open_binary(path) as reader:
        for number, line in enumerate(reader, start=1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                return _not_decoded(path, number, line[error.start], error.start, encoding)
    return None


def numbered_lines(
    path: str | os.PathLike[str], *, encoding: str = "utf8"
) -> Iterator[tuple[int, str]]:
    """Stream the lines of a text file with their numbers, from 1, without line ends.

    RAISES BioelError: Errors of `open_text`.
    """
    # Bytes that do not decode become lone surrogates where their lines are to be skipped.
    errors = "surrogateescape" if is_skipping() else "strict"
    with open_text(path, encoding=encoding, errors=errors) as file:
        for number, line in enumerate(file, start=1):
            if errors == "strict" or _is_decoded(path, number, line, encoding):
                yield number, line.rstrip("\r\n")


def first_line(path: str | os.PathLike[str], *, encoding: str = "utf8") -> str:
    """The first line of a text file that decodes; "" if none does, and bad ones are skipped.

    RAISES BioelError: Errors of `open_text`.
    """
    return next((line for _, line in numbered_lines(path, encoding=encoding)), "")


def _is_decoded(path: str | os.PathLike[str], number: int, line: str, encoding: str) -> bool:
    with one_record(path, number):
        try:
            line.encode(encoding)
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) & 0xFF
            raise _not_decoded(path, number, byte, error.start, encoding) from error
        return True
    return False


def _not_decoded(
    path: str | os.PathLike[str], line: int, byte: int, at: int, encoding: str
) -> BioelError:
    found = f"byte 0x{byte:02x} at column {at + 1}"
    return BioelError(Errors.B103.format(path=path, line=line, found=found, encoding=encoding))


def read_json_object(path: str | os.PathLike[str], *, problem: str) -> dict[str, Any]:
    """Read a file that is one JSON object.

    problem (str): Template of `Errors` with {path} and {found}, for files with other contents.
    RAISES BioelError: Errors of `open_text`; the error of `problem`.
    """
    with open_text(path) as file:
        text = file.read()
    try:
        found = parse_json(text)
    except ValueError as error:
        raise BioelError(problem.format(path=path, found=error)) from error
    if not isinstance(found, dict):
        raise BioelError(problem.format(path=path, found=f"a {type(found).__name__}"))
    return found


def iter_xml(path: str | os.PathLike[str], tag: str) -> Iterator[Element]:
    """Stream the complete elements of one tag; each is freed when the next one is read.

    RAISES BioelError: Errors of `open_binary`; [B111] not well-formed XML, [B260] unknown encoding.
    """
    with open_binary(path) as file:
        try:
            events = iterparse(file, events=("start", "end"))
            root = next(events)[1]
            for event, element in events:
                if event == "end" and element.tag == tag:
                    yield element
                    root.clear()
        except ParseError as error:
            line = error.position[0]
            raise BioelError(Errors.B111.format(path=path, line=line, error=error)) from error
        except BioelError:
            raise
        except (LookupError, ValueError) as error:  # an encoding that expat does not know
            raise BioelError(Errors.B260.format(path=path, error=error)) from error
