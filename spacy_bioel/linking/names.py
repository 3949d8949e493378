"""The `bioel_names` pipe: finds knowledge base names, and leaves linking to a linker."""

# No `from __future__ import annotations`: spaCy needs real types in annotations.

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from spacy.language import Language
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.doc import forget_names, set_names
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.found import FoundSpans
from spacy_bioel.linking.find import find_names, mentions_of
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.pipe import JoiningPipe, Pipeline
from spacy_bioel.settings import (
    BY_DICTIONARY,
    LINKER,
    SPANS_AND_DICTIONARY,
    CurrentSettings,
    NameSettings,
)


class NameLookup(JoiningPipe, Pipe):
    """Pipe that adds knowledge base names to the mentions of earlier pipes; see `NameSettings`.

    The pipe uses a linker's names, vocabularies and rules, and saves no files of its own.

    linker (Linker | None): Used with a `kb` setting, and in worker processes without a pipeline.
    """

    def __init__(
        self, name: str, *, settings: dict[str, Any], linker: Linker | None = None
    ) -> None:
        self.name = name
        self.cfg = CurrentSettings(settings)
        self.pipeline = Pipeline()
        self._linker = linker

    @property
    def linker(self) -> Linker:
        """The linker whose knowledge base is used. RAISES BioelError: [B082] if there is none."""
        linkers: list[Linker] = [] if self.cfg["kb"] else self.pipeline.made_by(LINKER)
        if linkers:
            return max(linkers, key=lambda one: one.cfg["spans_key"] == self.cfg["spans_key"])
        if self._linker is None:
            raise BioelError(Errors.B082.format(name=self.name))
        self._linker.cfg["kb"] = self.cfg["kb"] or self._linker.cfg["kb"]  # may have changed
        return self._linker

    def __call__(self, doc: Doc) -> Doc:
        self.annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        error_handler = self.get_error_handler()
        for docs in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call]
            try:
                self.annotate(docs)
                yield from docs
            except Exception as error:
                error_handler(self.name, self, docs, error)

    def annotate(self, docs: Sequence[Doc]) -> Sequence[FoundSpans]:
        """Write mentions and names to span groups, and return them for explanations.

        RAISES BioelError: [B082] if there is no linker, [B083] if an earlier linker or
            `bioel_names` pipe uses the same span group, [B084] if the linker has no labels for
            unambiguous names; the same errors as `Linker.generator`.
        """
        linker, cfg = self.linker, NameSettings.of(self.cfg)
        self.pipeline.check_order(self._check_order)
        if cfg.names == "unambiguous" and not linker.generator.vocabularies:
            raise BioelError(Errors.B084.format(name=self.name))
        mode = BY_DICTIONARY if cfg.names == "all" else SPANS_AND_DICTIONARY
        changed = {"mentions": mode, "dictionary": cfg.dictionary, "spans_key": cfg.spans_key}
        settings = linker.check_settings().model_copy(update=changed)
        mentions = []
        for doc in docs:
            forget_names(doc, cfg.spans_key)
            mentions.append(mentions_of(doc, "auto", cfg.spans_key))
        keys = [{span[:3] for span in of_doc.spans} for of_doc in mentions]
        found = find_names(mentions, linker.generator, settings)
        for of_doc, keys_of_doc in zip(found, keys, strict=True):
            set_names(of_doc, keys_of_doc, spans_key=cfg.spans_key)
        return found

    def _check_order(self, nlp: Language) -> None:
        key = self.cfg["spans_key"]
        for name, pipe in takewhile(lambda pair: pair[1] is not self, nlp.pipeline):
            if isinstance(pipe, Linker | NameLookup) and pipe.cfg["spans_key"] == key:
                raise BioelError(Errors.B083.format(name=self.name, earlier=name, key=key))

    def current_settings(self) -> dict[str, Any]:
        """Return the current settings in config format."""
        return NameSettings.of(self.cfg).model_dump(mode="json")

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the linker too, because worker processes have no pipeline to get it from.
        return partial(NameLookup, self.name, settings=self.cfg, linker=self.linker), ()
