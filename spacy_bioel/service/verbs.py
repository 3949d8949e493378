"""Verbs of a service, whoever asks: link texts, look up a concept, search for concepts, and say
which releases are loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import spacy
from spacy.language import Language

from spacy_bioel import __version__
from spacy_bioel.distributed.rows import (
    Document,
    Failure,
    LinkedText,
    Row,
    check_linker,
    link_texts,
    to_row,
)
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.joined import parts_of
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.search import Hit, search_names
from spacy_bioel.pipeline.linker.kbs import setting_of
from spacy_bioel.pipeline.linker.starter import place_of
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.service.batching import Batcher
from spacy_bioel.types import Concept

# The first text pays for what is opened and computed at first use.
_WARMING_UP = "Naloxone reversed the hypotension of mice that had been given clonidine."
# Large enough for the speed of batches, small enough that a text that comes alone waits some
# hundred milliseconds at most.
_TEXTS_A_BATCH = 16
_CHARACTERS_A_BATCH = 30_000


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


class Service:
    """A pipeline that loads beside its callers, and links what they ask for in batches.

    load (Callable): Returns the pipeline; called in a thread of the service.
    max_characters (int): Characters a text. A longer one fails, and no other text with it.
    observe (Callable | None): Is told what has become of texts.
    """

    def __init__(
        self,
        load: Callable[[], Language],
        *,
        max_characters: int,
        observe: Callable[[Sequence[LinkedText]], None] | None = None,
    ) -> None:
        self.max_characters = max_characters
        self._load = load
        self._observe = observe
        self._nlp: Language | None = None
        self._linker: Any = None
        self._batches: Batcher[Job, Row] = Batcher(
            self._prepare,
            size=lambda job: job.n_characters,
            most=_TEXTS_A_BATCH,
            room=_CHARACTERS_A_BATCH,
        )

    def start(self) -> None:
        """Begin to load the pipeline; returns at once."""
        self._batches.start()

    def close(self) -> None:
        """End after the texts that are being linked; those that wait are dropped."""
        self._batches.close()

    def wait(self) -> None:
        """Wait until the pipeline is loaded, or could not be, see `failure`."""
        self._batches.wait()

    async def ready(self) -> None:
        """Wait until the pipeline is loaded. RAISES BioelError: Those of loading."""
        await asyncio.to_thread(self.wait)
        if self.failure is not None:
            raise self.failure

    @property
    def is_ready(self) -> bool:
        """Whether the pipeline is loaded and has linked a text."""
        return self._batches.is_ready

    @property
    def failure(self) -> Exception | None:
        """The reason why the pipeline could not be loaded, if so."""
        return self._batches.failure

    @property
    def waiting(self) -> int:
        """Number of texts that wait."""
        return self._batches.waiting

    async def link(self, jobs: list[Job]) -> list[Row]:
        """Link texts; texts that come before the pipeline is loaded wait for it.

        RETURNS (list[Row]): Rows as those of `bioel link`, in the order of the jobs; that of a text
            that failed has an error instead of links.
        RAISES BioelError: Those of loading the pipeline.
        """
        too_long = {n: row for n, job in enumerate(jobs) if (row := self._too_long(job))}
        rest = [job for n, job in enumerate(jobs) if n not in too_long]
        linked = await asyncio.wrap_future(self._batches.submit(rest))
        rows = iter(linked)
        return [too_long.get(n) or next(rows) for n in range(len(jobs))]

    def concept(self, id: str) -> Concept:
        """Look up a concept. RAISES BioelError: [B337] an unknown id, [B387] not loaded yet."""
        return self.kb[id]

    def search(self, words: str, k: int) -> list[Hit]:
        """Search for concepts by words. RAISES BioelError: [B387] not loaded yet."""
        return search_names(self.kb, words, k)

    @property
    def kb(self) -> KnowledgeBase:
        """The knowledge base as it is now. RAISES BioelError: [B387] not loaded yet."""
        if not self.is_ready:
            raise BioelError(Errors.B387)
        kb: KnowledgeBase = self._linker.kb
        return kb

    def about(self) -> dict[str, Any]:
        """Name and version of everything that answers depend on, as JSON values.

        RAISES BioelError: [B387] not loaded yet.
        """
        kb = self.kb
        assert self._nlp is not None
        meta = self._nlp.meta
        return {
            "model": {"name": f"{meta['lang']}_{meta['name']}", "version": meta["version"]},
            "versions": {"spacy-bioel": __version__, "spacy": spacy.__version__},
            "kbs": [_about_kb(part) for part in parts_of(kb)],
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

    def _prepare(self) -> Callable[[list[Job]], list[Row]]:
        """Load the pipeline and link a text.

        RAISES BioelError: [B388] a pipeline without a linker; those of loading.
        """
        nlp = self._load()
        self._linker = find_linker(nlp)
        if self._linker is None:
            raise BioelError(Errors.B388.format(pipes=", ".join(nlp.pipe_names) or "none"))
        check_linker(nlp)
        (linked,) = link_texts(nlp, [(_WARMING_UP, None)])
        if linked.error is not None:
            raise BioelError(f"[{linked.error.code}] {linked.error.message}")
        self._nlp = nlp
        return self._link_batch

    def _link_batch(self, jobs: list[Job]) -> list[Row]:
        assert self._nlp is not None
        # Kept open until rows have read their cross-references, if it is replaced meanwhile.
        _kb = self._linker.kb
        linked = list(link_texts(self._nlp, [job.document for job in jobs], batch_size=len(jobs)))
        if self._observe is not None:
            self._observe(linked)
        return [_to_row(one, job) for one, job in zip(linked, jobs, strict=True)]

    def _too_long(self, job: Job) -> Row | None:
        if job.n_characters <= self.max_characters:
            return None
        text, id = job.document
        code, _, message = Errors.B386[1:].partition("] ")
        message = message.format(found=job.n_characters, most=self.max_characters)
        # As in other rows: half of a surrogate pair cannot be written.
        id = id and id.encode("utf8", "replace").decode("utf8")
        failed = LinkedText(id, None, error=Failure(code, message))
        if self._observe is not None:
            self._observe([failed])
        return to_row(failed)


def _to_row(linked: LinkedText, job: Job) -> Row:
    row = to_row(linked, xrefs=job.xrefs)
    if not job.candidates:
        for link in row["links"]:
            del link["candidates"]
    return row


def _about_kb(kb: KnowledgeBase) -> dict[str, Any]:
    return asdict(kb.releases[0]) | {"names": kb.n_names}
