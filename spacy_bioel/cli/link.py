"""`bioel link`: texts to JSON lines of links, and to a page to look at."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spacy_bioel.cli.console import count_of, show_note, track, writing
from spacy_bioel.cli.models import find_linker, load_model
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import AnnotatedText, Link

if TYPE_CHECKING:
    from spacy.tokens import Doc

STDIN = "-"
_PLAIN, _DOCBIN = "text", "spacy"
# What a .txt file may be besides plain text; a line with a tab in it is still text.
_CORPORA_IN_TXT = ("pubtator", "bioc-xml", "bioc-json", "jsonl", "biosyn")


def link(
    model: Annotated[
        str,
        typer.Argument(
            help="Pipeline, by folder or package name; or a knowledge base, whose names are then "
            "found in the text as they stand, without training."
        ),
    ],
    input: Annotated[
        str,
        typer.Argument(
            help="Text with one document a line, JSONL with id and text, a corpus, or - for stdin."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT.jsonl", help="Else to stdout.")
    ] = Path("-"),
    html: Annotated[
        Path | None,
        typer.Option(metavar="OUT.html", help="Write a page with the texts and their candidates."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="Format of the input, e.g. text; recognised if not given."),
    ] = None,
    n_process: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Documents a batch.")] = 64,
) -> None:
    """Find and link the mentions of texts.

    One JSON object a line: id, text, and links with start, end, text, label, id (null: NIL), ids,
    and candidates with id, score, name and evidence. Annotations in the input are ignored.
    """
    from spacy_bioel.pipeline.annotate import get_links
    from spacy_bioel.pipeline.gold import SPANS_KEY

    texts = _read_input(input, format)
    nlp = load_model(model)
    linker = find_linker(nlp)
    key = linker.cfg["spans_key"] if linker is not None else SPANS_KEY
    pairs = nlp.pipe(texts, as_tuples=True, n_process=n_process, batch_size=batch_size)
    n_docs = n_links = n_nil = 0
    sections = []
    with ExitStack() as files:
        out = files.enter_context(writing(output))
        page = files.enter_context(writing(html)) if html is not None else None
        for doc, doc_id in track(pairs, "Linking"):
            links = get_links(doc, spans_key=key)
            out.write(json.dumps(to_record(doc, doc_id, links), ensure_ascii=False) + "\n")
            n_docs, n_links = n_docs + 1, n_links + len(links)
            n_nil += sum(not one.ids for one in links)
            if page is not None:
                sections.append(_section(doc, doc_id, links, key))
        if page is not None:
            page.write(_page(sections))
    found = f"{count_of(n_docs, 'document')}, {count_of(n_links, 'mention')}"
    show_note(f"{found}, {n_nil:,} of them NIL.")


def to_record(doc: Doc, doc_id: str, links: Iterable[Link]) -> dict[str, Any]:
    """One line of the output, ready for JSON."""
    text = doc.text  # put together from the tokens at each call
    return {
        "id": doc_id,
        "text": text,
        "links": [
            {
                "start": one.start,
                "end": one.end,
                "text": text[one.start : one.end],
                "label": one.label,
                "id": one.ids[0] if one.ids else None,
                "ids": list(one.ids),
                "candidates": [asdict(candidate) for candidate in one.candidates],
            }
            for one in links
        ],
    }


def _section(doc: Doc, doc_id: str, links: list[Link], key: str) -> str:
    from spacy_bioel.view import render_document

    return render_document(doc, links, title=doc_id, spans_key=key)


def _page(sections: list[str]) -> str:
    from spacy_bioel.view import render_page

    return render_page(sections)


def _read_input(source: str, format: str | None) -> Iterator[tuple[str, str]]:
    """Stream (text, id) of each document; without ids of its own, its line number.

    RAISES BioelError: [B101], [B134], [B142] at once, and not after the pipeline has been loaded.
    """
    from spacy_bioel.io.formats import CORPUS_FORMATS

    known = (_PLAIN, _DOCBIN, *CORPUS_FORMATS)
    if format is not None and format not in known:
        raise BioelError(Errors.B134.format(format=format, known=", ".join(known)))
    if source != STDIN and not Path(source).is_file():
        raise BioelError(Errors.B101.format(path=source))
    if source == STDIN:
        lines: Iterable[tuple[int, str]] = enumerate(sys.stdin, start=1)
    elif _is_plain(Path(source), format):
        from spacy_bioel.io.open import numbered_lines

        lines = numbered_lines(source)
    else:
        return ((text.text, text.id) for text in _read_corpus(Path(source), format))
    stripped = ((number, line.strip()) for number, line in lines)
    documents = ((line, str(number)) for number, line in stripped if line)
    first = next(documents, None)
    if first is None:
        raise BioelError(Errors.B142.format(source="stdin" if source == STDIN else source))
    return chain([first], documents)


def _read_corpus(path: Path, format: str | None) -> Iterator[AnnotatedText]:
    from spacy_bioel.corpus import read_texts
    from spacy_bioel.io.formats import detect_corpus_format
    from spacy_bioel.io.pubtator import read_pubtator

    if format is None and path.suffix != f".{_DOCBIN}":
        format = detect_corpus_format(path)
    if format == "pubtator":
        return read_pubtator(path, annotations=False)  # wrong ones are no reason to stop here
    return read_texts(path, format=format)


def _is_plain(path: Path, format: str | None) -> bool:
    from spacy_bioel.io.formats import detect_corpus_format

    if format is not None or path.suffix != ".txt":
        return format == _PLAIN
    try:
        return detect_corpus_format(path) not in _CORPORA_IN_TXT
    except BioelError:  # Not recognised. Unreadable files say so again when they are read.
        return True
