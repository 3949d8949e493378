"""What all readers have in common: files are opened, compressed or not, and read line by line or
element by element; ids become CURIEs, offsets are checked, and bad records may be skipped.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zipfile
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree.ElementTree import Element, ParseError, iterparse

import zstandard

from spacy_bioel.errors import BioelError, Errors

StrPath = str | os.PathLike[str]
# From spellings of a vocabulary in sources to prefixes of this package. CTD has "DO:DOID:0001816".
_SPELLINGS = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": "", "cellosaurus": ""}
_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")


class Place(NamedTuple):
    """Where a record begins; line 0: the format has no lines."""

    path: StrPath
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}" if self.line else str(self.path)


def curie(raw: str, prefix: str = "") -> str:
    """Convert one id to a CURIE, or for UMLS to the bare CUI.

    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH". With "MESH", six digits are an
        OMIM number: the disease corpora mix the two, and no MeSH id is a plain number.
    """
    raw = raw.strip()
    if ":" not in raw:
        if not prefix or not raw:
            return raw
        if prefix.lower() == "mesh" and _OMIM_NUMBER.fullmatch(raw):
            prefix = "OMIM"
        raw = f"{prefix}:{raw}"
    vocabulary, local = raw.split(":", 1)
    return _SPELLINGS.get(vocabulary.lower(), f"{vocabulary}:") + local.strip()


def split_ids(raw: str, prefix: str = "") -> tuple[str, ...]:
    """Split a field at "|", "+", ";" and "," into distinct CURIEs; "-1", "NIL", ... are no ids."""
    parts = (part.strip() for part in _SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Strip names, and drop empty and repeated ones."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, names))))


def tree_types(trees: Iterable[str]) -> tuple[str, ...]:
    """Return the semantic types of MeSH tree numbers: "C18.452.394.750" gives "C18" and "C"."""
    # CTD appends supplementary records to tree numbers with a slash: "C19.246/C535484".
    codes = list(dict.fromkeys(re.split("[./]", tree.strip())[0] for tree in trees))
    return tuple(dict.fromkeys(filter(None, codes + [code[:1] for code in codes])))


def check_words(
    text: str, fragments: Sequence[tuple[int, int]], words: str | None, *, where: object
) -> None:
    """Refuse a mention outside the text [B105], or with other words than the text has at its
    offsets [B106]; white space may differ, and None are not known.
    """
    for start, end in fragments:
        if not 0 <= start < end <= len(text):
            message = Errors.B105.format(where=where, start=start, end=end, length=len(text))
            raise BioelError(message)
    found = " ".join(text[start:end] for start, end in fragments)
    if words not in (None, found) and "".join(found.split()) != "".join(str(words).split()):
        start, end = fragments[0][0], fragments[-1][1]
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=found, expected=words)
        )


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was skipped; its line is 0 where the format has no lines."""

    path: str
    line: int
    message: str

    @property
    def code(self) -> str:
        return self.message[1:].partition("]")[0]


@dataclass(slots=True)
class Skipped:
    """Bad records so far, of which `tell` is told; files that are read twice have theirs once.

    kept (int): Records that were not skipped, as far as the caller counts them.
    """

    tell: Callable[[BadRecord], None]
    first: BadRecord | None = None
    n: int = 0
    kept: int = 0
    place: Place = Place("")
    _seen: set[int] = field(default_factory=set)  # hashes: there may be millions

    def add(self, error: BioelError) -> None:
        record = BadRecord(str(self.place.path), self.place.line, str(error))
        if hash(record) not in self._seen:
            self._seen.add(hash(record))
            self.first = self.first or record
            self.n += 1
            self.tell(record)


_SKIPPED: ContextVar[Skipped | None] = ContextVar("skipped", default=None)
skipped_so_far = _SKIPPED.get  # None outside `skipping_bad`


@contextmanager
def skipping_bad(tell: Callable[[BadRecord], None]) -> Iterator[Skipped]:
    """Skip bad records inside this block, in all readers that are consumed there."""
    skipped = Skipped(tell)
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


class one_record:
    """The reading of one record; inside `skipping_bad` its errors are noted and not raised.

    place (Place | None): None: that of the record before, which another function reads on.
    """

    __slots__ = ("_place",)

    def __init__(self, place: Place | None = None) -> None:
        self._place = place

    def __enter__(self) -> None:
        if self._place is not None and (skipped := _SKIPPED.get()) is not None:
            skipped.place = self._place

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, BioelError) or (skipped := _SKIPPED.get()) is None:
            return False
        skipped.add(error)
        return True


_BESIDE = re.compile(r"/$|^__MACOSX/")  # folders, and what a Mac adds
_CHUNK = 1 << 16
_ZSTD_CHUNK = 1 << 11  # packed bytes, which become 64 MB at most
# Text becomes up to 40 times smaller; what is many times smaller would only fill the memory.
_MAX_RATIO = 100
_FREE = 1 << 26  # bytes that any archive may have
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, zipfile.BadZipFile)


class _Unpacked(io.RawIOBase):
    """Raw bytes of an archive, which may not be many times larger than the archive."""

    def __init__(self, chunks: Iterator[bytes], path: Path) -> None:
        self._chunks = chunks
        self._path = path
        self._ready = memoryview(b"")
        self._left = self._limit = max(_FREE, _MAX_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._ready = self._ready or memoryview(next(filter(None, self._chunks), b""))
        n = min(len(buffer), len(self._ready))
        buffer[:n], self._ready = self._ready[:n], self._ready[n:]
        self._left -= n
        if self._left < 0:
            path, limit = self._path, self._limit
            raise BioelError(Errors.B478.format(path=path, limit=limit, ratio=_MAX_RATIO))
        return n


def _unpacking(raw: io.BufferedReader, path: Path) -> Iterator[bytes] | None:
    """Return the contents of an archive in chunks; None for another file."""
    magic = raw.peek(4)
    if magic.startswith(b"\x1f\x8b"):
        return iter(partial(gzip.GzipFile(fileobj=raw).read, _CHUNK), b"")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpacking_zstd(raw)
    if not magic.startswith(b"PK\x03\x04"):
        return None
    try:
        archive = zipfile.ZipFile(raw)
        names = [name for name in archive.namelist() if not _BESIDE.search(name)]
        if len(names) == 1:
            return iter(partial(archive.open(names[0]).read, _CHUNK), b"")
    except Exception as error:  # of any kind: damaged, encrypted, an unknown method
        raise BioelError(Errors.B104.format(path=path, error=error)) from error
    first = ", ".join(names[:3]) or "none"
    raise BioelError(Errors.B477.format(path=path, n=len(names), first=first))


def _unpacking_zstd(raw: io.BufferedReader) -> Iterator[bytes]:
    """Unpack all frames. Unlike zstandard's own reader, this detects truncated files."""
    chunk = raw.read(_ZSTD_CHUNK)
    while chunk:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if not chunk:
                raise EOFError("the last frame is incomplete")
            yield frame.decompress(chunk)
            chunk = frame.unused_data or raw.read(_ZSTD_CHUNK)


@contextmanager
def open_binary(path: StrPath) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes; .gz, .zst and a .zip of one file are recognised by their first
    bytes, and unpacked.

    RAISES BioelError: [B101] no such file, [B407] a folder, [B102] empty file, [B104] damaged
        archive, [B477] a .zip of several files, [B478] an archive of far more bytes than text has.
    """
    path = Path(path)
    if path.is_dir():
        raise BioelError(Errors.B407.format(path=path))
    if not path.is_file():
        raise BioelError(Errors.B101.format(path=path))
    with open(path, "rb") as reader:
        try:
            if (chunks := _unpacking(reader, path)) is not None:
                reader = io.BufferedReader(_Unpacked(chunks, path), _CHUNK)
            if not reader.peek(1):
                raise BioelError(Errors.B102.format(path=path))
            yield reader
        except _DAMAGED as error:
            raise BioelError(Errors.B104.format(path=path, error=error)) from error


@contextmanager
def open_text(path: StrPath, *, errors: str = "strict") -> Iterator[TextIO]:
    """Open a text file in UTF-8 as `open_binary` does; a byte order mark is dropped.

    Lines end at "\\n" only and keep their ends, so that offsets into the text are exact.

    errors (str): As of `open`: "replace" takes any bytes.
    RAISES BioelError: Errors of `open_binary`; [B103] bytes that do not decode, with their line.
    """
    with open_binary(path) as reader:
        text = io.TextIOWrapper(reader, encoding="utf-8-sig", errors=errors, newline="\n")
        try:
            yield text
        except UnicodeDecodeError:  # it has read ahead, and does not know the line
            with open_binary(path) as reader:
                for number, line in enumerate(reader, start=1):
                    _decoded(Place(path, number), line)
            raise
        finally:
            text.detach()


def _decoded(place: Place, line: bytes) -> str:
    try:
        return line.decode("utf8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
        path, number = place
        likely = "utf-16" if line.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "windows-1252"
        message = Errors.B103.format(path=path, line=number, found=found, likely=likely)
        raise BioelError(message) from error


def numbered_lines(path: StrPath) -> Iterator[tuple[Place, str]]:
    """Stream the lines of a text file with their places, without line ends.

    RAISES BioelError: Errors of `open_text`.
    """
    with open_binary(path) as reader:
        for number, raw in enumerate(reader, start=1):
            place = Place(path, number)
            try:
                line = _decoded(place, raw).rstrip("\r\n")
            except BioelError:
                with one_record(place):
                    raise
                continue
            yield place, line.removeprefix("\ufeff") if number == 1 else line


def first_line(path: StrPath) -> str:
    """Return the first line of a text file that decodes; "" if none does, and bad ones are skipped.

    RAISES BioelError: Errors of `open_text`.
    """
    return next((line for _, line in numbered_lines(path)), "")


def iter_xml(path: StrPath, tag: str) -> Iterator[Element]:
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
            where = Place(path, error.position[0])
            raise BioelError(Errors.B111.format(where=where, error=error)) from error
        except BioelError:
            raise
        except (LookupError, ValueError) as error:  # an encoding that expat does not know
            raise BioelError(Errors.B260.format(path=path, error=error)) from error
