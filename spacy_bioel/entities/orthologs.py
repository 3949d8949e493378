"""Genes of cattle, pigs, chickens, dogs, frogs and thale cress, in documents that name them only.

They are not in the bundled genes, but in assets/ortholog_symbols.tsv.xz: numbers in NCBI Gene by
symbol and organism. This table is read when a document names one of the organisms.
"""

from __future__ import annotations

import lzma
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from spacy_bioel.doc import text_of
from spacy_bioel.entities import Candidates, Mentions
from spacy_bioel.entities.species import SpeciesCandidates, is_experimental_system, organism_words
from spacy_bioel.kb.bundled import ASSETS_FOLDER, bundled_name
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import ORGANISM, Candidate

_ORGANISMS = frozenset(f"{ORGANISM}{id}" for id in (9913, 9823, 9031, 9615, 8364, 3702))
_SCORE = 0.9  # of a symbol that no other organism has


def orthologs_of(kb: KnowledgeBase, organisms: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the gene ids by organism and normalised symbol; none if `kb` is not bundled."""
    known = _ORGANISMS.intersection(organisms)
    is_bundled = bool(known) and bundled_name(kb) == "genes"
    return {organism: _orthologs()[organism] for organism in sorted(known) if is_bundled}


@cache
def _orthologs() -> dict[str, dict[str, str]]:
    text = lzma.decompress((ASSETS_FOLDER / "ortholog_symbols.tsv.xz").read_bytes()).decode()
    (_, *taxa), *rows = (line.split("\t") for line in text.splitlines())
    return {
        f"{ORGANISM}{taxon}": {row[0]: f"NCBIGene:{row[i]}" for row in rows if row[i]}
        for i, taxon in enumerate(taxa, start=1)
    }


def organism_of_ortholog(id: str) -> str:
    """Return the organism of a gene in the table, or ""."""
    return next((organism for organism, ids in _orthologs().items() if id in ids.values()), "")


def ortholog_organisms(mentions: Mentions, candidates: Candidates) -> dict[int, set[str]]:
    """Return the organisms of the table that documents name, by document."""
    named = {i: {id for *_, id in organism_words(text_of(d))} for i, d in enumerate(mentions.docs)}
    for i, ranked in enumerate(candidates.of_mentions[: mentions.n_wholes]):
        is_named = ranked and ranked[0].id in _ORGANISMS
        if is_named and not is_experimental_system(mentions.spans[i]):
            named[mentions.owners[i]].add(ranked[0].id)
    return {owner: ids & _ORGANISMS for owner, ids in named.items() if ids & _ORGANISMS}


def with_orthologs(
    found: SpeciesCandidates,
    tables: Mapping[str, Mapping[str, str]],
    spellings: Sequence[str],
    kb: KnowledgeBase,
) -> SpeciesCandidates:
    """Add genes from `orthologs_of` by a mention's spellings, and by the symbols of known genes."""
    genes = [found.genes[organism][0] for organism in sorted(found.named)]
    symbols = kb.names.take(kb.preferred_rows(kb.find_all([gene.id for gene in genes])))
    names = [*spellings, *normalize_names(symbols)]
    groups = found.genes.copy(), found.named.copy(), found.by_symbol.copy()  # others share them
    result = replace(found, genes=groups[0], named=groups[1], by_symbol=groups[2])
    for organism, ids in tables.items():
        for i, name in enumerate(names):
            if name in ids:
                score, text = (genes[0].score, genes[0].name) if genes else (_SCORE, name)
                gene = Candidate(ids[name], score, text, "exact", kb.fingerprint)
                result.add([gene], {gene.id: organism}, by_symbol=i >= len(spellings))
    return result
