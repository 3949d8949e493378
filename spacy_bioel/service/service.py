"""Service that links texts for many callers in one thread, independently of the protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from threading import Condition, Event, Thread
from typing import Any

import spacy
from spacy.language import Language

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.rows import (
    Document,
    Failure,
    JsonRow,
    LinkedText,
    check_linker,
    link_texts,
    to_row,
)
from spacy_bioel.kb.bundled import place_of, setting_of
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, search_names
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_linker

Values = dict[str, Any]  # a JSON object

# Linking one text in advance opens files and computes values that all later texts need.
_WARM_UP_TEXT = "Naloxone reversed the hypotension of mice that had been given clonidine."


@dataclass(frozen=True, slots=True)
class Job:
    """A text to link, and which optional parts its row should contain.

    document (Document): Text and id.
    candidates, xrefs (bool): Whether links include candidates, and candidates cross-references.
    """

    document: Document
    candidates: bool = True
    xrefs: bool = False

    @property
    def n_characters(self) -> int:
        return len(self.document[0] or "")


@dataclass(eq=False, slots=True)
class _Request:
    """Jobs that one caller waits for; the first `taken` jobs are in a batch or done."""

    jobs: list[Job]
    taken: int = 0
    rows: dict[int, JsonRow] = field(default_factory=dict)
    future: Future[list[JsonRow]] = field(default_factory=Future)

    @property
    def waiting(self) -> int:
        return len(self.jobs) - self.taken

    def end(self, error: Exception | None = None) -> None:
        """Pass the rows, or an error, to the caller."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result([self.rows[i] for i in range(len(self.jobs))])


class Service:
    """Pipeline that is loaded in a thread and links all callers' texts in batches.

    The thread takes all waiting texts, up to a limit, and links them as one batch; a single text
    does not wait for more texts. Requests take turns, text by text, so that a small request does
    not wait for a large one to finish.

    load (Callable): Returns the pipeline; called once, in the thread, while requests may wait.
    max_characters (int): Characters per text. A longer text fails; other texts are not affected.
    """

    # Large enough for batches to be fast, small enough that a single text waits a few hundred
    # milliseconds at most.
    texts_per_batch = 16
    characters_per_batch = 30_000

    def __init__(self, load: Callable[[], Language], *, max_characters: int) -> None:
        self.max_characters = max_characters
        # Receives linked texts, for metrics.
        self.observe: Callable[[Sequence[LinkedText]], None] = lambda linked: None
        self.failure: Exception | None = None  # raised while loading
        self._load = load
        self._nlp: Language
        self._linker: Linker
        self._loaded = Event()
        self._requests: deque[_Request] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="batches", daemon=True)

    def start(self) -> None:
        """Start loading in the thread, without waiting for it."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the pipeline is loaded or loading has failed."""
        self._loaded.wait()

    @property
    def is_ready(self) -> bool:
        """Whether the pipeline is loaded and texts can be linked."""
        return self._loaded.is_set() and self.failure is None

    def close(self) -> None:
        """Stop the thread after its current batch, and cancel waiting requests."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of texts that are not yet in a batch."""
        with self._changed:
            return sum(request.waiting for request in self._requests)

    def submit(self, jobs: list[Job]) -> Future[list[JsonRow]]:
        """Request the rows for texts, in the order of the texts.

        RETURNS (Future): The rows. If it is cancelled, its texts are dropped. Its exception is an
            error raised while loading or linking.
        """
        request = _Request(jobs)
        with self._changed:
            if self.failure is not None or not jobs:
                request.end(self.failure)
            elif self._closed:
                request.future.cancel()
            else:
                self._requests.append(request)
                self._changed.notify()
        return request.future

    def _run(self) -> None:
        try:
            self._load_and_try()
        except Exception as error:  # passed to all waiting callers
            with self._changed:
                self.failure = error
                while self._requests:
                    self._requests.popleft().end(error)
            return
        finally:
            self._loaded.set()
        while batch := self._take_batch():
            self._answer_batch(batch)
        for request in self._requests:
            request.future.cancel()

    def _take_batch(self) -> list[tuple[_Request, int]]:
        """Wait for texts, and take a batch of them.

        RETURNS (list): (request, position of its job) pairs; empty when the service is closed.
        """
        batch: list[tuple[_Request, int]] = []
        size = 0
        with self._changed:
            while not batch and not self._closed:
                self._changed.wait_for(lambda: self._requests or self._closed)
                while (
                    self._requests
                    and len(batch) < self.texts_per_batch
                    and size < self.characters_per_batch
                ):
                    request = self._requests.popleft()
                    if request.future.done():  # cancelled, or failed in an earlier batch
                        continue
                    batch.append((request, request.taken))
                    size += request.jobs[request.taken].n_characters
                    request.taken += 1
                    if request.waiting:
                        self._requests.append(request)
        return batch

    def _answer_batch(self, batch: list[tuple[_Request, int]]) -> None:
        try:
            rows = self._link_batch([request.jobs[position] for request, position in batch])
        except Exception as error:  # passed to the callers; the thread continues
            for request, _ in batch:
                request.end(error)
            return
        for (request, position), row in zip(batch, rows, strict=True):
            request.rows[position] = row
            if len(request.rows) == len(request.jobs):
                request.end()

    async def ready(self) -> None:
        """Wait until the pipeline is loaded. RAISES BioelError: If it cannot be loaded."""
        await asyncio.to_thread(self.wait)
        if self.failure is not None:
            raise self.failure

    async def link(self, jobs: list[Job]) -> list[JsonRow]:
        """Link texts, after the pipeline is loaded.

        RETURNS (list[JsonRow]): Rows as in `bioel link`, in the order of the jobs. The row of a
            failed text has an error instead of links.
        RAISES BioelError: If the pipeline cannot be loaded.
        """
        rows = [self._refuse_long_text(job) for job in jobs]
        accepted = [job for job, row in zip(jobs, rows, strict=True) if row is None]
        linked = await asyncio.wrap_future(self.submit(accepted))
        remaining = iter(linked)
        return [next(remaining) if row is None else row for row in rows]

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
            raise BioelError(Errors.B387)
        return self._linker.kb

    def about(self) -> Values:
        """Describe the model, versions and knowledge bases that answers depend on, as JSON values.

        RAISES BioelError: [B387] while loading.
        """
        parts = parts_of(self.kb)
        meta = self._nlp.meta
        return {
            "model": {"name": f"{meta['lang']}_{meta['name']}", "version": meta["version"]},
            "versions": {"spacy-bioel": __version__, "spacy": spacy.__version__},
            "kbs": [asdict(part.releases[0]) | {"names": part.n_names} for part in parts],
        }

    def reopen_kb(self) -> str:
        """Reload the knowledge base from its folders as they are now.

        A running batch still uses the old knowledge base. If reloading fails, the old one is kept.

        RETURNS (str): The fingerprint.
        RAISES BioelError: The same errors as `KnowledgeBase.open`; [B387] while loading.
        """
        kb = self.kb
        if all(part.path is not None for part in parts_of(kb)):
            setting = self._linker.cfg["kb"]
            places = [place_of(part) for part in parts_of(kb)]
            self._linker.set_kb(setting_of(kb, places, before=setting))
        return self.kb.fingerprint

    def _load_and_try(self) -> None:
        """Load the pipeline and link a text.

        RAISES BioelError: [B388] if the pipeline has no linker, or if it cannot be loaded.
        """
        nlp = self._load()
        linker = find_linker(nlp)
        if linker is None:
            raise BioelError(Errors.B388.format(pipes=", ".join(nlp.pipe_names) or "none"))
        check_linker(nlp)
        (linked,) = link_texts(nlp, [(_WARM_UP_TEXT, None)])
        if linked.error is not None:
            raise BioelError(f"[{linked.error.code}] {linked.error.message}")
        self._nlp, self._linker = nlp, linker

    def _link_batch(self, jobs: list[Job]) -> list[JsonRow]:
        # Keeps the knowledge base and its cross-references open, even if it is replaced in between.
        _kb = self._linker.kb
        linked = list(link_texts(self._nlp, [job.document for job in jobs], batch_size=len(jobs)))
        self.observe(linked)
        rows = [to_row(text, xrefs=job.xrefs) for text, job in zip(linked, jobs, strict=True)]
        for row, job in zip(rows, jobs, strict=True):
            if not job.candidates:
                for link in row["links"]:
                    del link["candidates"]
        return rows

    def _refuse_long_text(self, job: Job) -> JsonRow | None:
        if job.n_characters <= self.max_characters:
            return None
        code, _, message = Errors.B386[1:].partition("] ")
        message = message.format(found=job.n_characters, most=self.max_characters)
        # Lone surrogates cannot be encoded; they are replaced as in other rows.
        id = job.document[1] and job.document[1].encode("utf8", "replace").decode("utf8")
        failed = LinkedText(id, None, error=Failure(code, message))
        self.observe([failed])
        return to_row(failed)
