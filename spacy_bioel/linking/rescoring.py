"""Interface between the linker and contextual models, which rescore candidates in context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.batch import Batch
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.training import NameTraining
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.models.name_encoder import EncoderFiles, EncoderSource
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.types import Candidate, FloatArray, IntArray


class ContextualScores(Protocol):
    """Features of (mention, concept) pairs, sorted by mention.

    mention, concept: Mention number and concept row of each pair. Shape (n,).
    features: Shape (n, len(Rescorer.features)).
    """

    mention: IntArray
    concept: IntArray
    features: FloatArray

    def rank(self, fusion: Fusion | None, *, top: int) -> list[tuple[Candidate, ...]]:
        """Return each mention's `top` best candidates; `fusion=None` uses the default weights."""


class Rescorer:
    """The contextual part of a linker's model, which rescores candidates.

    A model architecture sets `model.attrs["rescorer"]` to its own subclass of this class.

    evidence (str): Name of the model's evidence, in candidates and in the `evidence` settings.
    features (Sequence[str]): Names of the weighted features.
    proposes (bool): Whether the model adds candidates that the string searches did not find.
    """

    evidence = "contextual"
    features: Sequence[str] = ()
    proposes = True
    training: type[NameTraining] = NameTraining

    def __init__(self, model: Model[Any, Any]) -> None:
        self.model = model

    @property
    def is_ready(self) -> bool:
        """Whether the model already has its contextual network."""
        return self.model.maybe_get_ref("network") is not None

    @property
    def finds_mentions(self) -> bool:
        """Whether the model can find mentions, as `mentions = "model"` requires."""
        return False

    def collect(self, examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str) -> None:
        """Collect the training data that `add_network` needs."""

    def add_network(self, source: EncoderSource) -> None:
        """Add the contextual network, or replace it."""

    def parts(self) -> EncoderFiles:
        """Return the files to save; empty if there is no contextual network."""
        return {}

    def load(self, parts: Mapping[str, bytes]) -> None:
        """Load the files from `parts`. The name encoder must already be loaded."""

    def encode_kb(self, kb: KnowledgeBase) -> None:
        """Write the data for rescoring, except name vectors, to a knowledge base folder."""

    def find(self, docs: Iterable[Doc], settings: LinkerSettings) -> Batch:
        """Find mentions in documents, labelled with their predicted types."""
        raise NotImplementedError

    def score(self, generator: CandidateGenerator, batch: Batch) -> ContextualScores:
        """Score (mention, concept) pairs in the context of their documents."""
        raise NotImplementedError


def rescorer_of(model: Model[Any, Any]) -> Rescorer | None:
    """Return the contextual part of a linker's model, or None if the model only encodes names."""
    rescorer_class = model.attrs.get("rescorer")
    return None if rescorer_class is None else rescorer_class(model)
