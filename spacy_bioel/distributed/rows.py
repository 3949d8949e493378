"""Texts to rows, the same in one process and on a cluster. A document that fails is a row, too."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch, raise_error

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import SPANS_KEY
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.types import Link

Document = tuple[str | None, str | None]
Row = dict[str, Any]

_CODED = re.compile(r"\[([A-Z]\d+)\] (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LinkedText:
    """What became of one document.

    doc (Doc | None): None if the document failed; then `error` says why, and there are no links.
    """

    id: str | None
    text: str | None
    links: tuple[Link, ...] = ()
    doc: Doc | None = None
    error: Exception | None = None


@dataclass(slots=True)
class Totals:
    """What became of all of them.

    nil (int): Mentions without an id.
    failed (int): Documents that have an error instead of links.
    """

    documents: int = 0
    mentions: int = 0
    nil: int = 0
    failed: int = 0

    def add(self, linked: LinkedText) -> None:
        self.documents += 1
        self.mentions += len(linked.links)
        self.nil += sum(not link.ids for link in linked.links)
        self.failed += linked.error is not None


def link_texts(
    nlp: Language, documents: Iterable[Document], *, batch_size: int = 64, n_process: int = 1
) -> Iterator[LinkedText]:
    """Link documents, in their order. One that fails takes no other with it.

    In one process, spaCy forgets the words of a batch after it, or memory would grow with every
    new word: the doc of a result is good only until the next result is asked for.

    documents (Iterable): (text, id) of each, of any number; they are streamed.
    batch_size (int): Documents a batch. Where one fails, its batch is done again one by one.
    n_process (int): Worker processes of `nlp.pipe`.
    """
    if n_process > 1:  # started once, and not for each batch
        yield from _link_batch(nlp, documents, batch_size=batch_size, n_process=n_process)
        return
    for batch in minibatch(documents, batch_size):
        with nlp.memory_zone():
            yield from _link_batch(nlp, batch, batch_size=batch_size, n_process=1)


def check_linker(nlp: Language) -> None:
    """Open the knowledge base of a linker and link a word, before any document is read.

    What is wrong with them would else be the error of each document.

    RAISES BioelError: Those of `KnowledgeBase.open`, of its vectors, and of a linker without one.
    """
    linker = find_linker(nlp)
    if linker is not None:
        linker.generator.rank([("a", "")])


def spans_key(nlp: Language) -> str:
    """The span group in which the linker of a pipeline leaves its links."""
    linker = find_linker(nlp)
    return SPANS_KEY if linker is None else linker.cfg["spans_key"]


def to_row(linked: LinkedText) -> Row:
    """One row of the output: ready for JSON, and of the schema `distributed.parquet.row_schema`."""
    error = None if linked.error is None else _failure(linked.error)
    links = [_link_row(linked.text or "", link) for link in linked.links]
    return {"id": linked.id, "text": linked.text, "links": links, "error": error}


def _link_row(text: str, link: Link) -> Row:
    return {
        "start": link.start,
        "end": link.end,
        "text": text[link.start : link.end],
        "label": link.label,
        "id": link.ids[0] if link.ids else None,
        "ids": list(link.ids),
        "candidates": [asdict(candidate) for candidate in link.candidates],
    }


def _failure(error: Exception) -> Row:
    """The code that the message has, ours or spaCy's; else the kind of error."""
    coded = _CODED.match(str(error))
    code, message = coded.groups() if coded else (type(error).__name__, str(error))
    return {"code": code, "message": message}


def _link_batch(
    nlp: Language, documents: Iterable[Document], *, batch_size: int, n_process: int
) -> Iterator[LinkedText]:
    """What does not come back from `nlp.pipe` is done again by itself, in its place."""
    key = spans_key(nlp)
    waiting: deque[tuple[int, Document]] = deque()

    def docs() -> Iterator[tuple[Doc, int]]:
        for number, document in enumerate(documents):
            waiting.append((number, document))
            try:
                doc = nlp.make_doc(document[0])  # type: ignore[arg-type]
            except Exception:  # says so when it is done by itself
                continue
            yield doc, number

    with _errors_to(nlp, _leave_out):
        done = nlp.pipe(docs(), as_tuples=True, batch_size=batch_size, n_process=n_process)
        for doc, number in done:
            while waiting[0][0] != number:
                yield _link_alone(nlp, waiting.popleft()[1], key)
            _, (_, id) = waiting.popleft()
            yield LinkedText(id, doc.text, tuple(get_links(doc, key)), doc)
        while waiting:
            yield _link_alone(nlp, waiting.popleft()[1], key)


def _link_alone(nlp: Language, document: Document, key: str) -> LinkedText:
    text, id = document
    try:
        if not isinstance(text, str):
            raise BioelError(Errors.B190.format(found=type(text).__name__))
        with _errors_to(nlp, raise_error):
            doc = nlp(text)
        return LinkedText(id, doc.text, tuple(get_links(doc, key)), doc)
    except Exception as error:  # whatever a pipe may raise: the job goes on
        return LinkedText(id, text, error=error)


@contextmanager
def _errors_to(nlp: Language, handler: Any) -> Iterator[None]:
    before = nlp.default_error_handler
    nlp.set_error_handler(handler)
    try:
        yield
    finally:
        nlp.set_error_handler(before)


def _leave_out(name: str, pipe: Any, docs: list[Doc], error: Exception) -> None:
    """An error handler of spaCy: the documents of a failed batch do not come back."""
