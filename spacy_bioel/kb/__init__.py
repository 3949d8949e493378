"""Knowledge bases: `from spacy_bioel.kb import KnowledgeBase`."""

from spacy_bioel.kb.knowledge_base import KnowledgeBase

__all__ = ["KnowledgeBase"]
