"""Knowledge bases: `from spacy_bioel.kb import KnowledgeBase`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy_bioel.kb.knowledge_base import KnowledgeBase


def __getattr__(name: str) -> type[KnowledgeBase]:
    """Import the class on first access, since most modules in this package do not need it."""
    if name == "KnowledgeBase":
        from spacy_bioel.kb.knowledge_base import KnowledgeBase

        return KnowledgeBase
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
