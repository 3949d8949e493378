"""Contextual methods: models that read mentions in their documents, each in a module.

A module has `PROPOSES`, whether it brings candidates that the strings were not given; `read`, which
gives pairs of mentions and concepts their scores, to be weighed; and `Training`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from spacy.training import Example
from thinc.api import Model

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.reading import may_read, reading_evidence, reads
from spacy_bioel.pipeline.contextual import bi_encoder, cross_encoder, multitask, seq2seq
from spacy_bioel.pipeline.contextual.weighing import Reading
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator, LinkerState
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.settings import TrainingSettings
from spacy_bioel.pipeline.linker.training import NameTraining
from spacy_bioel.types import Candidate

# By the name of the model.
METHODS: dict[str, ModuleType] = {
    "dual_encoder": bi_encoder,
    "reranker": cross_encoder,
    "multitask": multitask,
    "generative_linker": seq2seq,
}


def finds(model: Model[Any, Any]) -> bool:
    """Whether a model finds mentions too, for the setting `mentions = "read"`."""
    return model.name == "multitask" and multitask.finds(model)


def proposes(model: Model[Any, Any]) -> set[str]:
    """The evidence of candidates that a model finds by reading, beside those of the strings."""
    has_own = may_read(model) and METHODS[model.name].PROPOSES
    return {reading_evidence(model)} if has_own else set()


def prepare_reading(
    model: Model[Any, Any], examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str
) -> None:
    """Tell a model that finds mentions what there is to find, before its network is made."""
    if model.name == "multitask":
        multitask.prepare(model, examples, kb, gold_key=gold_key)


def read_mentions(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Read mentions, of which there are some, by the method of a model.

    given (Sequence): Candidates that the string of each mention was given.
    """
    found: Reading = METHODS[model.name].read(model, generator, mentions, given)
    return found


def prepare_kb(model: Model[Any, Any], kb: KnowledgeBase) -> None:
    """Write what the method of a model keeps beside the names of a knowledge base, if anything."""
    if reads(model) and model.name == "generative_linker":
        seq2seq.prepare(model, kb)


def make_training(
    model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
) -> NameTraining:
    """Begin to train a linker's model, whose encoder of names is there."""
    kind: type[NameTraining] = getattr(METHODS.get(model.name), "Training", NameTraining)
    return kind(model, state, settings)
