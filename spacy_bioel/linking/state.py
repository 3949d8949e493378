"""All that the candidates of a linker depend on, and what was made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from spacy_bioel.entities import RuleSet
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.alias_table import MentionStatistics
from spacy_bioel.linking.searches import FrozenEncoder, MakeSearch, NamePool
from spacy_bioel.models.inference import Fusion
from spacy_bioel.settings import LinkerSettings

if TYPE_CHECKING:
    from spacy_bioel.linking.rescoring import Rescorer

T = TypeVar("T")


class Kept:
    """Values that are made at first use, once for all threads, and anew from other parts."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[object, tuple[object, Any]] = {}

    def get(self, name: object, parts: object, make: Callable[[], T]) -> T:
        """The value of this name, made now if it was not made of equal parts."""
        with self._lock:
            if name not in self._values or self._values[name][0] != parts:
                self._values[name] = parts, make()
            value: T = self._values[name][1]
            return value

    def forget(self, name: object) -> None:
        with self._lock:
            self._values.pop(name, None)

    def only(self, name: object) -> Kept:
        """What is kept under one name, and nothing else."""
        one = Kept()
        with self._lock:
            one._values |= {name: self._values[name]} if name in self._values else {}
        return one


@dataclass(frozen=True)
class LinkerState:
    """All that candidates depend on, by identity, and settings by value: none of it changes.

    encoder (FrozenEncoder | None): Of names; None: no dense evidence.
    fusion, reading (Fusion | None): Weights of the evidence, and of what a contextual model reads;
        None: the default ones.
    rules (RuleSet): Rules for kinds of text.
    rescorer (Rescorer | None): What reads the documents; None: nothing does.
    pool (NamePool | None): The names that training searches among; None: all.
    """

    kb: KnowledgeBase
    encoder: FrozenEncoder | None
    statistics: MentionStatistics
    fusion: Fusion | None
    reading: Fusion | None
    settings: LinkerSettings
    make_spelling: MakeSearch
    rules: RuleSet
    rescorer: Rescorer | None = None
    pool: NamePool | None = None

    @property
    def is_dense(self) -> bool:
        """Whether the encoder is asked."""
        return self.encoder is not None and "dense" in self.settings.evidence.names
