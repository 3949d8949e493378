"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from thinc.api import Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import set_ent_links, set_links, set_links_as_ents
from spacy_bioel.pipeline.linker.decision import Query, mention_queries
from spacy_bioel.pipeline.linker.lifecycle import LiveLinker
from spacy_bioel.pipeline.linker.settings import TrainingSettings
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Link

if TYPE_CHECKING:
    from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
    from spacy_bioel.pipeline.linker.queries import Mentions
    from spacy_bioel.pipeline.linker.ranking import Ranking
    from spacy_bioel.pipeline.linker.training import NameTraining


class Linker(LiveLinker):
    """Links mentions; see `make_linker` for the settings and `pipeline.annotate` for the result.

    Prediction may be called by many threads, training by one.
    """

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        return self.ranking(docs).links()

    def ranking(self, docs: Iterable[Doc]) -> "Ranking":
        """Mentions with their candidates, of which `predict` decides."""
        from spacy_bioel.pipeline.linker.ranking import rank_candidates

        generator = self.generator
        return rank_candidates(self.model, generator, self._find(docs, generator))

    def mentions(self, docs: Iterable[Doc]) -> "Mentions":
        """The mentions that are to be linked."""
        return self._find(docs, self.generator)

    def _find(self, docs: Iterable[Doc], generator: "CandidateGenerator") -> "Mentions":
        settings = generator.state.settings
        if settings.mentions == "read":
            from spacy_bioel.models.reading import reads
            from spacy_bioel.pipeline.contextual.methods import find_in_context

            if not reads(self.model):
                raise BioelError(Errors.B053.format(name=self.name))
            return find_in_context(self.model, docs, settings)
        from spacy_bioel.pipeline.linker.queries import find_mentions

        mentions = find_mentions(docs, generator)
        if len(mentions):
            self._is_warned = True  # they come with the documents, of which some have none
        elif any(map(len, mentions.docs)) and not settings.by_kb:
            self._warn_alone()
        return mentions

    def queries(self, spans: Sequence[Span]) -> list[Query]:
        """Strings to look up for the mentions of one document."""
        return mention_queries(spans, self.check_settings())

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[Link]]) -> None:
        """Write links as the span group `spans_key`, and as entities, see `set_ents`."""
        key, kb, nil = self.cfg["spans_key"], self.kb.fingerprint, self.cfg["nil_threshold"]
        for doc, links in zip(docs, scores, strict=True):
            from_ents = self.cfg["mentions"] == "ents" or (
                self.cfg["mentions"] == "auto" and key not in doc.spans
            )
            set_links(doc, links, spans_key=key, kb=kb, nil_threshold=nil)
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
        from spacy_bioel.models.encoder_storage import read_encoder
        from spacy_bioel.models.name_encoder import EncoderSource, add_encoder
        from spacy_bioel.models.reading import add_reading
        from spacy_bioel.pipeline.contextual.methods import prepare_reading
        from spacy_bioel.pipeline.linker.starter import ENCODER
        from spacy_bioel.pipeline.linker.statistics import MentionStatistics

        validate_get_examples(get_examples, "Linker.initialize")
        with self._lock:
            if kb is None or kb == "":
                kb = self._configured_kb() if self._kb is None else self._kb
                self._take(kb, self.cfg["kb"])
            else:
                self.set_kb(kb)
            assert self._kb is not None
            self.statistics = MentionStatistics()
            self._forget_tuning(nlp)
            self.count_mentions(get_examples())
            source = EncoderSource(
                self._kb,
                more_names=self.statistics.names,
                embeddings=embeddings,
                vocabulary=vocabulary,
                width=width,
                read_texts=lambda: [normalize_name(x.reference.text) for x in get_examples()],
            )
            if encoder is not None:
                read_encoder(self.encoder, ENCODER if encoder == "starter" else Path(encoder))
            else:
                add_encoder(self.encoder, source)
            key = self.cfg["gold_key"]
            prepare_reading(self.model, get_examples(), self._kb, gold_key=key)
            add_reading(self.model, source)
            self._weights_changed()
            self._start_training()

    def _forget_tuning(self, nlp: Language | None) -> None:
        """Drop weights that were fitted to the evidence of another encoder, and their record."""
        self.fusion = self.reading = self.finding = None
        if nlp is not None:
            nlp.meta.get("bioel", {}).pop("tuning", None)

    def count_mentions(self, examples: Iterable[Example]) -> None:
        """Add training mentions to the statistics, with abbreviations written out too."""
        from spacy_bioel.pipeline.linker.training import training_strings

        kb = self.kb if self._kb is None else self._kb
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

    def _start_training(self) -> "NameTraining":
        from spacy_bioel.pipeline.contextual.methods import make_training

        self._training = make_training(self.model, self.state, TrainingSettings.of(self.cfg))
        return self._training

    def finish_update(self, sgd: Optimizer) -> None:
        """Change the weights."""
        super().finish_update(sgd)
        self._weights_changed()

    def use_params(self, params: Any) -> Iterator[None]:
        """Predict by other weights, such as averages, until asked for the next item.

        `Language.use_params` calls it so: spaCy's own pipes are no context managers either.
        """
        try:
            with self.model.use_params(params):
                self._weights_changed()
                yield
        finally:
            self._weights_changed()

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Scores by the pipe's scorer, which is told the current id of each retired one."""
        scores: dict[str, Any] = super().score(examples, canonical=self.kb.canonical, **kwargs)
        return scores
