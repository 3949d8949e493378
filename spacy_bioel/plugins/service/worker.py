"""Link texts with a pipeline: in this process or in a worker process that can be killed."""

from __future__ import annotations

import gc
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Timer
from typing import Any, ClassVar, cast

from pydantic_core import to_json
from spacy.language import Language

from spacy_bioel.errors import BioelError, crash_report
from spacy_bioel.export.rows import (
    Document,
    Failure,
    LinkedText,
    check_linker,
    describe_exit,
    link_texts,
    to_row,
)
from spacy_bioel.kb.bundled import KbSetting, place_of, setting_of
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import UserCode, find_linker
from spacy_bioel.parallel import use_one_thread
from spacy_bioel.plugins.service.errors import ServiceErrors

# Linked in advance, to open files and compute values that all later texts need.
_WARM_UP_TEXT = "Naloxone reversed the hypotension of mice that had been given clonidine."
_MAX_EXIT_SECONDS = 5
LOST_TEXT_CODES = ("B560", "B561")
# Signals that Ctrl+C and systemd send to all processes; the service stops its workers itself.
_IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True, slots=True)
class Job:
    """A text to link, and which optional parts to include in its row.

    document (Document): Text and id.
    candidates, xrefs (bool): Whether links include candidates, and candidates cross-references.
    explain (bool): Whether links include reasons, and candidates preferred names.
    """

    document: Document
    candidates: bool = True
    xrefs: bool = False
    explain: bool = False

    @property
    def n_characters(self) -> int:
        return len(self.document[0] or "")

    def answer(self, linked: LinkedText) -> Answer:
        """Build the `Answer` from the linked text."""
        row = to_row(linked, xrefs=self.xrefs, explain=self.explain)
        for link in row["links"] if not self.candidates else ():
            del link["candidates"]
        content = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        n_nil = sum(not link.ids for link in linked.links)
        return Answer(content.encode(), len(linked.links) - n_nil, n_nil, linked.error)

    def failed_answer(self, message: str) -> Answer:
        """Build the `Answer` for a text that was not linked; `message` comes from `Errors`."""
        code, _, message = message[1:].partition("] ")
        # Lone surrogates cannot be encoded, so replace them as in other rows.
        id = self.document[1] and self.document[1].encode("utf8", "replace").decode("utf8")
        return self.answer(LinkedText(id, None, error=Failure(code, message)))


@dataclass(frozen=True, slots=True)
class Call:
    """A call to another package's function with a pipeline; picklable for worker processes."""

    function: Callable[[Language], Any]
    n_characters: ClassVar = 0

    def answer(self, nlp: Language) -> Answer:
        """Call the function. RAISES BioelError: As the function; [B392] for any other exception."""
        try:
            content = to_json(self.function(nlp))
        except BioelError:
            raise
        except Exception as error:  # omit its message, which may quote a text
            print(crash_report(error, max_length=0), end="", file=sys.stderr)
            raise BioelError(ServiceErrors.B392.format(error=type(error).__name__)) from error
        return Answer(content, 0, 0, None)

    def failed_answer(self, message: str) -> Answer:
        """Build the `Answer` for a call whose worker died; `message` comes from `Errors`."""
        return Answer(b"", 0, 0, Failure(message[1:5], message))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of linking a text or making a call.

    row (bytes): Row as in `bioel link`, as JSON. The row of a failed text has an error. For a call,
        the value that the function returned.
    n_linked, n_nil (int): Number of mentions with and without an id.
    error (Failure | None): The error in the row.
    """

    row: bytes
    n_linked: int
    n_nil: int
    error: Failure | None


class WorkerLost(Exception):
    """A worker process died, or was killed for exceeding its deadline.

    how (str): How the process ended, such as "signal 9".
    message (str): Error for the text that the process was linking, with an error code.
    is_suspect (bool): Whether the process had received the text, which may be why it died.
    """

    def __init__(self, how: str, message: str, *, is_suspect: bool) -> None:
        super().__init__(message)
        self.how, self.message, self.is_suspect = how, message, is_suspect


class LoadedPipeline:
    """A pipeline that runs in this process, loaded by the function `load`."""

    is_lost = False
    pid: int | None = None

    def __init__(self, load: Callable[[], Language]) -> None:
        self._load = load
        self._linker: Linker
        self.meta: dict[str, Any]

    def load(self) -> None:
        """Load the pipeline, and link a text to warm it up.

        RAISES BioelError: [B388] if the pipeline has no linker, or if it cannot be loaded.
        """
        nlp = self._load()
        linker = find_linker(nlp)
        if linker is None:
            raise BioelError(ServiceErrors.B388.format(pipes=", ".join(nlp.pipe_names) or "none"))
        check_linker(nlp)
        (linked,) = link_texts(nlp, [(_WARM_UP_TEXT, None)])
        if linked.error is not None:
            raise BioelError(f"[{linked.error.code}] {linked.error.message}")
        self._nlp, self._linker = nlp, linker
        self.meta = {**nlp.meta, "nil_threshold": linker.cfg["nil_threshold"]}

    @property
    def kb(self) -> KnowledgeBase:
        return self._linker.kb

    @property
    def setting(self) -> KbSetting | None:
        """The `kb` setting for the current folders; None if a knowledge base is only in memory."""
        if any(part.path is None for part in parts_of(self.kb)):
            return None
        places = [place_of(part) for part in parts_of(self.kb)]
        return setting_of(self.kb, places, before=self._linker.cfg["kb"])

    def set_kb(self, setting: KbSetting) -> None:
        """Reopen the knowledge bases in a setting. RAISES BioelError: As `Linker.set_kb`."""
        self._linker.set_kb(setting)
        list(link_texts(self._nlp, [(_WARM_UP_TEXT, None)]))

    def link(self, jobs: Sequence[Job | Call]) -> list[Answer]:
        """Link texts in one batch, or make one call."""
        if isinstance(jobs[0], Call):
            return [jobs[0].answer(self._nlp)]
        texts = cast("Sequence[Job]", jobs)
        documents = [job.document for job in texts]
        linked = link_texts(self._nlp, documents, batch_size=len(documents))
        return [job.answer(text) for job, text in zip(texts, linked, strict=True)]

    def kill(self) -> None:
        """Do nothing: a thread cannot be killed."""


class WorkerProcess:
    """A pipeline in its own process, with the same methods as `LoadedPipeline`.

    load (Callable): Returns the pipeline; picklable.
    deadline (float): Seconds for a batch; a worker that takes longer is killed.
    """

    def __init__(self, load: Callable[[], Language], *, deadline: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        args = (UserCode(), load, theirs, deadline)
        self._process = context.Process(target=_work, args=args, daemon=True)
        self._process.start()
        theirs.close()
        self._deadline = deadline
        self._is_overdue = self._is_broken = False
        self.pid = self._process.pid
        self.kb: KnowledgeBase
        self.setting: KbSetting | None
        self.meta: dict[str, Any]

    def load(self) -> None:
        """Wait until the pipeline is loaded.

        RAISES BioelError: As `LoadedPipeline.load`; [B562] if the process died.
        """
        try:
            self.kb, self.setting, self.meta = self._ask("load")
        except WorkerLost as lost:
            raise BioelError(ServiceErrors.B562.format(how=lost.how)) from lost

    def set_kb(self, setting: KbSetting) -> None:
        """Call `LoadedPipeline.set_kb` in the process. RAISES WorkerLost: If the process died."""
        self.kb = self._ask("set_kb", setting)

    def link(self, jobs: Sequence[Job | Call]) -> list[Answer]:
        """Call `LoadedPipeline.link` in the process.

        RAISES WorkerLost: If the process died, or was too slow.
        """
        answers: list[Answer] = self._ask("link", jobs, seconds=self._deadline)
        return answers

    @property
    def is_lost(self) -> bool:
        """Whether the process has died, or is about to."""
        return self._is_broken or self._is_overdue or not self._process.is_alive()

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        self._process.kill()
        self._process.join()

    def _ask(self, name: str, *values: Any, seconds: float | None = None) -> Any:
        timer = Timer(seconds or 0, self._cut)
        if seconds:
            timer.daemon = True
            timer.start()
        has_begun = False
        try:
            self._connection.send((name, *values))
            has_begun = self._connection.recv()
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._is_broken = True
            self._process.join(_MAX_EXIT_SECONDS)
            self._connection.close()
            how = describe_exit(self._process)
            message = ServiceErrors.B561.format(how=how)
            if self._is_overdue:
                message = ServiceErrors.B560.format(seconds=self._deadline)
            raise WorkerLost(how, message, is_suspect=has_begun) from error
        finally:
            timer.cancel()
        if isinstance(answer, BioelError):
            raise answer
        return answer

    def _cut(self) -> None:
        self._is_overdue = True
        self._process.kill()


def _work(
    _: UserCode, load: Callable[[], Language], connection: Connection, deadline: float
) -> None:
    """Serve requests in a worker process until the service exits."""
    for name in _IGNORED_SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 20)  # as in the commands
    pipeline = LoadedPipeline(load)
    try:
        while True:
            name, *values = connection.recv()
            connection.send(True)
            if name == "link" and hasattr(signal, "setitimer"):
                # The timer ends this process if the service was killed before the deadline.
                signal.setitimer(signal.ITIMER_REAL, deadline + _MAX_EXIT_SECONDS)
            connection.send(_answer(pipeline, name, values))
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # omit its message, which may quote a text
        sys.exit(crash_report(error, max_length=0))


def _answer(pipeline: LoadedPipeline, name: str, values: list[Any]) -> Any:
    try:
        result = getattr(pipeline, name)(*values)
    except BioelError as error:
        return error
    if name == "load":
        use_one_thread()  # the workers share the cores
        gc.freeze()  # the pipeline is permanent, so the garbage collector can skip it
        return pipeline.kb, pipeline.setting, pipeline.meta
    return pipeline.kb if name == "set_kb" else result
