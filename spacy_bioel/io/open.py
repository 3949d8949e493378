"""Helpers shared by all readers: open and stream files, check offsets, and convert ids to CURIEs.
A bad record either raises an error, or is skipped and reported.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zipfile
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar
from xml.etree.ElementTree import Element, ParseError, iterparse

import zstandard

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings, needing

StrPath = str | os.PathLike[str]
# Maps lower-case vocabulary names found in sources to CURIE prefixes. CTD writes "DO:DOID:0001816".
_PREFIX_OF_VOCABULARY = {"mesh": "MESH:", "omim": "OMIM:", "umls": "", "do": "", "cellosaurus": ""}
_ID_SEPARATORS = re.compile(r"[|+;,]")
_NIL = frozenset({"", "-", "-1", "nil", "cui-less"})
_OMIM_NUMBER = re.compile(r"\d{6}")
_N_SHOWN = 3  # number of error messages to keep for skipped records
_Good = TypeVar("_Good")


class Place(NamedTuple):
    """File and line where a record begins; the line is 0 for formats without lines."""

    path: StrPath
    line: int = 0
    sheet: str = ""  # sheet name, if several sheets of a workbook are read

    def __str__(self) -> str:
        unit = "row" if str(self.path).endswith(WORKBOOKS) else "line"
        return f"{self.path}, {unit} {self.line}" if self.line else str(self.path)


def curie(raw: str, prefix: str = "") -> str:
    """Convert an id to a CURIE (or, for UMLS, to a bare CUI).

    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH" or "MESH:". With "MESH", six
        digits are an OMIM number: disease corpora mix the two, and no MeSH id is a plain number.
    """
    raw = raw.strip()
    if ":" not in raw:
        if not prefix or not raw:
            return raw
        prefix = prefix.removesuffix(":")
        if prefix.lower() == "mesh" and _OMIM_NUMBER.fullmatch(raw):
            prefix = "OMIM"
        raw = f"{prefix}:{raw}"
    vocabulary, local = raw.split(":", 1)
    return _PREFIX_OF_VOCABULARY.get(vocabulary.lower(), f"{vocabulary}:") + local.strip()


def parse_ids(raw: str, prefix: str = "") -> tuple[str, ...]:
    """Split an id field at "|", "+", ";" and "," into distinct CURIEs, dropping "-1", "NIL" etc."""
    parts = (part.strip() for part in _ID_SEPARATORS.split(raw))
    return tuple(dict.fromkeys(curie(part, prefix) for part in parts if part.lower() not in _NIL))


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Strip names, and drop empty ones and duplicates."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, names))))


def tree_types(trees: Iterable[str]) -> tuple[str, ...]:
    """Return the semantic types for MeSH tree numbers: "C18" and "C" for "C18.452.394.750"."""
    # CTD appends supplementary records to tree numbers after a slash: "C19.246/C535484".
    codes = list(dict.fromkeys(re.split("[./]", tree.strip())[0] for tree in trees))
    return tuple(dict.fromkeys(filter(None, codes + [code[:1] for code in codes])))


def check_words(
    text: str, fragments: Sequence[tuple[int, int]], words: str | None, *, where: object
) -> None:
    """Check that a mention's offsets lie within the text and match its words.

    words (str | None): The mention's words according to the source; white space may differ.
    RAISES BioelError: [B105] if the offsets are outside the text, [B106] if the words differ.
    """
    for start, end in fragments:
        if not 0 <= start < end <= len(text):
            message = Errors.B105.format(where=where, start=start, end=end, length=len(text))
            raise BioelError(message)
    actual = " ".join(text[start:end] for start, end in fragments)
    if words not in (None, actual) and "".join(actual.split()) != "".join(str(words).split()):
        start, end = fragments[0][0], fragments[-1][1]
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=actual, expected=words)
        )


def misspelt(word: str, keywords: Iterable[str]) -> str:
    """Return the keyword that a word is probably a misspelling of, or "" if there is none."""
    # People rarely mistype the first letter, and short words resemble many others.
    in_lower_case = {key.lower(): key for key in keywords if key[:1].lower() == word[:1].lower()}
    close = get_close_matches(
        word.lower(), in_lower_case, n=1, cutoff=0.7 if len(word) > 3 else 0.85
    )
    return in_lower_case[close[0]] if close else ""


def warn_unread(
    path: StrPath, what: str, unread: Mapping[str, int], missing: Collection[str] = ()
) -> None:
    """Log a warning [W479] about a file's unread columns or tags.

    unread (Mapping[str, int]): How often each unread keyword occurs.
    missing (Collection[str]): Keywords that the file lacks, which unread ones may misspell.
    """
    names = []
    for word, n in islice(unread.items(), 10):
        hint = f" (did you mean {meant!r}?)" if (meant := misspelt(word, missing)) else ""
        names.append(f"{word[:40]!r}" + f" ({n:,} times)" * (n > 1) + hint)
    if names:
        about = {"what": what, "n": len(unread), "names": ", ".join(names)}
        LOGGER.warning(Warnings.W479.format(path=path, **about))


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A skipped record; the line is 0 for formats without lines."""

    path: str
    line: int
    message: str

    @property
    def code(self) -> str:
        return self.message[1:].partition("]")[0]


@dataclass(slots=True)
class Skipped:
    """Bad records skipped in a `skipping_bad` block; a record that is read twice counts once.

    first (list[str]): The first error messages.
    kept (int): Number of records that `counting_kept` has yielded.
    """

    report: Callable[[BadRecord], None]
    first: list[str] = field(default_factory=list)
    n: int = 0
    kept: int = 0
    place: Place = Place("")
    _seen: set[int] = field(default_factory=set)  # hashes instead of records, to save memory

    def add(self, error: BioelError) -> None:
        record = BadRecord(str(self.place.path), self.place.line, str(error))
        if hash(record) not in self._seen:
            self._seen.add(hash(record))
            self.first += [record.message] * (self.n < _N_SHOWN)
            self.n += 1
            self.report(record)


_SKIPPED: ContextVar[Skipped | None] = ContextVar("skipped", default=None)


@contextmanager
def skipping_bad(report: Callable[[BadRecord], None]) -> Iterator[Skipped]:
    """Skip and report any bad records that readers encounter in this block."""
    skipped = Skipped(report)
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


def counting_kept(records: Iterable[_Good]) -> Iterator[_Good]:
    """Yield and count records; if all were skipped as bad, re-raise the first error."""
    skipped = _SKIPPED.get() or Skipped(lambda _: None)
    for record in records:
        skipped.kept += 1
        yield record
    if skipped.first and not skipped.kept:
        raise BioelError(skipped.first[0])


@contextmanager
def skip_if_bad(place: Place | None = None) -> Iterator[None]:
    """Run a block that reads one record; inside `skipping_bad`, errors are reported, not raised.

    place (Place | None): Place of the record; None if an outer reader has already set the place.
    """
    if place is not None and (skipped := _SKIPPED.get()) is not None:
        skipped.place = place
    try:
        yield
    except BioelError as error:
        if (skipped := _SKIPPED.get()) is None:
            raise
        skipped.add(error)


_ARCHIVE_EXTRAS = re.compile(r"/$|^__MACOSX/")  # folders, and metadata added by macOS
_CHUNK_BYTES = 1 << 16
_ZSTD_CHUNK = 1 << 11  # compressed bytes to read at a time; they unpack to at most 64 MB.
# Maximum expansion ratio of an archive: text expands up to 40-fold, a zip bomb far more.
_MAX_RATIO = 100
_MIN_LIMIT = 1 << 26  # unpacked bytes allowed even for a tiny archive.
# Magic bytes of non-text documents, and names of files inside Office documents (zip archives).
_OFFICE = "an Office document"
_DOCUMENTS = {b"%PDF": "a PDF document", b"{\\rt": "an RTF document", b"\xd0\xcf\x11\xe0": _OFFICE}
_OFFICE_FILES = {"[Content_Types].xml", "META-INF/manifest.xml"}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, zipfile.BadZipFile)


class _UnpackedBytes(io.RawIOBase):
    """An archive's unpacked contents, limited to a multiple of its size [B478]."""

    def __init__(self, chunks: Iterator[bytes], path: Path) -> None:
        self._chunks = chunks
        self._path, self._limit = path, max(_MIN_LIMIT, _MAX_RATIO * path.stat().st_size)
        self._ready = memoryview(b"")
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._ready = self._ready or memoryview(next(filter(None, self._chunks), b""))
        n = min(len(buffer), len(self._ready))
        buffer[:n], self._ready = self._ready[:n], self._ready[n:]
        self._n_read += n
        if self._n_read > self._limit:
            about = {"limit": self._limit, "ratio": _MAX_RATIO}
            raise BioelError(Errors.B478.format(path=self._path, **about))
        return n


def _unpack(raw: io.BufferedReader, path: Path) -> Iterator[bytes] | None:
    """Return an archive's contents in chunks, or None if the file is not an archive."""
    magic = raw.peek(4)
    if magic.startswith(b"\x1f\x8b"):
        return iter(partial(gzip.GzipFile(fileobj=raw).read, _CHUNK_BYTES), b"")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpack_zstd(raw)
    if found := _DOCUMENTS.get(magic[:4]):
        raise BioelError(Errors.B117.format(path=path, found=found))
    if not magic.startswith(b"PK\x03\x04"):
        return None
    try:
        archive = zipfile.ZipFile(raw)
        names = [name for name in archive.namelist() if not _ARCHIVE_EXTRAS.search(name)]
        if len(names) == 1:
            return iter(partial(archive.open(names[0]).read, _CHUNK_BYTES), b"")
    except Exception as error:  # damaged or encrypted: zipfile raises many exception types
        raise BioelError(Errors.B104.format(path=path, error=error)) from error
    if not _OFFICE_FILES.isdisjoint(names):
        raise BioelError(Errors.B117.format(path=path, found=_OFFICE))
    first = ", ".join(names[:3]) or "none"
    raise BioelError(Errors.B477.format(path=path, n=len(names), first=first))


def _unpack_zstd(raw: io.BufferedReader) -> Iterator[bytes]:
    """Unpack a Zstandard file; unlike `zstandard`'s own reader, this detects truncated files."""
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
    """Open a file in binary mode. Archives (.gz, .zst, a .zip with one file) are detected by their
    first bytes and unpacked.

    RAISES BioelError: [B101] if the file does not exist, [B407] if it is a folder, [B102] if it is
        empty, [B104] if it is a damaged archive, [B117] if it is a PDF or Office document, [B477]
        if it is a .zip with several files, [B478] if it unpacks to too many bytes.
    """
    path = Path(path)
    if path.is_dir():
        raise BioelError(Errors.B407.format(path=path))
    if not path.is_file():
        raise BioelError(Errors.B101.format(path=path))
    with open(path, "rb") as reader:
        try:
            if (chunks := _unpack(reader, path)) is not None:
                reader = io.BufferedReader(_UnpackedBytes(chunks, path), _CHUNK_BYTES)
            if not reader.peek(1):
                raise BioelError(Errors.B102.format(path=path))
            yield reader
        except _DAMAGED as error:
            raise BioelError(Errors.B104.format(path=path, error=error)) from error


@contextmanager
def open_text(path: StrPath, *, errors: str = "strict") -> Iterator[TextIO]:
    """Open a plain or compressed UTF-8 text file, dropping any byte order mark.

    Lines end at "\\n" only and keep it, so that offsets into the text are exact.

    errors (str): As in `open`: "replace" accepts any bytes.
    RAISES BioelError: The same errors as `open_binary`; [B103] if a line cannot be decoded.
    """
    with open_binary(path) as reader:
        text = io.TextIOWrapper(reader, encoding="utf-8-sig", errors=errors, newline="\n")
        try:
            yield text
        except UnicodeDecodeError:  # the wrapper reads ahead, so search for the bad line
            with open_binary(path) as reader:
                for number, line in enumerate(reader, start=1):
                    _decode_line(Place(path, number), line)
            raise
        finally:
            text.detach()


def _decode_line(place: Place, line: bytes) -> str:
    try:
        return line.decode("utf8")
    except UnicodeDecodeError as error:
        bad_byte = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
        path, number, _ = place
        encoding = "utf-16" if line.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "windows-1252"
        message = Errors.B103.format(path=path, line=number, found=bad_byte, likely=encoding)
        raise BioelError(message) from error


def numbered_lines(path: StrPath, *, ends: bool = False) -> Iterator[tuple[Place, str]]:
    """Stream a text file's lines, each with its place.

    ends (bool): Whether the lines keep their line ends.
    RAISES BioelError: The same errors as `open_text`.
    """
    with open_binary(path) as reader:
        for number, raw in enumerate(reader, start=1):
            place = Place(path, number)
            try:
                line = _decode_line(place, raw)
            except BioelError:
                with skip_if_bad(place):
                    raise
                continue
            line = line if ends else line.rstrip("\r\n")
            yield place, line.removeprefix("\ufeff") if number == 1 else line


def file_in(folder: StrPath, name: str, *, of: str) -> Path:
    """Find a plain or compressed file in a folder. RAISES BioelError: [B123] if it is missing."""
    paths = [Path(folder, f"{name}{suffix}") for suffix in ("", ".gz", ".zst")]
    if found := next(filter(Path.is_file, paths), None):
        return found
    raise BioelError(Errors.B123.format(folder=folder, name=name, of=of))


def iter_xml(path: StrPath, tag: str) -> Iterator[Element]:
    """Stream the XML elements with a given tag, freeing each element when the next is read.

    RAISES BioelError: The same errors as `open_binary`; [B111] if the XML is not well-formed,
        [B260] if its encoding is unknown.
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
        except (LookupError, ValueError) as error:  # expat does not support the encoding
            raise BioelError(Errors.B260.format(path=path, error=error)) from error


WORKBOOKS = (".xlsx", ".xlsm")
_MAX_ROWS = 1 << 20  # Excel's limit per sheet.
# openpyxl's codes for cell types whose text may differ from what the user typed.
_CHANGED = {
    "b": "a truth value",
    "d": "a date (Excel turns names such as MARCH1 and SEPT2 into dates)",
    "e": "an error",
    "f": "a formula",
    "long": "a number with more than 15 digits, of which Excel keeps 15",
}
_ZEROS = re.compile("0{2,}")  # a number format with leading zeros, such as "00000"


class ChangedCell(str):
    """Message about a cell that Excel may have changed; it becomes an error if the cell is used."""

    shown = ""  # the cell's text


def read_workbook(path: StrPath, *, is_only: bool = True) -> Iterator[tuple[Place, list[str]]]:
    """Stream the rows of a workbook's only non-empty sheet (or of all sheets), as Excel shows them.

    RAISES BioelError: [B101] if the file does not exist, [B104] if it is not a workbook, [B192]
        without openpyxl, [B515] if no sheet or several have contents, [B517] if a row number is
        too high.
    """
    with needing("xlsx", "Reading Excel workbooks"):
        from openpyxl import load_workbook
    try:
        sheets = []
        for sheet in load_workbook(path, read_only=True).worksheets:
            sheet.reset_dimensions()  # some programs save the wrong dimensions
            sheets += [sheet] * any(_rows_of(sheet, path))
        if len(sheets) != 1 and (is_only or not sheets):
            names = ", ".join(sheet.title for sheet in sheets) or "none"
            raise BioelError(Errors.B515.format(path=path, names=names))
        for sheet in sheets:
            last, width, title = 0, 0, sheet.title if sheets[1:] else ""
            for number, row in _rows_of(sheet, path):
                width = max(width, len(row))
                for empty in range(last + 1, number):
                    yield Place(path, empty, title), [""] * width
                yield Place(path, number, title), row + [""] * (width - len(row))
                last = number
    except BioelError:
        raise
    except FileNotFoundError:
        raise BioelError(Errors.B101.format(path=path)) from None
    except Exception as error:  # damaged: openpyxl raises many exception types
        raise BioelError(Errors.B104.format(path=path, error=error)) from error


def _rows_of(sheet: Any, path: StrPath) -> Iterator[tuple[int, list[str]]]:
    """Stream (number, cells) for each non-empty row, without trailing empty cells.

    Empty cells may have a format, and openpyxl then returns them and all empty rows before them.
    """
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        if number > _MAX_ROWS:
            raise BioelError(Errors.B517.format(path=path, most=_MAX_ROWS))
        row = [_text_of(cell) for cell in cells]
        while row and not row[-1]:
            row.pop()
        if row:
            yield number, row


def _text_of(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    is_float = isinstance(value, float)
    text = f"{value:.15g}" if is_float else str(value).removesuffix(" 00:00:00")
    if changed := _CHANGED.get("long" if is_float and abs(value) >= 1e15 else cell.data_type):
        cell = ChangedCell(f"{text!r:.80} is {changed}")
        cell.shown = text
        return cell
    return text.zfill(len(cell.number_format)) if _ZEROS.fullmatch(cell.number_format) else text
