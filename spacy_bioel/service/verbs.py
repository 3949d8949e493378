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
from spacy_bioel.kb.search import search_names
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.settings import setting_of
from spacy_bioel.pipeline.linker.starter import place_of
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.service.batching import Batcher

Values = dict[str, Any]  # of JSON

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


class Service(Batcher[Job, Row]):
    """A pipeline that loads beside its callers, and links what they ask for in batches.

    load (Callable): Returns the pipeline; called in a thread of the service.
    max_characters (int): Characters a text. A longer one fails, and no other text with it.
    """

    def __init__(self, load: Callable[[], Language], *, max_characters: int) -> None:
        self.max_characters = max_characters
        # Is told what has become of texts.
        self.observe: Callable[[Sequence[LinkedText]], None] = lambda linked: None
        self._load = load
        self._nlp: Language
        self._linker: Linker
        super().__init__(
            self._load_and_try,
            size=lambda job: job.n_characters,
            most=_TEXTS_A_BATCH,
            room=_CHARACTERS_A_BATCH,
        )

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

    def _load_and_try(self) -> Callable[[list[Job]], list[Row]]:
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
        return self._link_batch

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
