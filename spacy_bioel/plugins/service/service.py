"""Link texts for many callers in batches, independently of the protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Condition, Event, Lock, Thread
from typing import Any

import spacy
from spacy.language import Language

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.bundled import KbSetting, open_kbs, open_setting
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, search_names
from spacy_bioel.plugins.service.errors import ServiceErrors
from spacy_bioel.plugins.service.worker import (
    Answer,
    Call,
    Job,
    LoadedPipeline,
    WorkerLost,
    WorkerProcess,
)

Values = dict[str, Any]  # A JSON object.

# Longer texts gain nothing from batching, and might hold up a batch until its deadline.
_MAX_CHARACTERS_IN_BATCH = 10_000
_RETRY_SECONDS = 5.0  # delay before the next attempt to start a worker


@dataclass(eq=False, slots=True)
class _Request:
    """The jobs that one caller is waiting for.

    waiting (deque[int]): Positions of jobs that are neither in a batch nor done.
    suspects (set[int]): Positions of jobs to link alone, because their batch was lost.
    answers (dict): Position -> fingerprint of the knowledge base ("" if none was used), and answer.
    """

    jobs: Sequence[Job | Call]
    waiting: deque[int]
    suspects: set[int] = field(default_factory=set)
    answers: dict[int, tuple[str, Answer]] = field(default_factory=dict)
    future: Future[list[Answer]] = field(default_factory=Future)

    def is_alone(self, position: int) -> bool:
        """Return whether a job may be slow, and so gets its own batch."""
        job = self.jobs[position]
        is_long = isinstance(job, Call) or job.n_characters > _MAX_CHARACTERS_IN_BATCH
        return is_long or position in self.suspects

    def outdated(self, fingerprint: str) -> list[int]:
        """Return the positions to link again if answers come from different knowledge bases."""
        used = {position: used for position, (used, _) in self.answers.items() if used}
        is_mixed = len(set(used.values())) > 1
        return [position for position in used if is_mixed and used[position] != fingerprint]

    def end(self, error: Exception | None = None) -> None:
        """Pass the answers, or an error, to the caller."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result([self.answers[i][1] for i in range(len(self.jobs))])


_Batch = list[tuple[_Request, int]]  # requests, each with the position of one of its jobs


class Service:
    """Pipelines that link all callers' texts in batches, in threads or in worker processes.

    A worker takes all waiting texts, up to a limit, and links them as one batch; a single text
    does not wait for more texts. Requests take turns, text by text, so that a small request does
    not wait for a large one to finish.

    If a worker process dies or exceeds the deadline, its texts are linked again, each alone. Long
    texts are always linked alone.

    load (Callable): Returns the pipeline; picklable for worker processes.
    max_characters (int): Characters per text. A longer text fails; other texts are not affected.
    n_workers (int): Number of worker processes; 0: one thread of this process, without a deadline.
    deadline (float): Seconds to link a batch or a text in a worker process.
    """

    # Large enough for batches to be fast, small enough that a single text waits a few hundred
    # milliseconds at most.
    texts_per_batch = 16
    characters_per_batch = 30_000

    def __init__(
        self,
        load: Callable[[], Language],
        *,
        max_characters: int,
        n_workers: int = 0,
        deadline: float = 10.0,
    ) -> None:
        self.max_characters = max_characters
        # Called with new answers, to update metrics.
        self.observe: Callable[[Sequence[Answer]], None] = lambda answers: None
        self.notify: Callable[[str], None] = lambda message: None  # called with log messages
        self.failure: Exception | None = None  # raised while loading
        self._make: Callable[[], LoadedPipeline | WorkerProcess] = partial(LoadedPipeline, load)
        if n_workers:
            self._make = partial(WorkerProcess, load, deadline=deadline)
        self._pipelines: list[LoadedPipeline | WorkerProcess] = []  # loading or loaded
        self.n_loaded = 0
        self._kb: KnowledgeBase
        self._setting: KbSetting | None
        self._meta: Values
        self._reopening = Lock()
        self._loaded = Event()
        self._requests: deque[_Request] = deque()
        self._open: set[_Request] = set()  # not answered
        self._changed = Condition()
        self._closed = False
        self._threads = [
            Thread(target=self._run, name=f"batches {number}", daemon=True)
            for number in range(max(1, n_workers))
        ]

    def start(self) -> None:
        """Start loading the pipeline, without waiting for it."""
        self._threads[0].start()  # starts the others once it has loaded the pipeline

    def wait(self) -> None:
        """Wait until the pipeline is loaded or loading has failed."""
        self._loaded.wait()

    @property
    def is_ready(self) -> bool:
        """Whether the pipeline is loaded and texts can be linked."""
        return self._loaded.is_set() and self.failure is None

    @property
    def waiting(self) -> int:
        """Number of texts that are not yet in a batch."""
        with self._changed:
            return sum(len(request.waiting) for request in self._requests)

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, including those that are loading."""
        with self._changed:
            return [pipeline.pid for pipeline in self._pipelines if pipeline.pid]

    def close(self) -> None:
        """Kill all workers, fail open requests with B563, and join threads after their batch."""
        with self._changed:
            self._closed = True
            self._end_all(BioelError(ServiceErrors.B563))
            pipelines = list(self._pipelines)
            self._changed.notify_all()
        for pipeline in pipelines:
            pipeline.kill()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def submit(self, jobs: Sequence[Job | Call]) -> Future[list[Answer]]:
        """Queue texts or a call, and return a future for the answers in the same order.

        RETURNS (Future): The answers. Cancelling the future drops its texts. Its exception is an
            error raised while loading or linking.
        """
        request = _Request(jobs, deque(range(len(jobs))))
        with self._changed:
            if self.failure is not None or not jobs:
                request.end(self.failure)
            elif self._closed:
                request.end(BioelError(ServiceErrors.B563))
            else:
                self._requests.append(request)
                self._open.add(request)
                request.future.add_done_callback(lambda _: self._open.discard(request))
                self._changed.notify(len(jobs))
        return request.future

    def _run(self) -> None:
        """Load a pipeline and link batches; if the pipeline is lost, load another one."""
        while not self._closed:
            try:
                pipeline = self._load_pipeline()
            except Exception as error:
                if self._closed:
                    return
                if not self._loaded.is_set():  # passed to all callers
                    self._end_all(error)
                    return
                self.notify(f"A worker process could not be started: {error}")
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, timeout=_RETRY_SECONDS)
                continue
            while not pipeline.is_lost and (batch := self._take_batch()):
                self._answer_batch(pipeline, batch)
            with self._changed:
                self.n_loaded -= 1
                self._pipelines.remove(pipeline)

    def _load_pipeline(self) -> LoadedPipeline | WorkerProcess:
        pipeline = self._make()
        with self._changed:
            self._pipelines.append(pipeline)
            is_late = self._closed
        try:
            if is_late:
                pipeline.kill()
            pipeline.load()
        except Exception:
            pipeline.kill()
            with self._changed:
                self._pipelines.remove(pipeline)
            raise
        with self._changed:
            self.n_loaded += 1
            if not self._loaded.is_set():
                self._kb, self._setting = pipeline.kb, pipeline.setting
                self._meta = pipeline.meta
                self._loaded.set()
                for thread in self._threads[1:]:
                    thread.start()
        return pipeline

    def _end_all(self, error: Exception) -> None:
        """Fail all open requests with an error, and record the error unless `close` was called."""
        with self._changed:
            if not self._closed:
                self.failure = error
                self._loaded.set()
            for request in list(self._open):
                request.end(error)

    def _take_batch(self) -> _Batch:
        """Wait for texts and return a batch of them, or an empty batch if the service is closed."""
        with self._changed:
            while not self._closed:
                if batch := self._waiting_batch():
                    return batch
                self._changed.wait()
        return []

    def _waiting_batch(self) -> _Batch:
        batch: _Batch = []
        size, is_full = 0, False
        while self._requests and not is_full:
            request = self._requests.popleft()
            if request.future.done():  # cancelled, or failed in an earlier batch
                continue
            is_alone = request.is_alone(request.waiting[0])
            if is_alone and batch:
                self._requests.appendleft(request)
                break
            position = request.waiting.popleft()
            batch.append((request, position))
            size += request.jobs[position].n_characters
            if request.waiting:
                self._requests.append(request)
            is_full = (
                is_alone or len(batch) >= self.texts_per_batch or size >= self.characters_per_batch
            )
        return batch

    def _answer_batch(self, pipeline: LoadedPipeline | WorkerProcess, batch: _Batch) -> None:
        try:
            self._update_kb(pipeline)
            answers = pipeline.link([request.jobs[position] for request, position in batch])
        except WorkerLost as lost:
            self._answer_lost(batch, lost)
        except Exception as error:  # passed to the callers; the thread continues
            for request, _ in batch:
                request.end(error)
        else:
            self._accept(batch, answers, pipeline.kb.fingerprint)

    def _answer_lost(self, batch: _Batch, lost: WorkerLost) -> None:
        """Requeue a lost batch's texts, so that each is linked alone.

        A text fails if it was alone and took too long, or if two of its workers died: the first
        worker may have died for another reason.
        """
        if self._closed:
            return
        n_characters = sum(request.jobs[position].n_characters for request, position in batch)
        code = lost.message[1:5]
        self.notify(
            f"A worker process is replaced [{code}]; its batch had {len(batch)} texts with "
            f"{n_characters:,} characters."
        )
        request, position = batch[0]
        is_overdue = code == "B560"
        if lost.is_suspect and len(batch) == 1 and (is_overdue or position in request.suspects):
            self._accept(batch, [request.jobs[position].failed_answer(lost.message)], "")
            return
        with self._changed:
            for request, position in reversed(batch):
                if lost.is_suspect:
                    request.suspects.add(position)
                self._put_back(request, position)

    def _put_back(self, request: _Request, position: int) -> None:
        request.waiting.appendleft(position)
        if request not in self._requests:
            self._requests.appendleft(request)
        self._changed.notify()

    def _accept(self, batch: _Batch, answers: list[Answer], fingerprint: str) -> None:
        """Store answers, and finish the requests that they complete.

        If the knowledge base was replaced in between, texts with older answers are linked again, so
        that all answers to a request come from the same knowledge base.
        """
        if all(isinstance(request.jobs[position], Job) for request, position in batch):
            self.observe(answers)
        with self._changed:
            for (request, position), answer in zip(batch, answers, strict=True):
                request.answers[position] = fingerprint, answer
                if len(request.answers) == len(request.jobs):
                    for outdated in reversed(request.outdated(self._kb.fingerprint)):
                        del request.answers[outdated]
                        self._put_back(request, outdated)
                if len(request.answers) == len(request.jobs):
                    request.end()

    async def ready(self) -> None:
        """Wait until the pipeline is loaded. RAISES BioelError: If it cannot be loaded."""
        await asyncio.to_thread(self.wait)
        if self.failure is not None:
            raise self.failure

    async def link(self, jobs: list[Job]) -> list[Answer]:
        """Wait until the pipeline is loaded, then link texts.

        RETURNS (list[Answer]): In the order of the jobs. The row of a failed text has an error
            instead of links.
        RAISES BioelError: If the pipeline cannot be loaded; [B563] if the service is closed.
        """
        answers = [self._refuse_long_text(job) for job in jobs]
        accepted = [job for job, answer in zip(jobs, answers, strict=True) if answer is None]
        linked = await asyncio.wrap_future(self.submit(accepted))
        remaining = iter(linked)
        return [answer or next(remaining) for answer in answers]

    async def call(self, function: Callable[[Language], Any]) -> bytes:
        """Call another package's function with a pipeline.

        RETURNS (bytes): The value that the function returns, as JSON.
        RAISES BioelError: The function's own error; [B560] or [B561] if its worker was lost; the
            same errors as `link`.
        """
        (answer,) = await asyncio.wrap_future(self.submit([Call(function)]))
        if answer.error is not None:
            raise BioelError(answer.error.message)
        return answer.row

    def refuse_long(self, values: Iterable[object]) -> None:
        """Check the length of all strings in `values`, ignoring those inside lists and objects.

        RAISES BioelError: [B386] if a string is too long.
        """
        for value in values:
            if isinstance(value, str) and len(value) > self.max_characters:
                raise BioelError(
                    ServiceErrors.B386.format(found=len(value), most=self.max_characters)
                )

    def concept(self, id: str) -> Values:
        """Look up a concept. RAISES BioelError: [B337] for an unknown id, [B387] while loading."""
        concept = self.kb[id]
        lists = ("names", "types", "parents", "xrefs")
        return {
            "id": concept.id,
            "name": concept.names[0],
            "definition": concept.definition,
            **{key: list(getattr(concept, key)) for key in lists},
        }

    def search(self, words: str, k: int) -> list[Values]:
        """Search for concepts by words, best first. RAISES BioelError: [B387] while loading."""
        return [
            {
                "id": hit.concept.id,
                "name": hit.concept.names[0],
                "matched": hit.name,
                "score": hit.score,
                "types": list(hit.concept.types),
            }
            for hit in search_names(self.kb, words, k)
        ]

    @property
    def kb(self) -> KnowledgeBase:
        """The current knowledge base. RAISES BioelError: [B387] while loading."""
        if not self.is_ready:
            raise BioelError(ServiceErrors.B387)
        return self._kb

    def about(self) -> Values:
        """Describe the model, versions and knowledge bases that results depend on, as JSON values.

        RAISES BioelError: [B387] while loading.
        """
        parts, meta = parts_of(self.kb), self._meta
        return {
            "model": {
                "name": f"{meta['lang']}_{meta['name']}",
                "version": meta["version"],
                "pipes": meta["pipeline"],
                "nil_threshold": meta["nil_threshold"],
            },
            "versions": {"spacy-bioel": __version__, "spacy": spacy.__version__},
            "kbs": [asdict(part.releases[0]) | {"names": part.n_names} for part in parts],
        }

    def reopen_kb(self) -> str:
        """Reload the knowledge base from the current contents of its folders.

        Running batches still use the old knowledge base; each worker reloads before its next batch.
        If reloading fails, the old knowledge base is kept.

        RETURNS (str): The fingerprint of the knowledge base.
        RAISES BioelError: The same errors as `KnowledgeBase.open`; [B387] while loading.
        """
        with self._reopening:
            kb = self.kb
            if self._setting is not None:
                self._kb = kb = open_kbs(self._setting, open_setting)
        return kb.fingerprint

    def _update_kb(self, pipeline: LoadedPipeline | WorkerProcess) -> None:
        while pipeline.kb.fingerprint != self._kb.fingerprint and self._setting is not None:
            pipeline.set_kb(self._setting)
            if pipeline.kb.fingerprint != self._kb.fingerprint:
                self.reopen_kb()  # the folder was changed again

    def _refuse_long_text(self, job: Job) -> Answer | None:
        if job.n_characters <= self.max_characters:
            return None
        message = ServiceErrors.B386.format(found=job.n_characters, most=self.max_characters)
        answer = job.failed_answer(message)
        self.observe([answer])
        return answer
