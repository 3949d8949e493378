"""Contextual methods: models that read mentions in their documents, each behind one Protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.reading import may_read, reading_evidence, reads
from spacy_bioel.pipeline.contextual import bi_encoder, cross_encoder, multitask, seq2seq
from spacy_bioel.pipeline.contextual.weighing import Reading
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator, LinkerState
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.settings import LinkerSettings, TrainingSettings
from spacy_bioel.pipeline.linker.training import NameTraining
from spacy_bioel.types import Candidate


class ContextualMethod(Protocol):
    """A module of this package; the name of its model is its key in `METHODS`."""

    @property
    def PROPOSES(self) -> bool:
        """Whether it brings candidates that the strings were not given."""
        ...

    @property
    def Training(self) -> type[NameTraining]: ...

    def read(
        self,
        model: Model[Any, Any],
        generator: CandidateGenerator,
        mentions: Mentions,
        given: Sequence[Sequence[Candidate]],
    ) -> Reading:
        """Pairs of mentions and concepts with their scores, to be weighed.

        mentions (Mentions): At least one.
        given (Sequence): Candidates that the string of each mention was given.
        """
        ...


class Finder(Protocol):
    """A module whose model finds mentions too, for the setting `mentions = "read"`."""

    def finds(self, model: Model[Any, Any]) -> bool:
        """Whether the settings of the model let it find mentions."""
        ...

    def prepare(
        self,
        model: Model[Any, Any],
        examples: Iterable[Example],
        kb: KnowledgeBase,
        *,
        gold_key: str,
    ) -> None:
        """Tell a model what there is to find, before its network is made."""
        ...

    def find(
        self, model: Model[Any, Any], docs: Iterable[Doc], settings: LinkerSettings
    ) -> Mentions:
        """Mentions that the model finds in documents."""
        ...


METHODS: dict[str, ContextualMethod] = {
    "dual_encoder": bi_encoder,
    "reranker": cross_encoder,
    "multitask": multitask,
    "generative_linker": seq2seq,
}
# What a method keeps beside the names of a knowledge base.
PREPARE: dict[str, Callable[[Model[Any, Any], KnowledgeBase], None]] = {
    "generative_linker": seq2seq.prepare,
}
FINDERS: dict[str, Finder] = {"multitask": multitask}


def finds(model: Model[Any, Any]) -> bool:
    """Whether a model finds mentions."""
    return model.name in FINDERS and FINDERS[model.name].finds(model)


def proposes(model: Model[Any, Any]) -> set[str]:
    """The evidence of candidates that a model finds by reading, beside those of the strings."""
    has_own = may_read(model) and METHODS[model.name].PROPOSES
    return {reading_evidence(model)} if has_own else set()


def prepare_reading(
    model: Model[Any, Any], examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str
) -> None:
    """Prepare a model that finds mentions, see `Finder.prepare`; others need nothing."""
    if model.name in FINDERS:
        FINDERS[model.name].prepare(model, examples, kb, gold_key=gold_key)


def find_in_context(
    model: Model[Any, Any], docs: Iterable[Doc], settings: LinkerSettings
) -> Mentions:
    """Find mentions by the method of a model, see `Finder.find`."""
    return FINDERS[model.name].find(model, docs, settings)


def read_mentions(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Read by the method of a model, see `ContextualMethod.read`."""
    return METHODS[model.name].read(model, generator, mentions, given)


def prepare_kb(model: Model[Any, Any], kb: KnowledgeBase) -> None:
    """Write what the method of a model keeps beside the names of a knowledge base, if anything."""
    if reads(model) and model.name in PREPARE:
        PREPARE[model.name](model, kb)


def make_training(
    model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
) -> NameTraining:
    """Begin to train a linker's model, whose encoder of names is there."""
    method = METHODS.get(model.name)
    return (method.Training if method else NameTraining)(model, state, settings)
