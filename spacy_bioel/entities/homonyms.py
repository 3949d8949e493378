"""Estimate which gene a document means if several genes of one organism share a name.

The other names that the document uses decide between genes. "Sag" is the symbol of one mouse gene
and a synonym of another; "Sag/Rbx2 E3 ligase" means the second gene, which is also called Rbx2.
Curators decide in this way, and so does GNAT (Hakenberg et al. 2008,
https://doi.org/10.1093/bioinformatics/btn299). Names of homologs with the same symbol count too,
and so does the number of publications on the human gene with this symbol. The weights are fitted
by training/scripts/gene_evidence.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from math import log

import numpy as np
import srsly

from spacy_bioel.dictionary.unambiguous import everyday_words
from spacy_bioel.entities.species import is_named
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import Fusion, bundled_fusion, softmax_by_group
from spacy_bioel.text.normalize import normalize_names, stem_of
from spacy_bioel.types import Candidate

# A candidate gene's feature names, in the order of their weights (see `gene_features`).
HOMONYM_FEATURES = (
    "score", "named", "other_name", "words", "homologs", "homolog_name", "publications", "symbol",
    "one_word", "defined_otherwise", "short",
)  # fmt: skip
_LOWEST_SCORE = 1e-4  # replaces lower scores, because a score rounded to 0 has no logarithm
_MAX_SHORT = 3  # the maximum length of a short name, in characters
_MIN_OTHER_NAME_LENGTH = 3
_ALPHANUMERIC = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(r"[^\s/()\[\],;]+")
_NON_ALPHANUMERIC = re.compile(r"[\W_]")  # removed so that "IL-2" matches "IL2"
_FUNCTION_WORDS = frozenset({"of", "and", "the", "in"})
GeneEvidence = tuple[float, ...]


@dataclass(frozen=True)
class GeneNames:
    """The names of a gene and of its homologs (genes with the same symbol).

    symbol (str): The symbol of the gene, without hyphens and in lower case.
    publications (float): Logarithm of the number of publications on the human gene with this
        symbol; 0 if there are fewer than 20, or no such gene.
    short (frozenset): One-word names.
    homolog_names (frozenset): Names of the homologs.
    stems (frozenset): Stems of the words in all names.
    """

    symbol: str
    publications: float
    short: frozenset[str]
    homolog_names: frozenset[str]
    stems: frozenset[str]


_UNKNOWN = GeneNames("", 0.0, frozenset(), frozenset(), frozenset())
_MAX_READ = 1 << 14  # maximum number of symbols whose names a resolver caches


class WordsOfDocument:
    """A document's word stems, and its substrings that may be short names."""

    def __init__(self, text: str) -> None:
        self.stems = _stems_of(text)
        self.short = {_compact(piece): piece for piece in [*text.split(), *_PIECE.findall(text)]}


class GeneMention:
    """A gene mention in the forms that `gene_features` compares with names.

    short, stems (frozenset[str]): The spellings as one-word names; the stems of all words in them.
    defined (frozenset[str]): The stems of the words in the long form that the document defines.
    is_short (bool): Whether the mention has at most 3 characters.
    """

    def __init__(
        self, text: str, spellings: Sequence[str], long_form: str, document: WordsOfDocument
    ) -> None:
        self.document, self.is_short = document, len(text) <= _MAX_SHORT
        self.short, self.stems = frozenset(map(_compact, spellings)), _stems_of(" ".join(spellings))
        self.defined = _stems_of(long_form)


class HomonymResolver:
    """Looks up all names of genes that share a name; safe to share between threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self._family = lru_cache(maxsize=_MAX_READ)(self._read_family)

    def names_of(self, ids: Iterable[str]) -> Mapping[str, GeneNames]:
        """Return gene names by id, skipping genes that the knowledge base lacks."""
        kb, names, unique = self.kb, dict[str, GeneNames](), list(dict.fromkeys(ids))
        rows = kb.find_all(unique)
        known = np.flatnonzero(rows >= 0)
        symbols = kb.names.take(kb.preferred_rows(rows[known]))
        same_symbol = kb.lookup_names(normalize_names(symbols))
        indptr, concepts, is_preferred = kb.concepts_of_names(same_symbol)
        for i, place in enumerate(known.tolist()):
            of_symbol = slice(indptr[i], indptr[i + 1])
            others = concepts[of_symbol][is_preferred[of_symbol]].tolist()
            short, stems, names_of = self._family(frozenset({row := int(rows[place]), *others}))
            homolog_names = frozenset().union(*(n for one, n in names_of.items() if one != row))
            symbol = _compact(symbols[i])
            publications = _publications().get(symbol, 0.0)
            names[unique[place]] = GeneNames(symbol, publications, short, homolog_names, stems)
        return names

    def _read_family(
        self, genes: frozenset[int]
    ) -> tuple[frozenset[str], frozenset[str], dict[int, frozenset[str]]]:
        """Return the genes' one-word names, the stems in all their names, and each gene's names."""
        rows = np.array(list(genes))
        indptr, name_rows = self.kb.names_of_all(rows)
        names = self.kb.names.take(name_rows)
        compact = [_compact(name) for name in names]
        words = {short for short, name in zip(compact, names, strict=True) if " " not in name}
        is_long = (s for s in words if len(s) >= _MIN_OTHER_NAME_LENGTH and not s.isdigit())
        borders = zip(rows.tolist(), pairwise(indptr.tolist()), strict=True)
        names_of = {row: frozenset(compact[start:end]) for row, (start, end) in borders}
        return frozenset(is_long) - everyday_words(), _stems_of(" ".join(names)), names_of


def gene_features(
    gene: Candidate, names_of: Mapping[str, GeneNames], mention: GeneMention
) -> GeneEvidence:
    """Return the evidence for a candidate, in the order of `HOMONYM_FEATURES`."""
    names, document = names_of.get(gene.id, _UNKNOWN), mention.document
    other_stems = names.stems - mention.stems
    return (
        log(max(gene.score, _LOWEST_SCORE)),
        is_named(gene),
        not document.short.keys().isdisjoint(names.short - mention.short),
        # Smooth the share of stems found in the document, because one or two stems prove little.
        (len(other_stems & document.stems) + 0.5) / (len(other_stems) + 2),
        bool(names.homolog_names),
        not names.homolog_names.isdisjoint(mention.short),
        names.publications,
        names.symbol in mention.short,
        not names.short.isdisjoint(mention.short),
        bool(mention.defined) and mention.defined.isdisjoint(names.stems),
        mention.is_short,
    )


def other_name(names: GeneNames, mention: str, document: WordsOfDocument) -> str:
    """Return another one-word name that the document uses for a gene, or ""."""
    others = (names.short - {_compact(mention)}) & document.short.keys()
    return document.short[min(others)] if others else ""


def resolve_homonyms(
    genes: Sequence[Sequence[Candidate]], features: Iterable[GeneEvidence]
) -> list[list[Candidate]]:
    """Score each group's candidates by probability, leaving the remainder to NIL.

    genes (Sequence): Groups of candidates, each from one organism for one mention.
    features (Iterable): The evidence for each candidate, in the order of `genes`.
    """
    groups = np.repeat(np.arange(len(genes)), list(map(len, genes)))
    table = np.array(list(features), np.float32).reshape(-1, len(HOMONYM_FEATURES))
    p = iter(softmax_by_group(homonym_weights().scores(table), groups).tolist())
    return [[replace(c, score=next(p)) for c in of_group] for of_group in genes]


def homonym_weights() -> Fusion:
    return bundled_fusion("homonyms.json", HOMONYM_FEATURES)


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, {*_ALPHANUMERIC.findall(text.lower())} - _FUNCTION_WORDS))


def _compact(name: str) -> str:
    return _NON_ALPHANUMERIC.sub("", name).lower()


@cache
def _publications() -> dict[str, float]:
    """Read the logarithm of each gene's publication count, by symbol without hyphens."""
    counts: dict[str, float] = srsly.read_gzip_json(ASSETS_FOLDER / "gene_publications.json.gz")
    return counts
