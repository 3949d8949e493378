"""Interface between the linker and contextual models, which read mentions in their documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.entities import Mentions
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.training import NameTraining
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.models.name_encoder import EncoderSource, Parts
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.types import Candidate, FloatArray, IntArray

Given = Sequence[Sequence[Candidate]]  # of each mention, by its string alone


class ContextualScores(Protocol):
    """Features of pairs of a mention and a concept, sorted by mention.

    mention, concept: Number of the mention, and concept row. Shape (n,).
    features: Shape (n, len(Rescorer.features)).
    """

    mention: IntArray
    concept: IntArray
    features: FloatArray

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """Return the `top` best candidates of each mention, best first.

        fusion (Fusion | None): Weights of the features; None: the default weights.
        """
        ...


class Rescorer:
    """The contextual part of a linker's model, which rescores candidates.

    An architecture sets a subclass as the attribute "rescorer" of the model that it makes.

    evidence (str): Evidence of its candidates, and the setting of `evidence` that switches it on.
    features (Sequence[str]): Names of the features that its weights apply to.
    proposes (bool): Whether it adds candidates to those of the strings.
    """

    evidence = "contextual"
    features: Sequence[str] = ()
    proposes = True
    training: type[NameTraining] = NameTraining

    def __init__(self, model: Model[Any, Any]) -> None:
        self.model = model

    @property
    def is_ready(self) -> bool:
        """Whether the model has its contextual network."""
        return self.model.maybe_get_ref("network") is not None

    @property
    def finds_mentions(self) -> bool:
        """Whether the model can find mentions, for the setting `mentions = "model"`."""
        return False

    def collect(self, examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str) -> None:
        """Collect data from the training examples that the network is made from."""

    def add_network(self, source: EncoderSource) -> None:
        """Add the contextual network, or replace it."""

    def parts(self) -> Parts:
        """Return the files to save; empty without a contextual network."""
        return {}

    def load(self, parts: Mapping[str, bytes]) -> None:
        """Load the files of `parts`; the name encoder is loaded already."""

    def encode_kb(self, kb: KnowledgeBase) -> None:
        """Write data for rescoring, other than vectors, to the folder of a knowledge base."""

    def find(self, docs: Iterable[Doc], settings: LinkerSettings) -> Mentions:
        """Find the mentions of documents; their labels are the types."""
        raise NotImplementedError

    def read(
        self, generator: CandidateGenerator, mentions: Mentions, given: Given
    ) -> ContextualScores:
        """Score pairs of mentions and concepts in the context of their documents."""
        raise NotImplementedError


def rescorer_of(model: Model[Any, Any]) -> Rescorer | None:
    """Return the contextual part of a linker's model; None if the model is a name encoder only."""
    rescorer_class = model.attrs.get("rescorer")
    return None if rescorer_class is None else rescorer_class(model)
