"""Link streams of documents, in one or more processes, and convert the links to rows.

A failed document gets an error instead of links. Worker processes return results in order and are
always shut down; if a process is killed, an error is raised. In contrast, `Language.pipe` waits
forever for a killed process, and `ProcessPoolExecutor` waits forever if the process was sending a
result, because its processes share one pipe.
"""

from __future__ import annotations

import gc
import multiprocessing
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import ignore_error, minibatch, raise_error

from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError, Errors, crash_report, shortened
from spacy_bioel.explanation import reason_of
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.loading import UserCode, find_detector, find_linker, require_linker, spans_key
from spacy_bioel.parallel import gpu_in_use, memory_errors, use_one_thread
from spacy_bioel.registered import declared_facts
from spacy_bioel.types import AnnotatedText, Link, Mention, type_name

_Item = TypeVar("_Item")
Result = TypeVar("Result")
Worker = tuple[BaseProcess, Connection]

# Maximum items in progress per process, so that a slow item does not block the other processes.
_ITEMS_IN_PROGRESS = 4
_SECONDS_TO_EXIT = 5


@contextmanager
def worker_processes(
    work: Callable[[_Item], Result], n_process: int
) -> Iterator[Callable[[Iterable[_Item]], Iterator[Result]]]:
    """Start worker processes, and kill them when the block ends, even on error.

    work (Callable): Function to run in the processes; picklable with the `spawn` start method.
    YIELDS (Callable): A `map` that reads items lazily and yields results in the order of the items.
        RAISES BioelError: [B250] if a process died.
    RAISES BioelError: [B652] if the processes are forked, and a GPU is in use.
    """
    if gpu_in_use() >= 0 and multiprocessing.get_start_method() == "fork":
        raise BioelError(Errors.B652.format(n=n_process))
    workers: list[Worker] = []
    idle: SimpleQueue[Worker] = SimpleQueue()
    threads = ThreadPoolExecutor(n_process)  # each thread waits for one process

    def ask(item: _Item) -> Result:
        worker = process, connection = idle.get()
        try:
            connection.send(item)
            result: Result = connection.recv()
            return result
        except (EOFError, OSError) as error:
            process.join(_SECONDS_TO_EXIT)
            raise BioelError(Errors.B250.format(how=describe_exit(process))) from error
        finally:
            idle.put(worker)

    def parallel_map(items: Iterable[_Item]) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(threads.submit(ask, item))
            if len(waiting) == _ITEMS_IN_PROGRESS * n_process:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        # Start workers one by one, before the threads. A forked worker must not inherit the far end
        # of an earlier connection, or that connection would stay open after its worker died.
        for _ in range(n_process):
            ours, theirs = multiprocessing.Pipe()
            args = (UserCode(), work, theirs, ours)
            # Daemon processes end with this process, even if the generator was never closed.
            worker = multiprocessing.Process(target=_run_worker, args=args, daemon=True)
            worker.start()
            theirs.close()
            workers.append((worker, ours))
            idle.put(workers[-1])
        yield parallel_map
    finally:
        for process, _ in workers:
            process.kill()  # an inherited signal handler might block `terminate`
        threads.shutdown(cancel_futures=True)
        for process, connection in workers:
            process.join()
            connection.close()


def describe_exit(process: BaseProcess) -> str:
    """Describe how a process ended: "signal 9" or "exit status 1"."""
    status = process.exitcode
    return f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"


def _run_worker(
    _: UserCode, work: Callable[[_Item], Result], connection: Connection, far_end: Connection
) -> None:
    """Run a worker's loop: receive items and send back results until the caller exits."""
    far_end.close()  # or the connection would stay open here if the caller died
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl+C and ends its workers.
    # The processes share the cores. In addition, a forked process lacks the threads that PyTorch
    # started before the fork, and would wait for them forever.
    use_one_thread()
    gc.freeze()  # the pipeline is permanent, so the garbage collector can skip it
    try:
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        sys.exit(crash_report(error))


Document = tuple[str | None, str | None]
JsonRow = dict[str, Any]
Item = TypeVar("Item", Document, AnnotatedText)
Ready = TypeVar("Ready")

# `bytes.decode` with "surrogateescape" maps an undecodable byte to this code point plus the byte.
_FIRST_BYTE = 0xDC00
_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")
_BAD_BYTE = (
    "byte 0x{:02x}, which is not UTF-8. Convert the file, for example: "
    "iconv -f {} -t utf8 FILE > OUT"
)
_SURROGATE_PROBLEM = (
    "U+{:04X}, which cannot be written to a file, because it is half of a surrogate pair. Read the "
    "text with the correct encoding"
)
# Lone surrogates, including replacements for undecodable bytes, cannot be encoded as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CODED_MESSAGE = re.compile(r"\[([A-Z]\d+)\] (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a text could not be linked."""

    code: Annotated[str, Field(description='Error code ("B384"), or the name of an exception')]
    message: Annotated[str, Field(description="What was found, what was expected, and what to do")]


@dataclass(frozen=True, slots=True)
class LinkedText:
    """A document's links as plain values, independent of the pipeline's memory zone.

    id, text (str | None): As in the input, with lone surrogates replaced by U+FFFD, because they
        cannot be written.
    links (tuple[Link, ...]): Links of the document.
    error (Failure | None): The error, if the document failed. Then there are no links, unless the
        error is about some of the given mentions [B554].
    """

    id: str | None
    text: Any  # a string or None; anything else is rejected [B190]
    links: tuple[Link, ...] = ()
    error: Failure | None = None


@dataclass(slots=True)
class Totals:
    """Counts of documents, mentions, NIL mentions and failures in a run."""

    documents: int = 0
    mentions: int = 0
    nil: int = 0  # mentions not linked to any id
    failed: int = 0  # documents with an error

    def add(self, linked: LinkedText) -> None:
        self.documents += 1
        self.mentions += len(linked.links)
        self.nil += sum(not link.ids for link in linked.links)
        self.failed += linked.error is not None


# JSON lines, Parquet and the service use these rows. Fields that default to None are optional.
class CandidateRow(BaseModel):
    """A concept that the mention may be linked to."""

    id: str
    score: float = Field(description="From 0 to 1, comparable across mentions")
    name: str = Field(description="The name of the concept that matched")
    evidence: str = Field(description='Sources of evidence, strongest first, such as "exact+dense"')
    xrefs: list[str] | None = Field(None, description="Cross-references, if requested")
    preferred: str | None = Field(None, description="The preferred name, if requested")
    kind: str | None = Field(None, description="The species of a gene, if requested")


class LinkRow(BaseModel):
    """A mention and the concepts that it is linked to.

    Additional keys are facts from entity rules, such as hgvs, component and gene for a variant.
    """

    model_config = ConfigDict(extra="allow")

    start: int = Field(description="Offset of the first character in the text")
    end: int = Field(description="Offset after the last character")
    text: str = Field(description="The mention")
    label: str = Field(description='Label of the mention, such as "Disease"')
    id: str | None = Field(description="The first of ids, or null if there is no concept (NIL)")
    ids: list[str] = Field(description="Ids of concepts; several for a composite mention")
    candidates: list[CandidateRow] = Field([], description="Best first; absent if not requested")
    why: str | None = Field(None, description="Why it is linked or NIL, if requested")


class DocumentRow(BaseModel):
    """A text and its links, in the same form as a line of `bioel link` output."""

    id: str | None
    text: str | None = Field(description="The text; null if it was too long or took too long")
    links: list[LinkRow]
    error: Failure | None = Field(description="Why this text could not be linked, or null")


def written_fields(row: type) -> dict[str, Any]:
    """Map a row's field names to their types, excluding fields written only on request."""
    declared = getattr(row, "model_fields", {})
    requested = {name for name, field in declared.items() if field.default is None}
    return {name: kind for name, kind in get_type_hints(row).items() if name not in requested}


_CANDIDATE_KEYS = tuple(written_fields(CandidateRow))


# `Prepare` prepares one item. `LinkAll` links prepared items, keyed by their numbers, and may omit
# items that fail.
Prepare = Callable[[Language, Item], Ready]
LinkAll = Callable[[Language, dict[int, Ready]], Iterable[tuple[int, Sequence[Link]]]]


def link_texts(
    nlp: Language,
    documents: Iterable[Document],
    *,
    batch_size: int = 64,
    n_process: int = 1,
) -> Generator[LinkedText, None, None]:
    """Link documents in order. A failed document does not affect other documents.

    Each batch has a memory zone, so spaCy's vocabulary does not grow with every new word. Results
    are plain values, and between two results the pipeline's state is unchanged. No other thread may
    use the pipeline while a result is being computed.

    documents (Iterable): A stream of (text, id).
    batch_size (int): Documents per batch. Documents that fail in a batch are processed again, one
        by one.
    n_process (int): Number of worker processes, with one thread each. The processes end when the
        generator is exhausted or closed. Several processes save time only on idle cores: 5,000
        sentences took 5.4 seconds of CPU time in two processes with the starter, and 4.6 in
        one. With the `spawn` start method, each process loads the pipeline first.
    YIELDS (LinkedText): One per document.
    RAISES BioelError: [B250] if a worker process died.
    """
    work = partial(_link_batch, nlp, _make_doc, _run_pipes)
    return _map_batches(work, documents, batch_size, n_process)


def link_mentions(
    nlp: Language, texts: Iterable[AnnotatedText], *, batch_size: int = 64, n_process: int = 1
) -> Generator[LinkedText, None, None]:
    """Link annotated mentions using only the linker, ignoring the annotated ids.

    The label of a mention decides which knowledge base is used, if the linker has several, and
    which semantic types are allowed. Links keep the mentions' offsets, even those inside tokens.

    nlp (Language): A pipeline with a linker. Other arguments: see `link_texts`.
    YIELDS (LinkedText): One per text, with a link per mention, in the same order. Mentions that are
        not in the text are skipped, with the error [B554].
    """
    work = partial(_link_batch, nlp, _check_annotated_text, _run_linker)
    return _map_batches(work, texts, batch_size, n_process)


def _map_batches(
    work: Callable[[list[Item]], list[LinkedText]],
    items: Iterable[Item],
    batch_size: int,
    n_process: int,
) -> Generator[LinkedText, None, None]:
    serial = nullcontext(partial(map, work))
    with serial if n_process < 2 else worker_processes(work, n_process) as parallel_map:
        for linked in parallel_map(minibatch(items, batch_size)):
            yield from linked


def _link_batch(
    nlp: Language, prepare: Prepare, link_all: LinkAll, items: list[Item]
) -> list[LinkedText]:
    """Link a batch, then retry one by one any documents that are missing from the results."""
    linked: dict[int, LinkedText] = {}
    ready = {}
    # Memory zones cannot be nested, so use the caller's zone if one is open.
    is_open: bool = nlp.vocab.in_memory_zone  # type: ignore[attr-defined]
    zone: AbstractContextManager = nullcontext() if is_open else nlp.memory_zone()
    with zone:
        for n, item in enumerate(items):
            try:
                ready[n] = prepare(nlp, item)
            except Exception as error:  # an error in one text must not stop the batch
                linked[n] = _failed_text(item, error)
        # Errors in the batch are reported below, when its documents are retried one by one.
        with suppress(Exception), _error_handler(nlp, ignore_error):
            for n, links in link_all(nlp, ready):
                linked[n] = _linked_text(items[n], links)
        for n in [n for n in ready if n not in linked]:
            try:
                with _error_handler(nlp, raise_error), memory_errors():
                    ((_, links),) = link_all(nlp, {n: prepare(nlp, items[n])})
                linked[n] = _linked_text(items[n], links)
            except Exception as error:  # pipes may raise any exception
                linked[n] = _failed_text(items[n], error)
        return [linked[n] for n in range(len(items))]


def _make_doc(nlp: Language, document: Document) -> Doc:
    """Tokenise a text. RAISES BioelError: [B190] if it is not a string."""
    text, id = document
    if not isinstance(text, str):
        raise BioelError(Errors.B190.format(found=type(text).__name__))
    _check_characters(text, id)
    return nlp.make_doc(text)


def _run_pipes(nlp: Language, docs: dict[int, Doc]) -> Iterator[tuple[int, Sequence[Link]]]:
    key = spans_key(find_linker(nlp))
    pairs = [(doc, n) for n, doc in docs.items()]
    for doc, n in nlp.pipe(pairs, as_tuples=True, batch_size=max(1, len(pairs))):
        yield n, get_links(doc, key)


def _check_annotated_text(_: Language, text: AnnotatedText) -> AnnotatedText:
    _check_characters(text.text, text.id)
    return replace(text, mentions=tuple(m for m in text.mentions if _is_possible(m, text.text)))


def _is_possible(mention: Mention, text: str) -> bool:
    """Return whether a mention's offsets are within the text and enclose more than white space."""
    start, end = mention.start, mention.end
    are_integers = type(start) is type(end) is int
    return are_integers and 0 <= start < end <= len(text) and not text[start:end].isspace()


def _run_linker(
    nlp: Language, texts: dict[int, AnnotatedText]
) -> Iterator[tuple[int, Sequence[Link]]]:
    linker = require_linker(nlp)
    with _error_handler(nlp, raise_error):  # if one text fails, the whole batch fails
        links_of_texts = list(link_gold_mentions(nlp, linker, texts.values()))
    for (n, text), links in zip(texts.items(), links_of_texts, strict=True):
        # The linker widened mentions to whole tokens; restore their original offsets.
        pairs = zip(links, text.mentions, strict=True)
        yield n, [replace(link, start=mention.start, end=mention.end) for link, mention in pairs]


def _check_characters(text: str, id: str | None) -> None:
    """Check a text and its id. RAISES BioelError: [B251] if either contains a lone surrogate."""
    for field, value in (("text", text), ("id", id or "")):
        if match := _SURROGATE.search(value):
            if _FIRST_BYTE + 128 <= (code_point := ord(match[0])) < _FIRST_BYTE + 256:
                encoding = "utf-16" if value.startswith(_UTF16_MARKS) else "windows-1252"
                problem = _BAD_BYTE.format(code_point % 256, encoding)
            else:
                problem = _SURROGATE_PROBLEM.format(code_point)
            raise BioelError(Errors.B251.format(what=field, place=match.start(), found=problem))


def _text_and_id(item: Document | AnnotatedText) -> Document:
    return (item.text, item.id) if isinstance(item, AnnotatedText) else item


def _linked_text(item: Document | AnnotatedText, links: Sequence[Link]) -> LinkedText:
    text, id = _text_and_id(item)
    error = None
    if isinstance(item, AnnotatedText) and len(links) < (of := len(item.mentions)):
        first = next(m for m in item.mentions if not _is_possible(m, item.text))
        n, place = of - len(links), f"{(first.start, first.end)!s:.40}"
        error = _failure(Errors.B554.format(n=n, of=of, place=place, length=len(item.text)))
    return LinkedText(id, text, tuple(links), error)


def _failed_text(item: Document | AnnotatedText, error: Exception) -> LinkedText:
    text, id = (
        _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
        for value in _text_and_id(item)
    )
    return LinkedText(id, text, error=_failure(str(error), type(error).__name__))


def _failure(message: str, code: str = "") -> Failure:
    """Build a failure from an error message, splitting off its code (such as "[B190]")."""
    if match := _CODED_MESSAGE.match(message):
        code, message = match.groups()
    else:
        message = shortened(message)
    return Failure(code, _SURROGATE.sub("\ufffd", message))


@contextmanager
def _error_handler(nlp: Language, handler: Callable) -> Iterator[None]:
    previous = nlp.default_error_handler
    nlp.set_error_handler(handler)
    try:
        yield
    finally:
        nlp.set_error_handler(previous)


def check_linker(nlp: Language) -> None:
    """Check a pipeline's linker, including its KB and vectors, by running a query.

    Call this function before reading documents, or each of them would fail with the same error.

    RAISES BioelError: The same errors as opening the KB and its vectors; the error for a linker
        without a KB; [B411] if the pipeline has neither bioel_mentions nor bioel_linker.
    """
    if (linker := find_linker(nlp)) is None and find_detector(nlp) is None:
        raise BioelError(Errors.B411.format(pipes=", ".join(nlp.pipe_names) or "none"))
    if linker is not None:
        for part in linker.generator.parts or [linker.generator]:
            part.rank([("a", "")])


def to_row(linked: LinkedText, *, xrefs: bool = False, explain: bool = False) -> JsonRow:
    """Convert a linked text to a row of JSON values, as in `DocumentRow`.

    A link has a key for each fact, such as "hgvs" for a variant, or "context" if the pipeline
    includes the `bioel_context` pipe.

    xrefs (bool): Whether to include candidates' cross-references, as "xrefs".
    explain (bool): Whether to include the reason for each link, as "why", and the preferred names
        of candidates and of their types, as "preferred" and "kind", if the knowledge base is open.
    """
    error = linked.error and asdict(linked.error)
    links = [_link_row(linked, link, xrefs=xrefs, explain=explain) for link in linked.links]
    return {"id": linked.id, "text": linked.text, "links": links, "error": error}


def _link_row(linked: LinkedText, link: Link, *, xrefs: bool, explain: bool) -> JsonRow:
    text = linked.text or ""
    row: JsonRow = {
        "start": link.start,
        "end": link.end,
        "text": text[link.start : link.end],
        "label": link.label,
        "id": link.ids[0] if link.ids else None,
        "ids": list(link.ids),
        "candidates": [],
    }
    for candidate in link.candidates:
        values = {key: getattr(candidate, key) for key in _CANDIDATE_KEYS}
        if xrefs:
            values["xrefs"] = list(candidate.xrefs)
        if explain:
            named = {"preferred": candidate.preferred_name, "kind": type_name(candidate)}
            values |= {key: name for key, name in named.items() if name}
        row["candidates"].append(values)
    declared = declared_facts()
    facts = {name: value for name, value in link.facts.items() if value is not None}
    row |= {name: value for name, value in facts.items() if name not in declared}
    if explain:
        row["why"] = reason_of(link)
    return row | {name: facts[name] for name in declared if name in facts}
