"""Texts to rows, the same in one process and on a cluster. A document that fails is a row, too."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch, raise_error

from spacy_bioel.distributed.workers import worker_processes
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import SPANS_KEY
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.types import Link

Document = tuple[str | None, str | None]
Row = dict[str, Any]

# Half of a pair, or what stands for a byte that is no UTF-8: text that cannot be written.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CODED = re.compile(r"\[([A-Z]\d+)\] (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a document has no links: the code of the message, ours or spaCy's, or the kind of error
    where there is none.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class LinkedText:
    """The links of one document, in plain values that outlive the pipeline's memory.

    text (str | None): As it came in; where it failed for characters that no file can hold, U+FFFD
        is in their place. The same goes for `id`.
    error (Failure | None): Says why, if the document failed; then there are no links.
    """

    id: str | None
    text: str | None
    links: tuple[Link, ...] = ()
    error: Failure | None = None


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
) -> Generator[LinkedText, None, None]:
    """Link documents, in their order. One that fails takes no other with it.

    spaCy forgets the words of a batch after it, or memory would grow with every new word. What is
    yielded is plain, and between two results the pipeline is as the caller left it. While it is at
    work, no other thread may use the pipeline.

    documents (Iterable): (text, id) of each, of any number; they are streamed.
    batch_size (int): Documents a batch. Where one fails, its batch is done again one by one.
    n_process (int): Worker processes, with one thread each. They end when the generator is
        finished or closed. They pay where cores are idle: two took for 5,000
        sentences together 5.4 seconds of processor time with the package's linker, one
        4.6. Where processes are spawned, each loads the pipeline first.
    YIELDS (LinkedText): One a document.
    RAISES BioelError: [B250] when a worker process died.
    """
    work = partial(_link_batch, nlp)
    alone = nullcontext(partial(map, work))
    with alone if n_process < 2 else worker_processes(work, n_process) as spread:
        for linked in spread(minibatch(documents, batch_size)):
            yield from linked


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
    error = None if linked.error is None else asdict(linked.error)
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


def _link_batch(nlp: Language, documents: list[Document]) -> list[LinkedText]:
    """What does not come back from `nlp.pipe` is done again by itself, in its place."""
    key = spans_key(nlp)
    # Zones do not nest: within one of the caller's, it is for the caller to leave it.
    is_open: bool = nlp.vocab.in_memory_zone  # type: ignore[attr-defined]
    with nullcontext() if is_open else nlp.memory_zone():
        together = _link_together(nlp, documents, key)
        return [
            together[number] if number in together else _link_alone(nlp, document, key)
            for number, document in enumerate(documents)
        ]


def _link_together(nlp: Language, documents: list[Document], key: str) -> dict[int, LinkedText]:
    """Those that do not fail, by their number."""
    docs = []
    linked = {}
    for number, document in enumerate(documents):
        with suppress(Exception):  # says so when it is done by itself
            docs.append((nlp.make_doc(_checked_text(document)), number))
    with suppress(Exception), _errors_to(nlp, _leave_out):
        for doc, number in nlp.pipe(docs, as_tuples=True, batch_size=len(documents)):
            linked[number] = _linked(doc, documents[number][1], key)
    return linked


def _link_alone(nlp: Language, document: Document, key: str) -> LinkedText:
    text, id = document
    try:
        with _errors_to(nlp, raise_error):
            return _linked(nlp(_checked_text(document)), id, key)
    except Exception as error:  # whatever a pipe may raise: the job goes on
        return LinkedText(_storable(id), _storable(text), error=_failure(error))


def _linked(doc: Doc, id: str | None, key: str) -> LinkedText:
    return LinkedText(id, doc.text, tuple(get_links(doc, key)))


def _checked_text(document: Document) -> str:
    """RAISES BioelError: [B190] no string, [B251] text or id has what no file can hold."""
    text, id = document
    if not isinstance(text, str):
        raise BioelError(Errors.B190.format(found=type(text).__name__))
    for what, value in (("text", text), ("id", id or "")):
        if found := _SURROGATE.search(value):
            place, character = found.start(), f"U+{ord(found.group()):04X}"
            raise BioelError(Errors.B251.format(what=what, place=place, character=character))
    return text


def _storable(value: str | None) -> str | None:
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


def _failure(error: Exception) -> Failure:
    coded = _CODED.match(str(error))
    code, message = coded.groups() if coded else (type(error).__name__, str(error))
    return Failure(code, _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", message))


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
