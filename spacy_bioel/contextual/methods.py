"""Contextual methods: models that read mentions in their documents, each in a module.

A module has `PROPOSES`, whether it brings candidates that the strings were not given; `read`, which
gives pairs of mentions and concepts their scores, to be weighed; and `Training`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from thinc.api import Model

from spacy_bioel.contextual import dual_encoder as bi_encoder
from spacy_bioel.contextual import generative as seq2seq
from spacy_bioel.contextual import multitask
from spacy_bioel.contextual import reranker as cross_encoder
from spacy_bioel.contextual.rescoring import may_read, reading_evidence

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
