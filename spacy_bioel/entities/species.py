"""Species assignment: the probability of each organism that a gene mention may belong to.

Many organisms have genes with the same symbol. Curators choose between genes by which organisms
the document mentions, how often and how near ("human BRCA1"), by words for people and cell lines,
by the spelling of the symbol (TP53, Tp53), and by the other genes in the document. SR4GN works in
the same way (Wei et al. 2012, https://doi.org/10.1371/journal.pone.0038460). The weights are fitted
by training/scripts/gene_evidence.py.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import fsum, log1p

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span

from spacy_bioel.batch import Batch
from spacy_bioel.entities.organisms import (
    OTHER,
    NamedOrganisms,
    NamedPlace,
    WordWeights,
    is_microbe,
)
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import Fusion, bundled_fusion, softmax_by_group
from spacy_bioel.types import HUMAN, ORGANISM, SPECIES, Candidate

# Added to scores, because the score of a gene that is rare in the training texts may round to 0.
_SCORE_FLOOR = 1e-9


@dataclass
class SpeciesCandidates:
    """A mention's candidates by organism, scored as if the mention belonged to that organism.

    named (set): Organisms with a gene that has the mention as a name.
    by_symbol (set): Other organisms, with a gene that shares its symbol with such a gene.
    is_whole (bool): The mention as written is a name in the knowledge base.
    always (Sequence[str]): Organisms to consider even if the document does not mention them.
    others (list): Candidates without an organism.
    """

    genes: dict[str, list[Candidate]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    by_symbol: set[str] = field(default_factory=set)
    is_whole: bool = False
    always: Sequence[str] = ()
    others: list[Candidate] = field(default_factory=list)

    @cached_property
    def shares(self) -> dict[str, float]:
        """A uniform distribution over the organisms that have a gene with this name."""
        organisms = self.named or self.genes
        return {organism: 1 / len(organisms) for organism in organisms}

    def add(
        self,
        candidates: Sequence[Candidate],
        organism_of: dict[str, str],
        *,
        by_symbol: bool = False,
    ) -> None:
        """Add candidates for another spelling, keeping genes already found by name or symbol."""
        groups: dict[str, list[Candidate]] = {}
        for c in candidates:
            if c.id in organism_of:
                groups.setdefault(organism_of[c.id], []).append(c)
        named = {organism for organism, genes in groups.items() if any(map(is_named, genes))}
        total = fsum(c.score for organism in named for c in groups[organism])  # order-independent
        for organism, genes in groups.items():
            if organism in named and organism not in self.named | self.by_symbol:
                factor = total / sum(c.score + _SCORE_FLOOR for c in genes)
                self.genes[organism] = [
                    replace(c, score=(c.score + _SCORE_FLOOR) * factor) for c in genes
                ]
                (self.by_symbol if by_symbol else self.named).add(organism)
            else:
                self.genes.setdefault(organism, genes)


def is_named(candidate: Candidate) -> bool:
    """Whether the mention is a name of the concept, rather than merely similar to one.

    For exact names, n-gram search is not run.
    """
    sources = candidate.evidence.split("+")
    return "exact" in sources or ("alias_table" in sources and "ngram" not in sources)


# Features of a (mention, organism) pair, in the order of the weights: see `_species_features`, and
# `organism_table` for "covered".
SPECIES_FEATURES = (
    "human", "alone", "upper", "title", "rodent", "often", "heading", "before", "last",
    "behind", "sentence", "after", "prefix", "human_prefix", "named", "homolog", "others", "near",
    "elsewhere", "near_before", "nearest", "previous", "share", "most", "only", "spelled", "words",
    "words_near", "mouse", "simple", "animal", "animal_upper", "rat", "length", "organisms",
    "contrast", "covered",
)  # fmt: skip
MOUSE, RAT, ZEBRAFISH, FROG = (f"{ORGANISM}{id}" for id in (10090, 10116, 7955, 8364))
ORGANISM_PREFIX = re.compile(r"[hmr](?=[A-Z][A-Za-z]{0,20}[A-Z0-9])")  # "hTERT", "mFgf2"
_ORGANISM_OF_PREFIX = {"h": HUMAN, "m": MOUSE, "r": RAT}
_BACTERIAL_SYMBOL = re.compile(r"[a-z]{3}[A-Z]\d?")  # "recA"
_SIMPLE = {f"{ORGANISM}{id}" for id in (7227, 6239, 4932, 4896)}  # flies, worms and yeasts
_LIKE_HUMAN = {f"{ORGANISM}{id}" for id in (9913, 9823, 9031, 9615)}  # "MSTN" in cattle, pigs, ...
_MAX_RIGHT_BEFORE = 2  # the maximum number of characters between an organism and its gene


@dataclass(frozen=True)
class OrganismTable:
    """The organisms that mentions may belong to, with one row per (mention, organism) pair; a
    mention's rows are contiguous.

    mention (NDArray[int64]): Index of the mention. Shape (n,).
    features (NDArray[float32]): Shape (n, len(SPECIES_FEATURES)).
    """

    mention: NDArray[np.int64]
    organisms: Sequence[str]
    features: NDArray[np.float32]


def organism_table(
    batch: Batch,
    genes: Mapping[int, SpeciesCandidates],
    places: Mapping[int, list[NamedPlace]],
    kb: KnowledgeBase,
    words: WordWeights,
) -> OrganismTable:
    """Return the evidence for each organism that a gene mention may belong to.

    Parts of composites are not counted as evidence for other mentions.

    genes (Mapping): The candidates by organism for each mention that may be a gene.
    places (Mapping): The result of `organism_places` for the documents of these mentions.
    kb (KnowledgeBase): Its concept types show which organisms are microbes, and for which
        organisms it has genes.
    """
    documents = {
        owner: NamedOrganisms(batch.docs[owner], places_of_doc, words)
        for owner, places_of_doc in places.items()
    }
    named = {id for document in documents.values() for id in document.counts}
    microbes = {id for id in named if is_microbe(kb, id)}
    covered = {*kb.type_names}  # includes every organism with genes in the knowledge base

    cases: dict[tuple[int, str], set[str]] = defaultdict(set)  # keyed by document and symbol.
    # Counts of gene mentions by organism in each document and sentence ("": the total), and of
    # the organisms named right before a string in a document.
    counts: dict[object, Counter[str]] = defaultdict(Counter)
    ids = sorted({c[0].id for one in genes.values() for c in one.genes.values() if c})
    symbols: dict[str, str] = {}
    for part in parts_of(kb):  # the parts' names are memory-mapped; a joined KB computes its names
        known = np.flatnonzero((concepts := part.find_all(ids)) >= 0)
        names = part.names.take(part.preferred_rows(concepts[known]))
        symbols = dict(zip(map(ids.__getitem__, known), names, strict=True)) | symbols
    gene_mentions: dict[int, _GeneMention] = {}
    strings, wholes = batch.strings, _wholes(batch)
    for index, species_candidates in genes.items():
        owner, whole = batch.owners[index], wholes[index]
        start, text = whole.start_char, batch.spans[index].text
        is_counted = index < batch.n_wholes and whole.label_ != SPECIES
        in_document, in_sentence, same_string = (
            owner,
            (owner, documents[owner].sentence_at(start)),
            (owner, strings[index]),
        )
        if is_counted:
            for key in (in_document, in_sentence):
                counts[key].update(species_candidates.shares)
                counts[key][""] += 1
            counts[same_string][documents[owner].last_before(start, within=_MAX_RIGHT_BEFORE)] += 1
        cases[owner, text.lower()].add(text)
        gene_mentions[index] = _GeneMention(
            text,
            {
                o
                for o, found in species_candidates.genes.items()
                if found and symbols.get(found[0].id) == text
            },
            whole,
            is_counted,
            counts[in_document],
            counts[in_sentence],
            counts[same_string],
            cases[owner, text.lower()],
        )

    mention_of_row, organisms, rows = [], [], []
    for index, species_candidates in genes.items():
        mention, owner = gene_mentions[index], batch.owners[index]
        # A gene name in the knowledge base belongs to the host, not to a virus or bacterium. Other
        # names, and names spelled like bacterial genes, may belong to a microbe.
        is_of_host = species_candidates.named and not _BACTERIAL_SYMBOL.fullmatch(mention.text)
        for organism, features in _species_features(species_candidates, documents[owner], mention):
            if is_of_host and organism in microbes:
                continue
            # Yeast is unlikely if it has no gene of this name, but horse is not, because the
            # knowledge base has no horse genes at all.
            features["covered"] = organism in covered
            mention_of_row.append(index)
            organisms.append(organism)
            rows.append([features[name] for name in SPECIES_FEATURES])
    return OrganismTable(
        np.array(mention_of_row, dtype=np.int64),
        organisms,
        np.array(rows, dtype=np.float32).reshape(-1, len(SPECIES_FEATURES)),
    )


@dataclass(frozen=True)
class _GeneMention:
    """A gene mention in its document.

    spelled (set[str]): Organisms with a gene whose symbol is spelled like the mention.
    whole (Span): The mention, or the composite that contains it.
    is_counted (bool): Whether the following counts include the mention.
    in_document, in_sentence (Counter): Number of gene mentions by organism; "": the total.
    right_before (Counter): Organisms right before occurrences of the same string in the document.
    cases (set): All capitalisations of the mention in the document: "KRAS", "Kras".
    """

    text: str
    spelled: set[str]
    whole: Span
    is_counted: bool
    in_document: Counter[str]
    in_sentence: Counter[str]
    right_before: Counter[str]
    cases: set[str]


def _species_features(
    species_candidates: SpeciesCandidates, document: NamedOrganisms, mention: _GeneMention
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each organism that a mention may belong to, with its features by name."""
    text, is_counted, start = mention.text, mention.is_counted, mention.whole.start_char
    before = document.last_before(start, within=_MAX_RIGHT_BEFORE)
    after = document.right_after(mention.whole.end_char)
    is_symbol = " " not in text and len(text) > 1
    is_title = is_symbol and text[0].isupper() and text[1:].islower()  # "Tp53"
    is_upper = is_symbol and text.isupper()  # "TP53"
    is_lower = is_symbol and text.islower()  # "tp53"
    words, words_near = document.words, document.words_of[document.sentence_at(start)]
    total, most = document.counts.total(), max(document.counts.values(), default=0)
    has_prefix = ORGANISM_PREFIX.match(text) and not species_candidates.is_whole
    prefix = _ORGANISM_OF_PREFIX[text[0]] if has_prefix else ""
    organisms = [*species_candidates.genes, *document.likely, *species_candidates.always]
    for organism in dict.fromkeys(organisms):
        is_human = organism == HUMAN
        is_named_fish = organism == ZEBRAFISH and organism in document.counts
        is_named = organism in species_candidates.named
        is_rodent, is_animal = organism in (MOUSE, RAT), organism in _LIKE_HUMAN
        # The counts exclude the mention itself.
        share = species_candidates.shares.get(organism, 0.0) * is_counted
        genes = mention.in_document, mention.in_sentence
        n_in_document, n_in_sentence = (max(counts[""] - is_counted, 1) for counts in genes)
        near_before, nearest, earlier, later, previous = document.around(organism, start)
        n = document.counts[organism]
        yield (
            organism,
            {
                "human": is_human,
                "alone": is_human and not document.counts,  # no organism in the document
                "upper": is_human and is_upper,
                "title": is_human and is_title,
                # Mouse and rat genes are written "Tp53", zebrafish genes "tp53".
                "rodent": (is_title and is_rodent) or (is_lower and is_named_fish),
                "often": log1p(n),  # how often the organism is mentioned
                "heading": organism in document.in_title,
                "before": organism == before,  # right before the mention: "mouse Brca1"
                "last": organism == document.last_before(start),  # the last one before the mention
                "behind": organism == after,  # right after the mention: "Brca1 in mice"
                "sentence": earlier,  # in the same sentence, before the mention
                "after": later,  # in the same sentence, after the mention.
                # "m" and "r" often mean something else ("mGluR5", recombinant); "h" does not.
                "prefix": organism == prefix and not is_human,
                "human_prefix": organism == prefix and is_human,
                "named": is_named,
                "homolog": organism in species_candidates.by_symbol,
                # The organism's share of the other genes in the document and in the sentence.
                "others": (mention.in_document[organism] - share) / n_in_document,
                "near": (mention.in_sentence[organism] - share) / n_in_sentence,
                # The organism is named right before the same string elsewhere in the document.
                "elsewhere": organism != before and mention.right_before[organism] > 0,
                "near_before": near_before,
                "nearest": nearest,
                "previous": previous,  # in the previous sentence
                "share": n / (total or 1),
                "most": n == most > 0,
                "only": n == total > 0,
                "spelled": organism in mention.spelled
                or (is_named and ((is_animal and is_upper) or (organism == FROG and is_lower))),
                "words": words.get(organism, words[OTHER]),
                "words_near": words_near.get(organism, words_near[OTHER]),
                "mouse": organism == MOUSE,
                "simple": organism in _SIMPLE,
                "animal": is_animal,
                "animal_upper": is_animal and is_upper,
                "rat": organism == RAT,
                "length": log1p(len(document.text)),  # distinguishes sentences from abstracts
                "organisms": log1p(len(document.counts)),
                # The document spells this symbol both ways: "KRAS" and "Kras".
                "contrast": (is_upper - is_title)
                * (is_human - is_rodent)
                * (len(mention.cases) > 1),
            },
        )


def score_species(
    table: OrganismTable, weights: Fusion
) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Yield each mention with the organisms that it may belong to, and their probabilities."""
    scores = weights.scores(table.features)
    probabilities = softmax_by_group(scores, table.mention).tolist()
    rows = zip(table.mention.tolist(), table.organisms, probabilities, strict=True)
    for mention, rows_of_mention in groupby(rows, key=lambda row: row[0]):
        yield mention, [(organism, probability) for _, organism, probability in rows_of_mention]


def default_weights() -> Fusion:
    """Return the fitted weights of `SPECIES_FEATURES`."""
    return bundled_fusion("species_assignment.json", SPECIES_FEATURES)


def _wholes(batch: Batch) -> list[Span]:
    """Return each mention's span; for a part, the span of the composite that contains it."""
    # Words before a composite are evidence for all its parts: "mouse BRCA1 and TP53".
    wholes = list(batch.spans[: batch.n_wholes])
    at_token: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for owner, whole in zip(batch.owners, wholes, strict=False):
        for token in range(whole.start, whole.end):
            at_token[owner, token].append(whole)
    for index in range(len(wholes), len(batch.spans)):
        span = batch.spans[index]
        around = at_token[batch.owners[index], span.start]
        wholes.append(next(w for w in around if span.end <= w.end))
    return wholes
