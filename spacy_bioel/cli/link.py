"""`bioel link`: link texts, with output as JSON lines, Parquet and an HTML page."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spacy_bioel.cli.console import count_of, make_folder, naming, show_note, track, writing
from spacy_bioel.cli.models import load_model
from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy_bioel.distributed.rows import Document, LinkedText, Row, Totals

STDIN = STDOUT = "-"
SOME_FAILED = 1  # exit status
_PLAIN, _DOCBIN, _PARQUET = "text", "spacy", ".parquet"
_OUTPUTS = (".jsonl", ".ndjson", ".json", _PARQUET, "")
# Formats of .txt files other than plain text. Tables are not among them: plain text may have tabs.
_CORPORA_IN_TXT = ("pubtator", "bioc-xml", "bioc-json", "jsonl", "biosyn", "brat")


class Engine(StrEnum):
    """Engine that runs the pipeline."""

    LOCAL = "local"
    SPARK = "spark"


def link(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] INPUT",
            help="MODEL: a pipeline, by folder or package name; or a knowledge base, whose names "
            "are then found, and what is nearly one, without training; default: the pipeline of "
            "the package. INPUT: text with one document per line, JSONL or Parquet with id and "
            "text, a corpus, or - for stdin.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="OUT", help="OUT.jsonl or OUT.parquet; default: stdout."
        ),
    ] = STDOUT,
    html: Annotated[
        Path | None,
        typer.Option(metavar="OUT.html", help="Also write a page of the texts and candidates."),
    ] = None,
    kb: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another knowledge base to find and link names of, beside MODEL, which is one "
            "too. May be given several times."
        ),
    ] = None,
    xrefs: Annotated[
        bool,
        typer.Option(
            "--xrefs", help="Also write the cross-references of candidates to other vocabularies."
        ),
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(help="Format of the input, e.g. text; default: detected."),
    ] = None,
    n_process: Annotated[
        int,
        typer.Option(
            min=1,
            help="Worker processes. They save time only on idle cores: two take a sixth more "
            "processor time than one.",
        ),
    ] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Documents per batch.")] = 64,
    engine: Annotated[
        Engine,
        typer.Option(help="spark: on a cluster, from and to JSONL or Parquet; OUT is a folder."),
    ] = Engine.LOCAL,
) -> None:
    """Find and link the mentions of texts: diseases, chemicals, genes, organisms, cell lines and
    variants, unless another MODEL is given.

    The output has one JSON object per line: id, text, error, and links with start, end, text,
    label, id (null: NIL), ids, and candidates with id, score, name and evidence, and with xrefs on
    request; variants may have hgvs. A failed document has no links and an error with code and
    message, and the exit status is 1; otherwise error is null. Annotations in the input are
    ignored.
    """
    model, input = _model_and_input(arguments)
    if Path(output).suffix not in _OUTPUTS:
        raise BioelError(Errors.B198.format(path=output, known=", ".join(filter(None, _OUTPUTS))))
    if xrefs and Path(output).suffix == _PARQUET:
        raise BioelError(Errors.B324.format(path=output, option="--xrefs"))
    if engine is Engine.SPARK:
        from spacy_bioel.distributed.spark import link_file

        _refuse_with_spark(html=html, format=format, n_process=n_process, kb=kb, xrefs=xrefs)
        totals = link_file(input, output, model=model, batch_size=batch_size)
    else:
        from spacy_bioel.distributed.rows import check_linker, link_texts

        texts = _read_input(input, format)
        nlp = load_model(model, more=[str(folder) for folder in kb or ()])
        check_linker(nlp)
        # Closed even if a result cannot be written, which ends the worker processes.
        with closing(link_texts(nlp, texts, batch_size=batch_size, n_process=n_process)) as linked:
            totals = _write(linked, Path(output), html, xrefs=xrefs)
    _report(totals)


def _model_and_input(arguments: list[str]) -> tuple[str, str]:
    """RAISES BioelError: [B335] on more arguments, or a single one that is a pipeline."""
    from spacy_bioel.kb.columns.layout import has_columns
    from spacy_bioel.pipeline.loading import STARTER

    *models, source = arguments
    is_model = (Path(source) / "config.cfg").is_file() or has_columns(Path(source))
    is_text = bool(models) and Path(models[0]).is_file()
    if len(models) > 1 or is_text or (not models and (is_model or source == STARTER)):
        raise BioelError(Errors.B335.format(found=" ".join(arguments)))
    return (models[0] if models else STARTER), source


def _refuse_with_spark(
    *,
    html: Path | None,
    format: str | None,
    n_process: int,
    kb: list[Path] | None,
    xrefs: bool,
) -> None:
    given = {"--html": html is not None, "--format": format is not None}
    given |= {"--kb": bool(kb), "--xrefs": xrefs}
    for option, found in (given | {"--n-process": n_process > 1}).items():
        if found:
            raise BioelError(Errors.B196.format(found=f"has {option}", expected="none"))


def _write(linked: Iterable[LinkedText], output: Path, html: Path | None, *, xrefs: bool) -> Totals:
    """Write rows to a file or stdout, and the page; files get their names only on success."""
    from spacy_bioel.distributed.rows import Totals, to_row

    totals = Totals()
    with ExitStack() as files:
        write = files.enter_context(_writing_rows(output))
        show = files.enter_context(_writing_page(html)) if html is not None else None
        for one in track(linked, "Linking"):
            write(to_row(one, xrefs=xrefs))
            totals.add(one)
            if show is not None:
                show(one)
    return totals


@contextmanager
def _writing_rows(output: Path) -> Iterator[Callable[[Row], None]]:
    if output.suffix == _PARQUET:
        from spacy_bioel.distributed.parquet import writing_rows

        make_folder(output.parent)
        with naming(output), writing_rows(output) as write:
            yield write
        return
    with writing(output) as file:
        yield lambda row: print(json.dumps(row, ensure_ascii=False), file=file)


@contextmanager
def _writing_page(html: Path) -> Iterator[Callable[[LinkedText], None]]:
    from spacy_bioel.view import END_OF_PAGE, render_document, start_page

    def show(one: LinkedText) -> None:
        if one.error is None and one.text is not None:
            page.write(render_document(one.text, one.links, title=one.id or "") + "\n")

    with writing(html) as page:
        page.write(start_page())
        yield show
        page.write(END_OF_PAGE)


def _report(totals: Totals) -> None:
    """Print a summary. RAISES typer.Exit: When a document failed."""
    found = f"{count_of(totals.documents, 'document')}, {count_of(totals.mentions, 'mention')}"
    show_note(f"{found}, {totals.nil:,} of them NIL.")
    if totals.failed:
        show_note(f"{count_of(totals.failed, 'document')} failed: see error in the output.")
        raise typer.Exit(SOME_FAILED)


def _read_input(source: str, format: str | None) -> Iterator[Document]:
    """Stream (text, id) of each document; ids of plain text are line numbers.

    RAISES BioelError: [B101] no such file, [B134] an unknown format, [B142] an empty input, and
        those of Parquet; raised by the call itself, before the pipeline is loaded.
    """
    from spacy_bioel.io.formats import CORPUS_FORMATS

    known = (_PLAIN, _DOCBIN, *CORPUS_FORMATS)
    if format is not None and format not in known:
        raise BioelError(Errors.B134.format(format=format, known=", ".join(known)))
    if format is None and source.endswith(_PARQUET):
        from spacy_bioel.distributed.parquet import read_documents

        return read_documents(source)
    if Path(source).is_dir():
        return _read_corpus(Path(source), format or "brat")  # the only corpus that is a folder
    if source != STDIN and not Path(source).is_file():
        raise BioelError(Errors.B101.format(path=source))
    if source == STDIN:
        documents = _read_lines(sys.stdin.buffer, source="stdin")
    elif _is_plain(Path(source), format):
        documents = _read_plain(source)
    else:
        return _read_corpus(Path(source), format)
    first = next(documents, None)
    if first is None:
        raise BioelError(Errors.B142.format(source="stdin" if source == STDIN else source))
    return chain([first], documents)


def _read_plain(source: str) -> Iterator[Document]:
    from spacy_bioel.io.open import open_binary

    with open_binary(source) as file:
        yield from _read_lines(file, source=source)


def _read_lines(file: Iterable[bytes], *, source: str) -> Iterator[Document]:
    """Stream the non-empty lines with their numbers.

    Undecodable bytes become lone surrogates, so that only their document fails.

    RAISES BioelError: [B103] on the byte order mark of UTF-16.
    """
    for number, line in enumerate(file, start=1):
        if number == 1 and line.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
            found = "the mark of UTF-16"
            raise BioelError(Errors.B103.format(path=source, line=1, found=found, encoding="utf8"))
        text = line.decode("utf-8-sig" if number == 1 else "utf8", "surrogateescape").strip()
        if text:
            yield text, str(number)


def _read_corpus(path: Path, format: str | None) -> Iterator[Document]:
    """Stream a corpus; annotations are skipped if possible, so that invalid ones do not matter."""
    from spacy_bioel.corpus import read_texts
    from spacy_bioel.io.brat import read_brat
    from spacy_bioel.io.formats import detect_corpus_format
    from spacy_bioel.io.jsonl import read_documents_jsonl
    from spacy_bioel.io.pubtator import read_pubtator

    readers = {"pubtator": read_pubtator, "brat": read_brat}
    if format is None and path.suffix != f".{_DOCBIN}":
        format = detect_corpus_format(path)
    if format == "jsonl":
        return read_documents_jsonl(path)
    if format in readers:
        texts = readers[format](path, annotations=False)
    else:
        texts = read_texts(path, format=format)
    return ((text.text, text.id) for text in texts)


def _is_plain(path: Path, format: str | None) -> bool:
    from spacy_bioel.io.formats import detect_corpus_format

    if format is not None or path.suffix != ".txt":
        return format == _PLAIN
    try:
        return detect_corpus_format(path) not in _CORPORA_IN_TXT
    except BioelError:  # no format detected; an unreadable file fails again when it is read
        return True
