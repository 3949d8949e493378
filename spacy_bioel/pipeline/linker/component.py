"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from thinc.api import Optimizer, set_dropout_rate
from thinc.types import FloatsXd

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns.joined import parts_of
from spacy_bioel.kb.columns.store import KnowledgeBase, open_kb
from spacy_bioel.kb.vectors.writing import Encoded
from spacy_bioel.models.name_encoder import EncoderSource, add_encoder, read_encoder
from spacy_bioel.models.reading import add_reading, reads
from spacy_bioel.pipeline.annotate import set_ent_links, set_links, set_links_as_ents
from spacy_bioel.pipeline.contextual import multitask, seq2seq
from spacy_bioel.pipeline.contextual.methods import METHODS
from spacy_bioel.pipeline.linker import starter
from spacy_bioel.pipeline.linker.decision import Ranking, rank_candidates
from spacy_bioel.pipeline.linker.queries import find_mentions
from spacy_bioel.pipeline.linker.resources import LinkerResources
from spacy_bioel.pipeline.linker.settings import BY_KB, SPANS_AND_KB, TrainingSettings
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.pipeline.linker.training import NameTraining, training_strings
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Link


class Linker(LinkerResources):
    """Links mentions; docs/reference/settings.yml has the settings, `pipeline.annotate` the result.

    Weights (`fusion`, `reading`), mention statistics and settings (`cfg`) may be
    assigned at any time: the next batch is linked by them. Prediction may be called by many
    threads, training by one.
    """

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        return self.ranking(docs).links()

    def ranking(self, docs: Iterable[Doc]) -> Ranking:
        """Mentions with their candidates, of which `predict` decides."""
        generator = self.generator
        settings = generator.state.settings
        if settings.mentions == "read" and not reads(self.model):
            raise BioelError(Errors.B053.format(name=self.name))
        if settings.mentions == "read":
            mentions = multitask.find(self.model, docs, settings)
        else:
            mentions = find_mentions(docs, generator)
            # Where mentions come with the documents, some documents have none.
            self._has_mentions = self._has_mentions or len(mentions.spans) > 0
            if not (self._has_mentions or settings.mentions in BY_KB):
                self._check_alone(mentions.docs)
        return rank_candidates(self.model, generator, mentions)

    def _check_alone(self, docs: Iterable[Doc]) -> None:
        """Warn [W323], once, when the linker is the only pipe and documents have no mentions."""
        nlp = self._pipeline() if any(map(len, docs)) else None
        # Pipes that are switched off too: rulers read their patterns with the pipes before them.
        if nlp is not None and nlp.component_names == [self.name]:
            self._has_mentions = True
            warnings.warn(Warnings.W323.format(linker=self.name), stacklevel=2)

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[Link]]) -> None:
        """Write links as the span group `spans_key`, and as entities, see `set_ents`."""
        key, kb, nil = self.cfg["spans_key"], self.kb.fingerprint, self.cfg["nil_threshold"]
        adds = self.cfg["mentions"] == SPANS_AND_KB
        for doc, links in zip(docs, scores, strict=True):
            from_ents = self.cfg["mentions"] == "ents" or (
                self.cfg["mentions"] == "auto" and key not in doc.spans
            )
            set_links(doc, links, spans_key=key, kb=kb, nil_threshold=nil, adds=adds)
            if from_ents and self.cfg["set_ents"]:
                set_ent_links(doc, spans_key=key)
            elif self.cfg["set_ents"] == "links":
                set_links_as_ents(doc, spans_key=key)

    # Training.

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        kb: Any = None,
        encoder: str | None = None,
        embeddings: str | None = None,
        vocabulary: int = 16000,
        width: int = 256,
    ) -> None:
        """Set the knowledge base, count the training mentions, make vocabulary and network.

        kb (KnowledgeBase | str | None): Or its folder; None: the one of the component's config.
        encoder (str | None): Folder of an encoder to start from, see training/scripts/pretrain.py,
            or "starter", the package's; then the arguments below have no meaning.
        embeddings (str | None): A Hugging Face model directory to take word pieces and frozen
            embeddings from; None: make them from the names of the knowledge base. For an encoder
            that is a transformer: its checkpoint, unless its own settings name one.
        vocabulary, width (int): Word pieces and size of embeddings made from the names.
        """
        validate_get_examples(get_examples, "Linker.initialize")
        with self._lock:
            if kb is None or kb == "":
                self._take(self._opened_kb(), self.cfg["kb"])
            else:
                self.set_kb(kb)
            opened = self._opened_kb()
            self.statistics = MentionStatistics()
            self._forget_tuning(nlp)
            self.count_mentions(get_examples())
            source = EncoderSource(
                opened,
                more_names=self.statistics.names,
                embeddings=embeddings,
                vocabulary=vocabulary,
                width=width,
                read_texts=lambda: [normalize_name(x.reference.text) for x in get_examples()],
            )
            if encoder is not None:
                folder = starter.ENCODER if encoder == "starter" else Path(encoder)
                read_encoder(self.encoder, folder)
            else:
                add_encoder(self.encoder, source)
            key = self.cfg["gold_key"]
            if self.model.name == "multitask":
                multitask.prepare(self.model, get_examples(), opened, gold_key=key)
            add_reading(self.model, source)
            self._kept.forget("encoder")
            self._start_training()

    def _forget_tuning(self, nlp: Language | None) -> None:
        """Drop weights that were fitted to the evidence of another encoder, and their record."""
        self.fusion = self.reading = None
        if nlp is not None:
            nlp.meta.get("bioel", {}).pop("tuning", None)

    def count_mentions(self, examples: Iterable[Example]) -> None:
        """Add training mentions to the statistics, with abbreviations written out too."""
        kb = self._kb or self.kb
        settings = self.check_settings()
        self.statistics = self.statistics.with_mentions(
            (string, kb.canonical(concept_id))
            for example in examples
            for string, concept_id in training_strings([example], settings)
        )

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch. RAISES BioelError: [B053] before `initialize`."""
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "Linker.update")
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        with self._lock:
            training = self._training or self._start_training()
        set_dropout_rate(self.model, drop)
        loss = training.update(examples)
        if loss is not None:
            losses[self.name] += loss
            if sgd is not None:
                self.finish_update(sgd)
        return losses

    def _start_training(self) -> NameTraining:
        kind: type[NameTraining] = getattr(METHODS.get(self.model.name), "Training", NameTraining)
        self._training = kind(self.model, self.state, TrainingSettings.of(self.cfg))
        return self._training

    def finish_update(self, sgd: Optimizer) -> None:
        """Change the weights."""
        super().finish_update(sgd)
        self._kept.forget("encoder")

    def use_params(self, params: dict[tuple[int, str], FloatsXd]) -> Iterator[None]:
        """Predict by other weights, such as averages, until asked for the next item.

        `Language.use_params` calls it so: spaCy's own pipes are no context managers either.
        """
        try:
            with self.model.use_params(params):
                self._kept.forget("encoder")
                yield
        finally:
            self._kept.forget("encoder")

    def score(self, examples: Iterable[Example], **kwargs: object) -> dict[str, Any]:
        """Scores by the pipe's scorer, which is told the current id of each retired one."""
        scores: dict[str, Any] = super().score(examples, canonical=self.kb.canonical, **kwargs)
        return scores

    # Vectors, and copies for other processes.

    def encode_kb(
        self, kb: KnowledgeBase | str | Path, *, progress: Callable[[int], None] | None = None
    ) -> Encoded:
        """Write vectors of all names, and what a model that reads needs, into the folder of a
        knowledge base, or of each of several; ends a training.

        progress (Callable | None): Is told the number of names each time that some are done.
        RETURNS (kb.vectors.writing.Encoded): How many names were new, and the approximate index;
            of several knowledge bases that of the last.
        RAISES BioelError: [B053] without an encoder, its own or the package's; those of
            `kb.vectors.writing.write_vectors`.
        """
        with self._lock:
            if not self.has_encoder:
                starter.read_starter_encoder(self.encoder)
            if not self.has_encoder:
                raise BioelError(Errors.B053.format(name=self.name))
            self._training, self._kept = None, self._kept.only("encoder")
            encoder = self._freeze()
        done = [encoder.write(part, progress=progress) for part in parts_of(open_kb(kb))]
        if reads(self.model) and self.model.name == "generative_linker":
            seq2seq.prepare(self.model, open_kb(kb))
        return Encoded(sum(d.encoded for d in done), sum(d.copied for d in done), done[-1].ann)

    def __reduce__(self) -> tuple[Any, ...]:
        # For worker processes under spawn. The knowledge base goes by its path, so that the
        # workers share its pages.
        make = partial(
            type(self),
            self.vocab,
            self.model,
            self.name,
            index=self._index,
            spelling=self._spelling,
            settings={},
            scorer=self.scorer,
        )
        return _unpickle, (make, self.to_bytes(exclude=["kb"]), self.kb)


def _unpickle(make: Callable[[], Linker], data: bytes, kb: KnowledgeBase) -> Linker:
    linker = make()
    linker.from_bytes(data)
    linker._take(kb, linker.cfg["kb"])
    return linker
