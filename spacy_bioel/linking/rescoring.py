"""Contextual models, as a linker uses them: they read mentions in their documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.entities import Mentions
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.training import NameTraining
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.models.name_encoder import EncoderFiles, EncoderSource
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.types import Candidate

Given = Sequence[Sequence[Candidate]]  # candidates that the string of each mention was given


class ContextualScores(Protocol):
    """Pairs of a mention and a concept, by mention, and what is weighed of each.

    mention, concept: Number of the mention, concept row. Shape (n,).
    features: Shape (n, len(Rescorer.features)).
    """

    mention: NDArray[np.int64]
    concept: NDArray[np.int64]
    features: NDArray[np.float32]

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """The `top` best candidates of each mention, best first.

        fusion (Fusion | None): Weights of the features; None: the default ones.
        """
        ...


class Rescorer:
    """The contextual side of a linker's model.

    An architecture sets a subclass as the attribute "rescorer" of the model that it makes.

    evidence (str): What its candidates are called, and the switch that it reads by.
    features (Sequence[str]): What its weights are for.
    proposes (bool): Whether it brings candidates that the strings were not given.
    """

    evidence = "contextual"
    features: Sequence[str] = ()
    proposes = True
    training: type[NameTraining] = NameTraining

    def __init__(self, model: Model[Any, Any]) -> None:
        self.model = model

    @property
    def is_ready(self) -> bool:
        """Whether it can read: its contextual network is there."""
        return self.model.maybe_get_ref("network") is not None

    @property
    def finds_mentions(self) -> bool:
        """Whether `find` works, for the setting `mentions = "model"`."""
        return False

    def collect(self, examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str) -> None:
        """Collect from training examples what the network is made for."""

    def add_network(self, source: EncoderSource) -> None:
        """Add the contextual network, in the place of an earlier one."""

    def parts(self) -> EncoderFiles:
        """Files for `load`: bytes by file name; empty without a contextual network."""
        return {}

    def load(self, parts: Mapping[str, bytes]) -> None:
        """Load the files of `parts` into a model whose name encoder is loaded already."""

    def encode_kb(self, kb: KnowledgeBase) -> None:
        """Write what reading needs, beside vectors, into the folder of a knowledge base."""

    def find(self, docs: Iterable[Doc], settings: LinkerSettings) -> Mentions:
        """Mentions that the model finds in documents, with their types as labels."""
        raise NotImplementedError

    def read(
        self, generator: CandidateGenerator, mentions: Mentions, given: Given
    ) -> ContextualScores:
        """Score pairs of mentions and concepts by what the documents say."""
        raise NotImplementedError


def rescorer_of(model: Model[Any, Any]) -> Rescorer | None:
    """The contextual side of a linker's model; None of a mere name encoder."""
    made = model.attrs.get("rescorer")
    return None if made is None else made(model)
