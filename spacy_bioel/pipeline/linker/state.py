"""The state of a linker as one frozen value: everything that candidate generation depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.quantized import QuantizedVectors
from spacy_bioel.pipeline.linker.evidence import NameSearch
from spacy_bioel.pipeline.linker.fusion import Fusion
from spacy_bioel.pipeline.linker.names import FrozenEncoder
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.pipeline.linker.spelling import MakeSearch
from spacy_bioel.pipeline.linker.statistics import MentionStatistics

MakeIndex = Callable[[QuantizedVectors], NameSearch]


@dataclass(frozen=True)
class LinkerState:
    """Parts are compared by identity, but for the settings: none of them changes.

    kb (KnowledgeBase): Concepts and names.
    encoder (FrozenEncoder | None): Of names; None: no dense evidence.
    statistics (MentionStatistics): Of the training corpus.
    fusion (Fusion | None): Weights of the evidence; None: those of the package.
    reading (Fusion | None): Weights of what a contextual model reads; None: the default ones.
    finding (Fusion | None): Weights of what is found with the knowledge base; None: those of the
        package.
    settings (LinkerSettings): Of the pipe.
    make_index (Callable): From vectors to a search among them.
    make_spelling (Callable): From the knowledge base to a spelling search.
    """

    kb: KnowledgeBase
    encoder: FrozenEncoder | None
    statistics: MentionStatistics
    fusion: Fusion | None
    reading: Fusion | None
    finding: Fusion | None
    settings: LinkerSettings
    make_index: MakeIndex
    make_spelling: MakeSearch

    @property
    def is_dense(self) -> bool:
        """Whether the encoder is asked."""
        return self.encoder is not None and "dense" in self.settings.evidence
