"""Gene names that count only in documents that name the organism, such as "wingless" in flies.

Genes of flies, worms, yeasts, zebrafish, frogs and thale cress have names that are words elsewhere:
"wingless", "daf-16", "cdc25". A name that is a common word ("white", "cut") is a gene only if the
document is mostly about these organisms and it is next to another gene or a word like "gene".

Orthologs in cattle, pigs, chickens, dogs, frogs and thale cress are not in the bundled genes, but
in assets/ortholog_symbols.tsv.xz: NCBI Gene numbers by symbol and organism. The table is read if a
document names one of these organisms. An all-letter symbol counts only next to a word like "gene".
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import RULE_PROBABILITY
from spacy_bioel.entities.organisms import organism_words
from spacy_bioel.entities.species import SpeciesCandidates
from spacy_bioel.entities.usual_names import USUAL_NAME, is_beside_gene_words
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.bundled import ASSETS_FOLDER, bundled_name
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import GENE, ORGANISM, SPECIES, Candidate

# Flies, worms, yeasts, zebrafish, frogs and thale cress: some of their gene names are also words.
_NAMED_LIKE_WORDS = {f"{ORGANISM}{id}" for id in (7227, 6239, 4932, 4896, 7955, 8364, 3702)}
_GENE_NAME = re.compile(r"(?<![\w-])[^\W\d_µμ]\w*(?:-\w+)*(?![\w-])")
_ALLELE = re.compile(r"[Δ∆]$|(?<=^[a-z]{3}\d)-\d{1,3}$|(?<=^[a-z]{3}\d\d)-\d{1,3}$")
_LONGER_NAME = re.compile(r" (?:of\b|in\b|[A-Z])")  # "Son of sevenless"
_MIN_ORGANISM_SHARE = 0.5  # minimum share of these organisms for common words to count
_MIN_LENGTH, _MIN_LENGTH_OF_LETTERS = 3, 2  # in characters: "wg" is long enough, "E3" is not
_MAX_FREQUENCY = 1.0  # per million words; more frequent words count as common
_LIST = r"(?:,|,? and|,? or|/) ?"
_BEFORE_GENE_IN_LIST, _AFTER_GENE_IN_LIST = re.compile(_LIST), re.compile(rf"{_LIST}$")


def add_organism_genes(doc: Doc, found: FoundSpans, kb: KnowledgeBase) -> None:
    """Add missed gene names if the document names flies or another organism of this kind. Common
    words count only if at least half of the organism mentions refer to such organisms."""
    text = text_of(doc)
    named = [id for *_, id in organism_words(text) if id in _NAMED_LIKE_WORDS]
    tables, about = orthologs_of(kb, named).values(), set(named)
    if not (tables or about.intersection(kb.type_names)):
        return
    n_organisms = sum(span[2] == SPECIES for span in found.spans)
    is_main = len(named) >= _MIN_ORGANISM_SHARE * n_organisms
    names, defined = list[tuple[str, int, int]](), long_forms(doc)
    for match in _GENE_NAME.finditer(text):
        word = _ALLELE.sub("", match[0])
        is_short = len(word) < (_MIN_LENGTH_OF_LETTERS if word.isalpha() else _MIN_LENGTH)
        if not is_short and word.lower() not in STOP_WORDS and word not in defined:
            names.append((word, *match.span()))
    known = _known_genes(kb, {word for word, *_ in names}, about)
    symbols = {word for word, *_ in names if any(normalize_name(word) in ids for ids in tables)}
    rare, common = list[tuple[int, int]](), list[tuple[int, int]]()
    for word, start, end in names:
        if word in known:
            is_common = common_words().get(word.lower(), 0.0) > _MAX_FREQUENCY
            if not (is_common and word.isalpha()):
                rare.append((start, end))
            elif is_main:
                common.append((start, end))
        elif word in symbols and (not word.isalpha() or is_beside_gene_words(text, start, end)):
            rare.append((start, end))
    for places in (rare, common):
        genes = {doc[s[0]].idx for s in found.spans if s[2] == GENE}
        ends = {doc[s[1] - 1].idx + len(doc[s[1] - 1]) for s in found.spans if s[2] == GENE}
        for start, end in places:
            if (span := doc.char_span(start, end)) is None:
                continue
            near, place = found.overlapping(span.start, span.end), (span.start, span.end)
            is_gene = all(s[:2] == place and s[2] != GENE and s[3] < 1 for s in near)
            if places is common:
                is_gene = not near and _is_named_gene(text, start, end, genes, ends)
            if is_gene:
                gene = (*place, GENE, RULE_PROBABILITY)
                found.add(gene, USUAL_NAME, instead_of=near)


def _known_genes(kb: KnowledgeBase, words: set[str], organisms: set[str]) -> set[str]:
    """Return the words that are gene names in at least one of the organisms."""
    different = sorted(words)
    rows = kb.lookup_names(normalize_names(different))
    names = kb.names.take(np.maximum(rows, 0))
    indptr, concepts, _ = kb.concepts_of_names(rows)
    types = kb.types_of_all(concepts)
    borders = indptr.tolist()
    return {
        word
        for i, word in enumerate(different)
        if rows[i] >= 0
        and (word == names[i] or not (word.isalpha() and word.isupper()))
        and any(organisms & {*t} for t in types[borders[i] : borders[i + 1]])
    }


def _is_named_gene(text: str, start: int, end: int, starts: set[int], ends: set[int]) -> bool:
    """Whether a common word ("white") is a gene: capitalised in mid-sentence, next to a gene word
    such as "expression", or in a list with another gene."""
    before = text[max(0, start - 2) : start].rstrip()[-1:]
    is_marked = before.isalpha() or before in {",", ";"}
    is_capitalised = text[start].isupper() and is_marked and not _LONGER_NAME.match(text, end)
    if is_capitalised or is_beside_gene_words(text, start, end):
        return True
    after = _BEFORE_GENE_IN_LIST.match(text, end)
    if after and after.end() in starts:
        return True
    gap = _AFTER_GENE_IN_LIST.search(text[max(0, start - 6) : start])
    return gap is not None and start - len(gap[0]) in ends


ORTHOLOG_ORGANISMS = frozenset(f"{ORGANISM}{id}" for id in (9913, 9823, 9031, 9615, 8364, 3702))
_SCORE = 0.9  # score of an ortholog if no other organism has its symbol


def orthologs_of(kb: KnowledgeBase, organisms: Collection[str]) -> dict[str, dict[str, str]]:
    """Return ortholog ids by organism and normalised symbol; empty unless `kb` is bundled."""
    known = ORTHOLOG_ORGANISMS.intersection(organisms)
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
    """Look up a gene's organism in the ortholog table; return "" if the gene is not there."""
    return next((organism for organism, ids in _orthologs().items() if id in ids.values()), "")


def with_orthologs(
    found: SpeciesCandidates,
    tables: Mapping[str, Mapping[str, str]],
    spellings: Sequence[str],
    kb: KnowledgeBase,
) -> SpeciesCandidates:
    """Add orthologs whose symbol matches a spelling of the mention or a candidate's symbol."""
    genes = [found.genes[organism][0] for organism in sorted(found.named)]
    symbols = kb.names.take(kb.preferred_rows(kb.find_all([gene.id for gene in genes])))
    names = [*spellings, *normalize_names(symbols)]
    groups = found.genes.copy(), found.named.copy(), found.by_symbol.copy()  # mentions share these
    result = replace(found, genes=groups[0], named=groups[1], by_symbol=groups[2])
    for organism, ids in tables.items():
        for i, name in enumerate(names):
            if name in ids:
                score, text = (genes[0].score, genes[0].name) if genes else (_SCORE, name)
                gene = Candidate(ids[name], score, text, "exact", kb.fingerprint)
                result.add([gene], {gene.id: organism}, by_symbol=i >= len(spellings))
    return result


def organism_of_gene(kb: KnowledgeBase, id: str) -> str:
    """Return a gene's organism, or "" for other concepts."""
    row = kb.find(id)
    return _organism_among(kb.types_of(row)) if row >= 0 else ""


def symbols_of(kb: KnowledgeBase, ids: Iterable[str]) -> dict[str, str]:
    """Map concept ids to normalised preferred names."""
    ids = list(dict.fromkeys(ids))
    rows = kb.preferred_rows(kb.find_all(ids))
    return dict(zip(ids, normalize_names(kb.names.take(rows)), strict=True))


def organisms_of(kb: KnowledgeBase, candidates: Iterable[Sequence[Candidate]]) -> dict[str, str]:
    """Map candidate ids to organisms, skipping candidates without one."""
    ids = sorted({c.id for of_string in candidates for c in of_string})
    organisms = map(_organism_among, kb.types_of_all(kb.find_all(ids)))
    return {id: organism for id, organism in zip(ids, organisms, strict=True) if organism}


def _organism_among(types: Iterable[str]) -> str:
    """Return the organism among a concept's types, or ""."""
    return next((t for t in types if t.startswith(ORGANISM)), "")
