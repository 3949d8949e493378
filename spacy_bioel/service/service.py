"""The service, whoever asks: many callers, one thread that links for them."""

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
    LinkedText,
    Row,
    check_linker,
    link_texts,
    to_row,
)
from spacy_bioel.kb.bundled import place_of, setting_of
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, search_names
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_linker

Values = dict[str, Any]  # of JSON

# The first text pays for what is opened and computed at first use.
_WARMING_UP = "Naloxone reversed the hypotension of mice that had been given clonidine."


@dataclass(frozen=True, slots=True)
class Job:
    """A text to link, and what its row has.

    document (Document): Text and id.
    candidates, xrefs (bool): Whether links have candidates, and these their cross-references.
    """

    document: Document
    candidates: bool = True
    xrefs: bool = False

    @property
    def n_characters(self) -> int:
        return len(self.document[0] or "")


@dataclass(eq=False, slots=True)
class _Request:
    """Jobs that one caller waits for, of which the first `taken` are in a batch or done."""

    jobs: list[Job]
    taken: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    future: Future[list[Row]] = field(default_factory=Future)

    @property
    def waiting(self) -> int:
        return len(self.jobs) - self.taken

    def end(self, error: Exception | None = None) -> None:
        """Give the caller the rows, or an error."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result([self.rows[i] for i in range(len(self.jobs))])


class Service:
    """A pipeline that loads beside its callers, and links what they ask for in batches.

    One thread takes all texts that wait, up to a bound, and links them at once; one that comes
    alone is not kept waiting for others. Requests take turns, text by text, so that a small one
    does not wait for the end of a large one.

    load (Callable): Returns the pipeline; called once, in the thread, while requests may wait.
    max_characters (int): Characters a text. A longer one fails, and no other text with it.
    """

    # Large enough for the speed of batches, small enough that a text that comes alone waits some
    # hundred milliseconds at most.
    texts_a_batch = 16
    characters_a_batch = 30_000

    def __init__(self, load: Callable[[], Language], *, max_characters: int) -> None:
        self.max_characters = max_characters
        # Is told what has become of texts.
        self.observe: Callable[[Sequence[LinkedText]], None] = lambda linked: None
        self.failure: Exception | None = None  # of loading
        self._load = load
        self._nlp: Language
        self._linker: Linker
        self._loaded = Event()
        self._requests: deque[_Request] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="batches", daemon=True)

    # The thread and its batches.

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the pipeline is loaded, or has failed to load."""
        self._loaded.wait()

    @property
    def is_ready(self) -> bool:
        """Whether texts are linked."""
        return self._loaded.is_set() and self.failure is None

    def close(self) -> None:
        """End the thread after its batch; requests that still wait are cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of texts that no batch has taken yet."""
        with self._changed:
            return sum(request.waiting for request in self._requests)

    def submit(self, jobs: list[Job]) -> Future[list[Row]]:
        """Ask for the rows of texts, in their order.

        RETURNS (Future): Who cancels it, no longer waits, and its texts are dropped. Its exception
            is that of loading or of linking.
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
        except Exception as error:  # told to all who wait, and to whoever asks for `failure`
            with self._changed:
                self.failure = error
                while self._requests:
                    self._requests.popleft().end(error)
            return
        finally:
            self._loaded.set()
        while batch := self._take():
            self._work_on(batch)
        for request in self._requests:
            request.future.cancel()

    def _take(self) -> list[tuple[_Request, int]]:
        """Wait for texts, and take some.

        RETURNS (list): Requests and positions in them; empty when closed.
        """
        batch: list[tuple[_Request, int]] = []
        size = 0
        with self._changed:
            while not batch and not self._closed:
                self._changed.wait_for(lambda: self._requests or self._closed)
                while (
                    self._requests
                    and len(batch) < self.texts_a_batch
                    and size < self.characters_a_batch
                ):
                    request = self._requests.popleft()
                    if request.future.done():  # cancelled, or an earlier batch of it failed
                        continue
                    batch.append((request, request.taken))
                    size += request.jobs[request.taken].n_characters
                    request.taken += 1
                    if request.waiting:
                        self._requests.append(request)
        return batch

    def _work_on(self, batch: list[tuple[_Request, int]]) -> None:
        try:
            rows = self._link_batch([request.jobs[position] for request, position in batch])
        except Exception as error:  # the callers' answer; the thread goes on
            for request, _ in batch:
                request.end(error)
            return
        for (request, position), row in zip(batch, rows, strict=True):
            request.rows[position] = row
            if len(request.rows) == len(request.jobs):
                request.end()

    # What callers ask for.

    async def ready(self) -> None:
        """Wait until the pipeline is loaded. RAISES BioelError: Those of loading."""
        await asyncio.to_thread(self.wait)
        if self.failure is not None:
            raise self.failure

    async def link(self, jobs: list[Job]) -> list[Row]:
        """Link texts; texts that come before the pipeline is loaded wait for it.

        RETURNS (list[Row]): Rows as those of `bioel link`, in the order of the jobs; that of a text
            that failed has an error instead of links.
        RAISES BioelError: Those of loading the pipeline.
        """
        too_long = {n: row for n, job in enumerate(jobs) if (row := self._too_long(job))}
        rest = [job for n, job in enumerate(jobs) if n not in too_long]
        linked = await asyncio.wrap_future(self.submit(rest))
        rows = iter(linked)
        return [too_long.get(n) or next(rows) for n in range(len(jobs))]

    def concept(self, id: str) -> Values:
        """Look up a concept. RAISES BioelError: [B337] an unknown id, [B387] not loaded yet."""
        concept = self.kb[id]
        lists = ("names", "types", "parents", "xrefs")
        return {
            "id": concept.id,
            "name": concept.names[0],
            "definition": concept.definition,
            **{key: list(getattr(concept, key)) for key in lists},
        }

    def search(self, words: str, k: int) -> list[Values]:
        """Search for concepts by words, the best first. RAISES BioelError: [B387] not loaded."""
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
        """The knowledge base as it is now. RAISES BioelError: [B387] not loaded yet."""
        if not self.is_ready:
            raise BioelError(Errors.B387)
        return self._linker.kb

    def about(self) -> Values:
        """Name and version of everything that answers depend on, as JSON values.

        RAISES BioelError: [B387] not loaded yet.
        """
        parts = parts_of(self.kb)
        meta = self._nlp.meta
        return {
            "model": {"name": f"{meta['lang']}_{meta['name']}", "version": meta["version"]},
            "versions": {"spacy-bioel": __version__, "spacy": spacy.__version__},
            "kbs": [asdict(part.releases[0]) | {"names": part.n_names} for part in parts],
        }

    def reopen_kb(self) -> str:
        """Open the folders of the knowledge base anew, for the generations that they have now.

        Texts of running batches are linked to the old ones. After an error the old ones stay.

        RETURNS (str): The fingerprint.
        RAISES BioelError: Those of `KnowledgeBase.open`; [B387] not loaded yet.
        """
        kb = self.kb
        if all(part.path is not None for part in parts_of(kb)):
            before = self._linker.cfg["kb"]
            places = [place_of(part) for part in parts_of(kb)]
            self._linker.set_kb(setting_of(kb, places, before=before))
        return self.kb.fingerprint

    def _load_and_try(self) -> None:
        """Load the pipeline and link a text.

        RAISES BioelError: [B388] a pipeline without a linker; those of loading.
        """
        nlp = self._load()
        linker = find_linker(nlp)
        if linker is None:
            raise BioelError(Errors.B388.format(pipes=", ".join(nlp.pipe_names) or "none"))
        check_linker(nlp)
        (linked,) = link_texts(nlp, [(_WARMING_UP, None)])
        if linked.error is not None:
            raise BioelError(f"[{linked.error.code}] {linked.error.message}")
        self._nlp, self._linker = nlp, linker

    def _link_batch(self, jobs: list[Job]) -> list[Row]:
        # Kept open until rows have read their cross-references, if it is replaced meanwhile.
        _kb = self._linker.kb
        linked = list(link_texts(self._nlp, [job.document for job in jobs], batch_size=len(jobs)))
        self.observe(linked)
        rows = [to_row(one, xrefs=job.xrefs) for one, job in zip(linked, jobs, strict=True)]
        for row, job in zip(rows, jobs, strict=True):
            if not job.candidates:
                for link in row["links"]:
                    del link["candidates"]
        return rows

    def _too_long(self, job: Job) -> Row | None:
        if job.n_characters <= self.max_characters:
            return None
        code, _, message = Errors.B386[1:].partition("] ")
        message = message.format(found=job.n_characters, most=self.max_characters)
        # As in other rows: half of a surrogate pair cannot be written.
        id = job.document[1] and job.document[1].encode("utf8", "replace").decode("utf8")
        failed = LinkedText(id, None, error=Failure(code, message))
        self.observe([failed])
        return to_row(failed)
