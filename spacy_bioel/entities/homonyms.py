"""The genes of one organism that a mention may mean, and their probabilities in a document.

The other names that the document uses decide between them. "Sag" is the symbol of one mouse gene
and a synonym of another; "Sag/Rbx2 E3 ligase" means the second gene, which is also called Rbx2.
Curators decide in this way, and so does GNAT (Hakenberg et al. 2008,
https://doi.org/10.1093/bioinformatics/btn299). Names of homologs with the same symbol count too,
and so does the number of publications on the human gene with this symbol. The weights are fitted
by training/scripts/gene_evidence.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import log

import numpy as np
import srsly

from spacy_bioel.dictionary.unambiguous import everyday_words
from spacy_bioel.entities.species import is_named
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import Fusion, softmax_by_group
from spacy_bioel.text.normalize import normalize_name, stem_of
from spacy_bioel.types import Candidate

# Evidence for a gene, in the order of the weights (see `HomonymResolver.features`).
HOMONYM_FEATURES = (
    "score", "named", "other_name", "words", "homologs", "homolog_name", "publications", "symbol",
    "one_word", "defined_otherwise", "short",
)  # fmt: skip
_LOWEST_SCORE = 1e-4  # scores are rounded, and may be 0
_MAX_SHORT = 3  # characters of a short name
_MIN_OTHER_NAME_LENGTH = 3
_ALPHANUMERIC = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(r"[^\s/()\[\],;]+")
_NON_ALPHANUMERIC = re.compile(r"[\W_]")  # "IL-2" is "IL2"
_FUNCTION_WORDS = frozenset({"of", "and", "the", "in"})
GeneEvidence = tuple[float, ...]


@dataclass(frozen=True)
class _GeneNames:
    """The names of a gene and its homologs.

    symbol (str): Without hyphens, in lower case.
    publications (float): Logarithm of the number of publications on the human gene with this
        symbol; 0: fewer than 20, or no such gene.
    short (frozenset): One-word names.
    homolog_names (frozenset): The homologs' names only.
    stems (frozenset): Stems of the words in all names.
    """

    symbol: str
    publications: float
    short: frozenset[str]
    homolog_names: frozenset[str]
    stems: frozenset[str]


_UNKNOWN = _GeneNames("", 0.0, frozenset(), frozenset(), frozenset())


class WordsOfDocument:
    """The stems of the words in a document, and the substrings that may be short names."""

    def __init__(self, text: str) -> None:
        self.stems = _stems_of(text)
        self.short = {_compact(piece): piece for piece in [*text.split(), *_PIECE.findall(text)]}


class GeneMention:
    """A mention of a gene, in the forms that `HomonymResolver.features` compares with names.

    short, stems (frozenset[str]): Its spellings as one-word names; the stems of their words.
    defined (frozenset[str]): The stems of what the mention is defined as.
    is_short (bool): It has at most 3 characters.
    """

    def __init__(
        self, text: str, spellings: Sequence[str], long_form: str, document: WordsOfDocument
    ) -> None:
        self.document, self.is_short = document, len(text) <= _MAX_SHORT
        self.short, self.stems = frozenset(map(_compact, spellings)), _stems_of(" ".join(spellings))
        self.defined = _stems_of(long_form)


class HomonymResolver:
    """Reads the evidence for genes that share a name. Threads can share a resolver."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self._names_of = lru_cache(maxsize=1 << 14)(self._read_names)

    def knows(self, genes: Sequence[Candidate]) -> bool:
        """Whether there is a first candidate, and the knowledge base has it."""
        return bool(genes) and self._names_of(genes[0].id) is not _UNKNOWN

    def features(self, gene: Candidate, mention: GeneMention) -> GeneEvidence:
        """Return the evidence for a candidate, in the order of `HOMONYM_FEATURES`."""
        names, document = self._names_of(gene.id), mention.document
        other_stems = names.stems - mention.stems
        return (
            log(max(gene.score, _LOWEST_SCORE)),
            is_named(gene),
            not document.short.keys().isdisjoint(names.short - mention.short),
            # One or two words say little.
            (len(other_stems & document.stems) + 0.5) / (len(other_stems) + 2),
            bool(names.homolog_names),
            not names.homolog_names.isdisjoint(mention.short),
            names.publications,
            names.symbol in mention.short,
            not names.short.isdisjoint(mention.short),
            bool(mention.defined) and mention.defined.isdisjoint(names.stems),
            mention.is_short,
        )

    def genes_of(self, *names: str) -> list[str]:
        """Return the ids of the genes with any of these normalised names."""
        return self.kb.ids_of(self.kb.concepts_of_names(self.kb.lookup_names(names))[1])

    def other_name(self, id: str, mention: str, document: WordsOfDocument) -> str:
        """Return another one-word name that the document uses for a gene, or ""."""
        others = (self._names_of(id).short - {_compact(mention)}) & document.short.keys()
        return document.short[min(others)] if others else ""

    def _read_names(self, id: str) -> _GeneNames:
        kb, row = self.kb, self.kb.find(id)
        if row < 0:
            return _UNKNOWN
        gene_names = kb.names.take(kb.names_of(row))
        _, concepts, is_preferred = kb.concepts_of_names(
            kb.lookup_names([normalize_name(gene_names[0])])
        )
        homolog_rows = kb.names_of_all(concepts[is_preferred & (concepts != row)])[1]
        homolog_names = kb.names.take(homolog_rows)
        names = dict.fromkeys([*gene_names, *homolog_names])
        short = {_compact(name) for name in names if " " not in name} - everyday_words()
        symbol = _compact(gene_names[0])
        return _GeneNames(
            symbol,
            _publications().get(symbol, 0.0),
            frozenset(s for s in short if len(s) >= _MIN_OTHER_NAME_LENGTH and not s.isdigit()),
            frozenset(map(_compact, homolog_names)),
            _stems_of(" ".join(names)),
        )


def resolve_homonyms(
    genes: Sequence[Sequence[Candidate]], features: Iterable[GeneEvidence]
) -> list[list[Candidate]]:
    """Return the candidates of each group with their probabilities, which leave a rest for NIL.

    genes (Sequence): Groups of candidates from one organism for one mention.
    features (Iterable): The evidence for each candidate in turn.
    """
    groups = np.repeat(np.arange(len(genes)), list(map(len, genes)))
    table = np.array(list(features), np.float32).reshape(-1, len(HOMONYM_FEATURES))
    p = iter(softmax_by_group(homonym_weights().scores(table), groups).tolist())
    return [[replace(c, score=next(p)) for c in of_group] for of_group in genes]


@cache
def homonym_weights() -> Fusion:
    return Fusion.from_json(srsly.read_json(ASSETS_FOLDER / "homonyms.json"), HOMONYM_FEATURES)


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, {*_ALPHANUMERIC.findall(text.lower())} - _FUNCTION_WORDS))


def _compact(name: str) -> str:
    return _NON_ALPHANUMERIC.sub("", name).lower()


@cache
def _publications() -> dict[str, float]:
    """Read the logarithm of the number of publications by symbol, without hyphens."""
    counts: dict[str, float] = srsly.read_gzip_json(ASSETS_FOLDER / "gene_publications.json.gz")
    return counts
