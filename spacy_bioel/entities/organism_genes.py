"""Genes of flies, worms, yeasts, frogs and thale cress in documents about them: "wingless",
"daf-16", "cdc25".

Elsewhere, these names are words. In a document about flies, a name that is a common word ("white",
"cut") also needs words for genes, or another gene, beside it. Symbols that `entities.orthologs` has
need words for genes if they are letters only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.doc import SpansByToken, long_forms, text_of
from spacy_bioel.entities import RULE_PROBABILITY
from spacy_bioel.entities.orthologs import orthologs_of
from spacy_bioel.entities.usual_names import is_beside_gene_words
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import GENE, ORGANISM, SPECIES, ScoredSpan

_ABOUT = {
    "7227": r"Drosophila|[Ff]ruit ?fl(?:y|ies)|D[.] melanogaster|[Ff]lies|(?:[Tt]he|adult) fly",
    "6239": r"C[.] ?elegans|Caenorhabditis|nematodes?|worms?",
    "4932": r"S[.] ?cerevisiae|Saccharomyces|(?<!fission )yeasts?(?! two| 2| extract)",
    "4896": r"S[.] ?pombe|Schizosaccharomyces|fission yeast",
    "8364": r"X(?:enopus|[.]) tropicalis",
    "3702": r"Arabidopsis|A[.] ?thaliana|thale cress",
}
_ORGANISM = re.compile(rf"\b(?:{'|'.join(f'({words})' for words in _ABOUT.values())})\b")
_GENE_NAME = re.compile(r"(?<![\w-])[^\W\d_µμ]\w*(?:-\w+)*(?![\w-])")
_ALLELE = re.compile(r"[Δ∆]$|(?<=^[a-z]{3}\d)-\d{1,3}$|(?<=^[a-z]{3}\d\d)-\d{1,3}$")
_LONGER_NAME = re.compile(r" (?:of\b|in\b|[A-Z])")  # "Son of sevenless"
# Of the mentions of organisms, to be one that the document is about.
_MIN_ORGANISM_SHARE = 0.5
_MIN_LENGTH, _MAX_FREQUENCY = 3, 1.0  # characters; per million words
_LIST = r"(?:,|,? and|,? or|/) ?"
_BEFORE_GENE_IN_LIST, _AFTER_GENE_IN_LIST = re.compile(_LIST), re.compile(rf"{_LIST}$")


@cache
def _organism_ids() -> list[str]:
    return [f"{ORGANISM}{id}" for id in _ABOUT]


def with_organism_genes(
    doc: Doc, spans: Sequence[ScoredSpan], kb: KnowledgeBase
) -> Sequence[ScoredSpan]:
    """Add missed names of genes of the organisms above that a document is about."""
    text = text_of(doc)
    ids = _organism_ids()
    counts = Counter(ids[(match.lastindex or 1) - 1] for match in _ORGANISM.finditer(text))
    n_organisms = sum(span[2] == SPECIES for span in spans)
    about = {id for id, n in counts.items() if n >= _MIN_ORGANISM_SHARE * n_organisms}
    tables = orthologs_of(kb, about).values()
    if not (tables or about & set(kb.type_names)):
        return spans
    by_token, names = SpansByToken(spans), list[tuple[str, int, int]]()
    defined = long_forms(doc)
    for match in _GENE_NAME.finditer(text):
        word = _ALLELE.sub("", match[0])
        if len(word) >= _MIN_LENGTH and word.lower() not in STOP_WORDS and word not in defined:
            names.append((word, *match.span()))
    known = _known_genes(kb, {word for word, *_ in names}, about)
    symbols = {word for word, *_ in names if any(normalize_name(word) in ids for ids in tables)}
    rare, common = list[tuple[int, int]](), list[tuple[int, int]]()
    for word, start, end in names:
        if word in known:
            is_common = common_words().get(word.lower(), 0.0) > _MAX_FREQUENCY
            (common if is_common and word.isalpha() else rare).append((start, end))
        elif word in symbols and (not word.isalpha() or is_beside_gene_words(text, start, end)):
            rare.append((start, end))
    for places in (rare, common):
        genes = {doc[s[0]].idx for s in by_token if s[2] == GENE}
        ends = {doc[s[1] - 1].idx + len(doc[s[1] - 1]) for s in by_token if s[2] == GENE}
        for start, end in places:
            if (span := doc.char_span(start, end)) is None:
                continue
            near = by_token.overlapping(span.start, span.end)
            if near or (places is common and not _is_named_gene(text, start, end, genes, ends)):
                continue
            by_token.replace([], (span.start, span.end, GENE, RULE_PROBABILITY))
    return sorted(by_token)


def _known_genes(kb: KnowledgeBase, words: set[str], organisms: set[str]) -> set[str]:
    """Return the words that are names of genes of these organisms."""
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
    """Whether a common word has a capital within a sentence, or words for genes beside it, or a
    gene in the same list."""
    before = text[max(0, start - 2) : start].rstrip()[-1:]
    is_capitalised = text[start].isupper() and (before.isalpha() or before in {",", ";"})
    is_capitalised = is_capitalised and not _LONGER_NAME.match(text, end)
    if is_capitalised or is_beside_gene_words(text, start, end):
        return True
    after = _BEFORE_GENE_IN_LIST.match(text, end)
    if after and after.end() in starts:
        return True
    gap = _AFTER_GENE_IN_LIST.search(text[max(0, start - 6) : start])
    return gap is not None and start - len(gap[0]) in ends
