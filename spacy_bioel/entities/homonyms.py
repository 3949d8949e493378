"""Genes of one organism that share a name.

They are resolved by the other names that the document uses. "Sag" is the symbol of one mouse gene
and a synonym of another; "Sag/Rbx2 E3 ligase" means the second gene, which is also called Rbx2.
Curators decide in this way, and so does GNAT (Hakenberg et al. 2008,
https://doi.org/10.1093/bioinformatics/btn299). Names of homologs with the same symbol count too,
and so does the number of publications on the human gene with this symbol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import exp, log1p

import srsly

from spacy_bioel.dictionary.unambiguous import common_words, everyday_words
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, stem_of
from spacy_bioel.types import Candidate

# Contributions to a homonym's log-odds, chosen on training documents from BioRED, NLM-Gene and
# GNormPlus: the document contains another one-word name of the gene; it contains the words of a
# longer name (in proportion, if only some); the mention is a name of a homolog.
_OTHER_NAME_WEIGHT, _LONG_NAME_WEIGHT, _HOMOLOG_NAME_WEIGHT = 2.5, 2.0, 1.5
# The logarithm of the number of publications on the gene, fitted on the training documents.
_PUBLICATIONS_WEIGHT = 0.3
_FEW_PUBLICATIONS, _MANY_PUBLICATIONS = 2.0, 4.6
# Of the links of such short names to genes with fewer than 100 publications, of which the training
# documents have no other name, a fifth were right. Their scores are multiplied by this number.
_MAX_DOUBTFUL_LENGTH, _MIN_COVERAGE, _DOUBTFUL_SHARE = 3, 0.5, 0.25
_MIN_OTHER_NAME_LENGTH = 3
_ALPHANUMERIC = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(r"[^\s/()\[\],;]+")
_NON_ALPHANUMERIC = re.compile(r"[\W_]")  # "IL-2" is "IL2"
_FUNCTION_WORDS = frozenset({"of", "and", "the", "in"})


@dataclass(frozen=True)
class _GeneNames:
    """The names of a gene and its homologs.

    symbol (str): Without hyphens, in lower case.
    publications (float): Logarithm of the number of publications on the human gene with this
        symbol; 0: fewer than 20, or no such gene.
    short (frozenset): One-word names.
    long (tuple): The words of each longer name, with their weights.
    homolog_names (frozenset): The homologs' names only.
    stems (frozenset): Stems of the words in all names.
    """

    symbol: str
    publications: float
    short: frozenset[str]
    long: tuple[dict[str, float], ...]
    homolog_names: frozenset[str]
    stems: frozenset[str]


class WordsOfDocument:
    """The words in a document, and the substrings that may be short names."""

    def __init__(self, text: str) -> None:
        self.words = set(_alphanumeric_words(text))
        self.short = {_compact(piece): piece for piece in [*text.split(), *_PIECE.findall(text)]}


class HomonymResolver:
    """Decides between genes of one organism that share a name. Threads can share a resolver."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self._names_of = lru_cache(maxsize=1 << 14)(self._read_names)

    def resolve(
        self,
        candidates: Sequence[Candidate],
        mention: str,
        is_human: bool,
        document: Callable[[], WordsOfDocument],
        long_form: str = "",
    ) -> Sequence[Candidate]:
        """Rescore candidates from one organism.

        The sum of their scores stays the same, unless a short name means a little-known gene of
        which the document has no other name, or the document defines it as something else.

        long_form (str): What the mention is defined as, if anything.
        """
        if len(candidates) > 1:
            odds = [c.score * exp(self._log_odds(c.id, mention, document())) for c in candidates]
            factor = sum(c.score for c in candidates) / (sum(odds) or 1.0)
            pairs = zip(candidates, odds, strict=True)
            candidates = [replace(c, score=factor * o) for c, o in pairs]
        stems = _stems_of(long_form)
        is_clear = len(name := _compact(mention)) > _MAX_DOUBTFUL_LENGTH and len(stems) < 2
        if is_clear and mention != long_form:
            return candidates
        return [
            replace(c, score=c.score * _DOUBTFUL_SHARE)
            if (stems and stems.isdisjoint(self._names_of(c.id).stems))
            or self._is_doubtful(c.id, name, is_human, document)
            else c
            for c in candidates
        ]

    def genes_of(self, *names: str) -> list[str]:
        """Return the ids of the genes with any of these normalised names."""
        return self.kb.ids_of(self.kb.concepts_of_names(self.kb.lookup_names(names))[1])

    def is_no_gene(self, ids: Sequence[str], long_form: str) -> bool:
        """Whether a long form of several words shares none with the names of these genes."""
        stems = _stems_of(long_form)
        return len(stems) > 1 and all(stems.isdisjoint(self._names_of(id).stems) for id in ids)

    def _is_doubtful(
        self, id: str, name: str, is_human: bool, document: Callable[[], WordsOfDocument]
    ) -> bool:
        """Whether a gene with this synonym is little known, and the document has no other name."""
        gene = self._names_of(id)
        publications = gene.publications or (_FEW_PUBLICATIONS if is_human else _MANY_PUBLICATIONS)
        if name == gene.symbol or publications >= _MANY_PUBLICATIONS or name not in gene.short:
            return False
        words = document()
        has_other_name = bool(self.other_name(id, name, words))
        return not has_other_name and self._coverage(gene, name, words) < _MIN_COVERAGE

    def other_name(self, id: str, mention: str, document: WordsOfDocument) -> str:
        """Return another one-word name that the document uses for a gene, or ""."""
        others = (self._names_of(id).short - {_compact(mention)}) & document.short.keys()
        return document.short[min(others)] if others else ""

    def _log_odds(self, id: str, mention: str, document: WordsOfDocument) -> float:
        names = self._names_of(id)
        return (
            _OTHER_NAME_WEIGHT * bool(self.other_name(id, mention, document))
            + _LONG_NAME_WEIGHT * self._coverage(names, mention, document)
            + _HOMOLOG_NAME_WEIGHT * (_compact(mention) in names.homolog_names)
            + _PUBLICATIONS_WEIGHT * max(names.publications, _FEW_PUBLICATIONS)
        )

    def _coverage(self, names: _GeneNames, mention: str, document: WordsOfDocument) -> float:
        """Return the share of a longer name that the document contains outside the mention."""
        own_words, coverage = set(_alphanumeric_words(mention)), 0.0
        for weights in names.long:
            covered = sum(weights[w] for w in weights if w in document.words and w not in own_words)
            coverage = max(coverage, covered / sum(weights.values()))
        return coverage

    def _read_names(self, id: str) -> _GeneNames:
        kb, row = self.kb, self.kb.find(id)
        gene_names = kb.names.take(kb.names_of(row))
        symbol_rows = kb.lookup_names([normalize_name(gene_names[0])])
        _, concepts, is_preferred = kb.concepts_of_names(symbol_rows)
        _, name_rows = kb.names_of_all(concepts[is_preferred & (concepts != row)])
        homolog_names = kb.names.take(name_rows)
        names = dict.fromkeys([*gene_names, *homolog_names])
        short = {_compact(name) for name in names if " " not in name} - everyday_words()
        symbol = _compact(gene_names[0])
        return _GeneNames(
            symbol,
            _publications().get(symbol, 0.0),
            frozenset(s for s in short if len(s) >= _MIN_OTHER_NAME_LENGTH and not s.isdigit()),
            tuple(filter(None, (_word_weights(name) for name in names if " " in name))),
            frozenset(map(_compact, homolog_names)),
            frozenset().union(*map(_stems_of, names)),
        )


def _word_weights(name: str) -> dict[str, float]:
    """Return the words of a name with their weights; rare words have higher weights."""
    common = common_words()
    words = (word for word in _alphanumeric_words(name) if word not in _FUNCTION_WORDS)
    return {word: log1p(1e6 / (1 + common.get(word, 0.0))) for word in words}


def _stems_of(name: str) -> set[str]:
    return {stem_of(word) for word in _alphanumeric_words(name) if word not in _FUNCTION_WORDS}


def _alphanumeric_words(text: str) -> list[str]:
    return _ALPHANUMERIC.findall(text.lower())


def _compact(name: str) -> str:
    return _NON_ALPHANUMERIC.sub("", name).lower()


@cache
def _publications() -> dict[str, float]:
    """Read the logarithm of the number of publications by symbol, without hyphens."""
    counts: dict[str, float] = srsly.read_gzip_json(ASSETS_FOLDER / "gene_publications.json.gz")
    return counts
