"""Command input and output: read texts, write links.

Texts come from plain text, tables, and corpora with or without mentions. This module imports spaCy,
so commands import it inside their functions.
"""

from __future__ import annotations

import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from io import StringIO
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from spacy.vocab import Vocab

from spacy_bioel.cli import console
from spacy_bioel.corpus import doc_to_text, read_docs, read_texts
from spacy_bioel.errors import BioelError, Errors, Warnings, shortened
from spacy_bioel.export import formats
from spacy_bioel.export.rows import Document, LinkedText, Totals
from spacy_bioel.files import is_stream, suffix_of
from spacy_bioel.io.brat import read_brat
from spacy_bioel.io.formats import CORPUS_FORMATS, detect_corpus_format
from spacy_bioel.io.jsonl import read_documents_jsonl
from spacy_bioel.io.open import counting_kept, open_binary
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.table import is_text_table, read_text_table
from spacy_bioel.registered import FORMATS, missing_names, refuse_if_missing
from spacy_bioel.types import AnnotatedText

STDIN = "-"
_PLAIN, _WHOLE, _DOCBIN, _PARQUET = "text", "whole", "spacy", ".parquet"
_ENCODING = "utf-8-sig"
_MAX_COUNTED = 200_000  # maximum number of documents to count (takes about 20 seconds).
# Formats other than plain text that are recognised in .txt files. Tables are not, because plain
# text may contain tabs.
_CORPORA_IN_TXT = ("pubtator", "bioc-xml", "bioc-json", "jsonl", "brat")


def read_mentions(
    source: str, format: str | None, spans_key: str | None = None
) -> Iterator[AnnotatedText]:
    """Stream a corpus's documents with their mentions; see `read_texts` for `spans_key`."""
    _check_format(format)
    path = Path(source)
    if source == STDIN or source.endswith(_PARQUET):
        kind = "stdin" if source == STDIN else "Parquet"
        raise BioelError(Errors.B344.format(source=source, found=kind))
    if not path.exists():
        raise BioelError(Errors.B101.format(path=source))
    if not path.is_dir() and _is_plain(path, format):
        raise BioelError(Errors.B344.format(source=source, found="plain text"))
    return read_texts(path, format=format, spans_key=spans_key)


def stream_documents(
    source: str, format: str | None, *, skip_bad: Path | None = None
) -> Iterator[Document]:
    """Stream documents as (text, id) pairs. In plain text, ids are line numbers or file names.

    Errors in the first document are raised by the call itself, not when iterating.

    skip_bad (Path | None): File in which to list a table's skipped rows; None: raise errors.
    """
    _check_format(format)
    path, is_table = Path(source), format is None and is_text_table(source)
    if skip_bad is not None and not is_table:
        raise BioelError(Errors.B516.format(source=source))
    if format is None and source.endswith(_PARQUET):
        return formats.read_parquet(source)
    if path.is_dir():
        return read_folder(path) if format in (None, _WHOLE) else _read_corpus(path, format)
    if source == STDIN and format not in (None, _PLAIN, _WHOLE):
        raise BioelError(Errors.B345)
    if source != STDIN and not path.is_file():
        raise BioelError(Errors.B101.format(path=source))
    if is_table:
        documents = _read_table(path, skip_bad)
    elif format == _WHOLE:
        documents = _read_whole(path)
    elif source == STDIN or _is_plain(path, format):
        documents = _read_lines(source)
    else:
        return _read_corpus(path, format)
    if (first := next(documents, None)) is None:
        raise BioelError(Errors.B142.format(source=_shown(source)))
    if source == STDIN and format is None:
        line = first[0] or ""
        if re.match(CORPUS_FORMATS["jsonl"][1], line) or "text" in re.split("[,;\t]", line):
            raise BioelError(Errors.B345)
    return chain([first], documents)


def is_plain_text(source: str) -> bool:
    """Return whether the input is stdin or a plain text file, rather than a table or corpus."""
    return source == STDIN or (Path(source).is_file() and _is_plain(Path(source), None))


def _shown(source: str) -> str:
    return "stdin" if source == STDIN else source


def _check_format(format: str | None) -> None:
    known = (_PLAIN, _WHOLE, _DOCBIN, *CORPUS_FORMATS)
    if format is not None and format not in known:
        raise BioelError(Errors.B134.format(format=format, known=", ".join(known)))


def _read_table(path: Path, skip_bad: Path | None) -> Iterator[Document]:
    with console.reporting_bad(skip_bad, sources=[path]):
        yield from counting_kept((text, id) for text, id in read_text_table(path))


_WRAPPED = re.compile(r".{49,160}[^.!?:;]")  # a line that may continue on the next one
_MIN_WRAPPED = 3


def _read_lines(source: str) -> Iterator[Document]:
    """Stream the non-empty lines of a file or stdin with their line numbers.

    Undecodable bytes become lone surrogates, so that only their document fails. Prints [W390] if
    sentences seem to continue on the next line.
    """
    before, n_wrapped = "", 0
    with nullcontext(sys.stdin.buffer) if source == STDIN else open_binary(source) as file:
        for number, line in enumerate(file, start=1):
            first = number == 1
            text = _decode_start(line, source) if first else line.decode("utf8", "surrogateescape")
            n_wrapped += text[:1].islower() and _WRAPPED.fullmatch(before) is not None
            if n_wrapped == _MIN_WRAPPED:
                n_wrapped += 1  # show the note only once
                console.show_note(Warnings.W390.format(source=_shown(source)))
            before = text.rstrip()
            if text := text.strip():
                yield text, str(number)


def _decode_start(start: bytes, source: str) -> str:
    """Decode the start of a file. RAISES BioelError: [B103] if it has a UTF-16 byte order mark."""
    if start.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
        mark = "a UTF-16 byte order mark"
        raise BioelError(Errors.B103.format(path=source, line=1, found=mark, likely="utf-16"))
    return start.decode(_ENCODING, "surrogateescape")


def read_folder(folder: Path) -> Iterator[Document]:
    """Stream each .txt and .txt.gz file in a folder as one document, sorted by name.

    If a file is not UTF-8, only its document fails. Warns [W304] about skipped files.
    """
    files = [path for path in folder.rglob("[!.]*") if path.is_file()]
    if not (paths := sorted(path for path in files if path.parent == folder and is_text(path))):
        raise BioelError(Errors.B481.format(path=folder))
    for first, second in pairwise(sorted(paths, key=_document_name)):
        if (id := _document_name(first)) == _document_name(second):
            raise BioelError(Errors.B513.format(first=first, second=second.name, id=id))
    if n := len(files) - len(paths):
        console.show_note(Warnings.W304.format(path=folder, n=n))
    return (
        (_read_bytes(path).decode(_ENCODING, "surrogateescape"), _document_name(path))
        for path in paths
    )


def is_text(path: Path) -> bool:
    return path.name.lower().endswith((".txt", ".txt.gz"))


def _document_name(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _read_bytes(path: Path) -> bytes:
    if not path.stat().st_size:
        return b""
    with open_binary(path) as file:
        return file.read()


def _read_whole(path: Path) -> Iterator[Document]:
    """Yield a whole file, or all of stdin, as one document."""
    if str(path) == STDIN:
        yield _decode_start(sys.stdin.buffer.read(), STDIN), "stdin"
    else:
        yield _decode_start(_read_bytes(path), str(path)), _document_name(path)


def _read_corpus(path: Path, format: str | None) -> Iterator[Document]:
    """Stream the texts in a corpus, skipping annotations (even invalid ones) if possible."""
    if format == _DOCBIN or (format is None and path.suffix == f".{_DOCBIN}"):
        docs = enumerate(read_docs(path, Vocab()), start=1)
        return ((doc.text, doc_to_text(doc).id or str(number)) for number, doc in docs)
    if (format := format or detect_corpus_format(path)) == "jsonl":
        return read_documents_jsonl(path)
    read = {"pubtator": read_pubtator, "brat": read_brat}.get(format)
    texts = read(path, annotations=False) if read else read_texts(path, format=format)
    return ((text.text, text.id) for text in texts)


def _is_plain(path: Path, format: str | None) -> bool:
    if format is not None or not is_text(path):
        return format in (_PLAIN, _WHOLE)
    try:
        return detect_corpus_format(path) not in _CORPORA_IN_TXT
    except BioelError:  # no format detected; an unreadable file will fail again when read
        return True


def outputs_of(names: Sequence[str], *, xrefs: bool) -> dict[str, str]:
    """Map output names to format suffixes; with `xrefs`, reject formats that cannot store them."""
    outputs = {name: suffix_of(name, formats.suffixes()) for name in names}
    for name, suffix in outputs.items():
        if suffix in missing_names(FORMATS):
            refuse_if_missing(FORMATS, suffix)
        if xrefs and suffix not in formats.WITH_XREFS:
            raise BioelError(Errors.B324.format(path=name, option="--xrefs"))
    return outputs


def write_links(
    linked: Iterable[LinkedText],
    outputs: Mapping[str, str],
    totals: Totals,
    *,
    total: int = 0,
    **options: Any,
) -> None:
    """Write linked texts to files or stdout; files are created or replaced only on success.

    totals (Totals): Counts the documents.
    total (int): Number of documents, to show the time left; 0: unknown.
    options: Options of `export.formats.format_of`.
    """
    with ExitStack() as files:
        writers = [
            files.enter_context(writing_format(Path(name), formats.format_of(suffix, **options)))
            for name, suffix in outputs.items()
        ]
        lists_failures = not formats.WITH_FAILURES.isdisjoint(outputs.values())
        for document in watched(linked, totals, total=total, silent=lists_failures):
            for write in writers:
                write(document)


def watched(
    linked: Iterable[LinkedText], totals: Totals, *, total: int = 0, silent: bool = False
) -> Iterator[LinkedText]:
    """Yield and count linked texts, showing progress and, unless `silent`, failures."""
    for document in console.track(linked, "Linking", total=total or None):
        totals.add(document)
        yield document
        if document.error is not None and not silent:
            reason = f"[{document.error.code}] {document.error.message}"
            name = shortened(document.id or str(totals.documents))
            console.show_note(f"Document {name} failed: {reason}")


def count_input(read: Callable[..., Iterable[object]], source: str, format: str | None) -> int:
    """Count documents for the progress bar; return 0 if that would be slow or consume the input."""
    if source == STDIN or is_stream(Path(source)) or not console.is_watched():
        return 0
    # Suppress errors and notes here; they are reported when the documents are linked.
    with suppress(Exception), redirect_stderr(StringIO()):
        if (n := sum(1 for _ in islice(read(source, format), _MAX_COUNTED + 1))) <= _MAX_COUNTED:
            return n
    return 0


@contextmanager
def writing_format(path: Path, format: formats.AnyFormat) -> Iterator[formats.Write]:
    """Open an output that is created or replaced only on success."""

    def write_named(document: Any) -> None:
        with console.naming(path):  # so that an error shows which output failed
            write(document)

    if isinstance(format, formats.TextFormat):
        with console.writing(path) as file, format.writing(file) as write:
            yield write_named
    else:
        console.make_folder(path.parent)
        with console.naming(path), format(path) as write:
            yield write_named
