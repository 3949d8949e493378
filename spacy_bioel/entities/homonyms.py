"""Genes of one organism that share a name, told apart by what else the document calls them.

"Sag" is the symbol of one mouse gene and a synonym of another; "Sag/Rbx2 E3 ligase" is the other,
which is called Rbx2 too. So curators decide, and so did GNAT (Hakenberg et al. 2008,
https://doi.org/10.1093/bioinformatics/btn299). Names of homologs count, which have the same symbol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log1p

from spacy_bioel.dictionary.unambiguous import common_words, everyday_words
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Candidate

# What each evidence adds to the log odds, chosen on training documents of BioRED, NLM-Gene and
# GNormPlus: another name of one word is in the document; of the best long name, the share of its
# words that are; a homolog has the name of the mention, too.
_NAME, _WORDS, _HOMOLOG = 2.5, 2.0, 1.5
_FEWEST = 3  # characters of another name
_MOST_KEPT = 1 << 14  # genes
_WORD = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(r"[^\s/()\[\],;]+")
_NOT_WRITTEN = re.compile(r"[\W_]")  # "IL-2" is "IL2"
_EMPTY = frozenset({"of", "and", "the", "in"})


@dataclass(frozen=True)
class _Called:
    """All that a gene and its homologs are called.

    short (frozenset): Names of one word. long (tuple): Of the others, words with their weights.
    homologs (frozenset): Names of the homologs.
    """

    short: frozenset[str]
    long: tuple[dict[str, float], ...]
    homologs: frozenset[str]


class WordsOfDocument:
    """The words of a document, and what may be a short name."""

    def __init__(self, text: str) -> None:
        self.words = set(_words_of(text))
        self.short = {_together(piece): piece for piece in [*text.split(), *_PIECE.findall(text)]}


class Namesakes:
    """Tells apart the genes of a knowledge base; may be shared by threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self._called = lru_cache(maxsize=_MOST_KEPT)(self._read)

    def tell_apart(
        self, candidates: Sequence[Candidate], mention: str, document: WordsOfDocument
    ) -> list[Candidate]:
        """Weigh candidates that are of one organism; together they stay as likely as they were."""
        own, words = _together(mention), document.words.difference(_words_of(mention))
        odds = [c.score * exp(self._weight(c.id, own, words, document)) for c in candidates]
        part = sum(c.score for c in candidates) / (sum(odds) or 1.0)
        return [replace(c, score=part * o) for c, o in zip(candidates, odds, strict=True)]

    def other_name(self, id: str, mention: str, document: WordsOfDocument) -> str:
        """Another name of one word that the document has of a gene; "" for none."""
        others = (self._called(id).short - {_together(mention)}) & document.short.keys()
        return document.short[min(others)] if others else ""

    def _weight(self, id: str, own: str, words: set[str], document: WordsOfDocument) -> float:
        called = self._called(id)
        covered = (
            sum(w for word, w in of.items() if word in words) / sum(of.values())
            for of in called.long
        )
        return (
            _NAME * bool((called.short - {own}) & document.short.keys())
            + _WORDS * max(covered, default=0.0)
            + _HOMOLOG * (own in called.homologs)
        )

    def _read(self, id: str) -> _Called:
        kb, row = self.kb, self.kb.find(id)
        own = kb.names.take(kb.names_of(row))
        _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([normalize_name(own[0])]))
        same = concepts[is_preferred & (concepts != row)].tolist()
        others = [name for other in same for name in kb.names.take(kb.names_of(other))]
        names = dict.fromkeys([*own, *others])
        short = {_together(name) for name in names if " " not in name}
        return _Called(
            frozenset(s for s in short - everyday_words() if len(s) >= _FEWEST and not s.isdigit()),
            tuple(filter(None, (_weights(name) for name in names if " " in name))),
            frozenset(map(_together, others)),
        )


def _weights(name: str) -> dict[str, float]:
    """The words of a name; rare ones say more."""
    common = common_words()
    words = (word for word in _words_of(name) if word not in _EMPTY)
    return {word: log1p(1e6 / (1 + common.get(word, 0.0))) for word in words}


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _together(name: str) -> str:
    return _NOT_WRITTEN.sub("", name).lower()
