"""Genes of cattle, pigs, chickens, dogs, frogs and thale cress, in documents that name them only.

The knowledge base lacks these genes: assets/homologs.tsv.xz, which is read when a document names
one of the organisms, has the numbers in NCBI Gene by symbol and organism.
"""

from __future__ import annotations

import lzma
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import fsum

from spacy_bioel.doc import text_of
from spacy_bioel.entities import Candidates, Mentions
from spacy_bioel.entities.species import SpeciesCandidates, is_experimental_system, organism_words
from spacy_bioel.kb.bundled import ASSETS_FOLDER, bundled_name
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import ORGANISM, Candidate

HOMOLOG_ORGANISMS = frozenset(f"{ORGANISM}{id}" for id in (9913, 9823, 9031, 9615, 8364, 3702))
_SCORE = 0.9  # of a symbol that no other organism has


@cache
def _homologs() -> dict[str, dict[str, str]]:
    text = lzma.decompress((ASSETS_FOLDER / "homologs.tsv.xz").read_bytes()).decode()
    (_, *taxa), *rows = (line.split("\t") for line in text.splitlines())
    return {
        f"{ORGANISM}{taxon}": {row[0]: f"NCBIGene:{row[i]}" for row in rows if row[i]}
        for i, taxon in enumerate(taxa, start=1)
    }


def homologs_beside(kb: KnowledgeBase, organisms: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the gene ids by organism and normalised symbol, which add to the bundled genes only.

    organisms (Collection[str]): The organisms that a document names.
    """
    organisms = HOMOLOG_ORGANISMS.intersection(organisms)
    if not organisms or bundled_name(kb) != "genes":
        return {}
    return {organism: _homologs()[organism] for organism in sorted(organisms)}


def homolog_organisms(mentions: Mentions, candidates: Candidates) -> dict[int, set[str]]:
    """Return the organisms with homologs that documents name, by document."""
    named = defaultdict[int, set[str]](set)
    for i, span in enumerate(mentions.spans[: mentions.n_wholes]):
        for best in candidates.of_mentions[i][:1]:
            if best.id in HOMOLOG_ORGANISMS and not is_experimental_system(span):
                named[mentions.owners[i]].add(best.id)
    for owner, doc in enumerate(mentions.docs):
        if words := HOMOLOG_ORGANISMS & {id for *_, id in organism_words(text_of(doc))}:
            named[owner] |= words
    return named


def add_homologs(
    found: SpeciesCandidates,
    tables: Mapping[str, Mapping[str, str]],
    spellings: Sequence[str],
    symbols: Sequence[str],
    kb: KnowledgeBase,
) -> SpeciesCandidates:
    """Return a mention's candidates with the genes of tables from `homologs_beside`.

    spellings, symbols (Sequence[str]): The mention's normalised spellings, and the symbols of the
        genes of other organisms with these names.
    """
    result = replace(found, genes=found.genes.copy(), by_symbol=found.by_symbol.copy())
    result.named = found.named.copy()
    first = found.genes[min(found.named)] if found.named else ()
    score = fsum(c.score for c in first) or _SCORE
    for organism, ids in tables.items():
        for names in (spellings, symbols):
            for name in [name for name in names if name in ids][:1]:
                gene = Candidate(ids[name], score, name, "exact", kb.fingerprint)
                result.add([gene], {gene.id: organism}, by_symbol=names is symbols)
    return result
