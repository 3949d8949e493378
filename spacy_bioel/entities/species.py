"""The places where a document names organisms: by mentions, and by words that stand for one.

Whose gene a mention is: a probability of each organism, from what the document says of it.

A symbol is a gene in each organism that has it. Curators read which one is meant: the organisms
that are named, how often and how near ("human BRCA1"); people and cell lines, which are human; how
the symbol is written (TP53, Tp53); what the other genes are. So did SR4GN (Wei et al. 2012,
https://doi.org/10.1371/journal.pone.0038460); the weights are fitted
(training/scripts/species_assignment.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby
from math import log1p
from pathlib import Path

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.doc import text_of
from spacy_bioel.entities import Candidates, Mentions
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import Fusion, softmax_by_group
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import CELL_LINE, MICROBES, ORGANISM, Candidate

PREFIX = re.compile(r"[hmr](?=[A-Z][A-Za-z]*[A-Z0-9])")


_LEAST = 1e-9


@dataclass
class SpeciesCandidates:
    """Candidates of a mention by organism: the scores of each are those that they have if the
    organism is meant.

    named, by_symbol (set): Organisms with a gene of a name of the mention; of the same symbol.
    is_whole (bool): The mention as it is written is a name.
    always (Sequence[str]): Organisms that may be meant, whether the document names them or not.
    others (list): Candidates that are of no organism.
    """

    genes: dict[str, list[Candidate]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    by_symbol: set[str] = field(default_factory=set)
    is_whole: bool = False
    always: Sequence[str] = ()
    others: list[Candidate] = field(default_factory=list)

    @cached_property
    def shares(self) -> dict[str, float]:
        named = self.named or self.genes
        return {organism: 1 / len(named) for organism in named}

    def add(
        self, found: Sequence[Candidate], organism_of: dict[str, str], *, by_symbol: bool = False
    ) -> None:
        """Add the candidates of another form, of organisms that have none of that name so far."""
        groups: dict[str, list[Candidate]] = {}
        for c in found:
            if c.id in organism_of:
                groups.setdefault(organism_of[c.id], []).append(c)
        named = {o for o, own in groups.items() if any(map(is_named, own))}
        total = sum(c.score for o in named for c in groups[o])
        for o, own in groups.items():
            if o in named and o not in self.named | self.by_symbol:
                # Shares are rounded: what training texts mean rarely may have none.
                part = total / sum(c.score + _LEAST for c in own)
                self.genes[o] = [replace(c, score=(c.score + _LEAST) * part) for c in own]
                (self.by_symbol if by_symbol else self.named).add(o)
            else:
                self.genes.setdefault(o, own)


def is_named(candidate: Candidate) -> bool:
    """Whether the mention is a name of the concept, and not only like one: for a name, nobody
    searches by spelling."""
    sources = candidate.evidence.split("+")
    return "exact" in sources or ("alias_table" in sources and "ngram" not in sources)


_WORDS = Path(__file__).parents[1] / "assets" / "species_words.json"
# Between a gene and the organism that it is said to be of.
_OF = re.compile(
    r"\s(?:(?:genes?|proteins?|mRNAs?|expression|mutations?|homologu?es?|orthologu?es?)\s)?"
    r"(?:in|of|from)\s(?:the\s|both\s|adult\s|wild-type\s)?",
    re.IGNORECASE,
)
# Organisms that are a means, and whose genes are not meant: behind them, before them.
_MEANS = re.compile(
    r"[\s-](?:(?:two|2|one|three)[\s-]hybrid|anti-|anti\s|monoclonal|polyclonal|serum|"
    r"smok|chew|xenograft|mammary tumou?r virus)",
    re.IGNORECASE,
)
_HOST_OF_TUMOURS = re.compile(
    r"(?:\bnude|\bSCID|\bathymic|\bimmunodeficient|\bimmunocompromised|\bxenografts?(?:ed)?)[\s-]"
    r"(?:tumou?r\s)?(?:in\s(?:nude\s|SCID\s|athymic\s)?)?$",
    re.IGNORECASE,
)


class NamedOrganisms:
    """The places where a document names organisms, in order."""

    def __init__(self, doc: Doc, found: list[tuple[int, int, str]], n_cells: int) -> None:
        ends = {end for _, end, _ in found}
        text = text_of(doc)
        found = sorted([*found, *(word for word in organism_words(text) if word[1] not in ends)])
        self.starts, self.ends = [start for start, _, _ in found], [end for _, end, _ in found]
        self.ids = [id for _, _, id in found]
        self.counts, self.n_cells = Counter(self.ids), n_cells
        self.borders = sentence_borders(text)
        self.text = text
        self.heading = set(self.ids[: bisect_left(self.starts, (self.borders or [1 << 40])[0])])

    def sentence(self, at: int) -> int:
        return bisect_right(self.borders, at)

    def around(self, at: int) -> tuple[set[str], set[str]]:
        """Organisms that the sentence names before a place, and behind it."""
        borders = [0, *self.borders, 1 << 40]
        number = self.sentence(at)
        first, last = (bisect_left(self.starts, border) for border in borders[number : number + 2])
        middle = bisect_right(self.ends, at)
        return set(self.ids[first:middle]), set(self.ids[max(first, middle) : last])

    def behind(self, at: int) -> str:
        """The organism that a name that ends here is said to be of."""
        number = bisect_left(self.starts, at)
        is_named = number < len(self.starts) and _OF.fullmatch(self.text, at, self.starts[number])
        return self.ids[number] if is_named else ""

    def last(self, at: int, *, within: int = 1 << 40) -> str:
        """The organism that is the last named before a place, within so many characters."""
        number = bisect_right(self.ends, at)
        return self.ids[number - 1] if number and at - self.ends[number - 1] <= within else ""


def is_experimental_system(span: Span) -> bool:
    """Whether an organism is but a means: "yeast two-hybrid", "nude mice"."""
    text = text_of(span.doc)
    before = text[max(0, span.start_char - 40) : span.start_char]
    return bool(_MEANS.match(text, span.end_char) or _HOST_OF_TUMOURS.search(before))


@cache
def _words() -> tuple[re.Pattern[str], list[str]]:
    """Words that stand for an organism, whether a detector finds them or not: people, strains, cell
    lines that are not human; and the organism of each group of the pattern.
    """
    table: dict[str, list[str]] = srsly.read_json(_WORDS)
    groups = "|".join(f"({'|'.join(words)})" for words in table.values())
    return re.compile(rf"(?<![\w-])(?:{groups})(?!\w)", re.IGNORECASE), list(table)


def organism_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Such words of a text: start, end and organism of each."""
    pattern, organisms = _words()
    for match in pattern.finditer(text):
        yield (*match.span(), organisms[(match.lastindex or 1) - 1])


# Columns of the features of a mention and an organism.
#   human: it is man; alone: and the document names none; cells: and log of 1 + cell lines
#   upper, title: and the symbol is written "TP53", "Tp53"
#   rodent: it is mouse or rat, and the symbol is written "Tp53"; a fish that is named, and "tp53"
#   often: log of 1 + how often the document names it; heading: the first sentence does
#   before: it stands right before the mention; last: it is the last one named before
#   behind: it stands right behind the mention: "Brca1 in mice"
#   sentence, after: it is named in the sentence, before or after the mention
#   prefix: the name begins with its letter: "hFSHR"
#   named, homolog: it has a gene of that name; of the symbol of such a gene
#   others, near: share of it among the genes of other mentions, in the document and the sentence
#   elsewhere: it stands right before the same name in another place
FEATURES = (
    "human", "alone", "cells", "upper", "title", "rodent", "often", "heading", "before", "last",
    "behind", "sentence", "after", "prefix", "named", "homolog", "others", "near", "elsewhere",
)  # fmt: skip
HUMAN, MOUSE, RAT, ZEBRAFISH = (f"{ORGANISM}{id}" for id in (9606, 10090, 10116, 7955))
_PREFIXES = {"h": HUMAN, "m": MOUSE, "r": RAT}
# The weight of the prefix was fitted where it is rare, and "m" and "r" mean more than mouse and rat
# ("mGluR5", recombinant); "hBRCA1" is human in any mouse.
_HUMAN_PREFIX = 8.0
_BACTERIAL = re.compile(r"[a-z]{3}[A-Z]\d?")  # "recA"
_NEAR = 2  # characters between an organism and the gene that it stands before
_WEIGHTS = Path(__file__).parents[1] / "assets" / "species_assignment.json"


@dataclass(frozen=True)
class OrganismTable:
    """Organisms that mentions may be of, one row for each pair, mention after mention.

    mention (NDArray[int64]): Number of the mention. Shape (n,).
    features (NDArray[float32]): Shape (n, len(FEATURES)).
    """

    mention: NDArray[np.int64]
    organisms: Sequence[str]
    features: NDArray[np.float32]


def organism_table(
    mentions: Mentions,
    candidates: Candidates,
    genes: Mapping[int, SpeciesCandidates],
    kb: KnowledgeBase,
) -> OrganismTable:
    """Gather the evidence for each organism that a mention of a gene may be of.

    Parts of composites say nothing of the organisms that their documents name.

    genes (Mapping): Of each mention that may be a gene, its candidates by organism.
    kb (KnowledgeBase): Tells which organisms are microbes.
    """
    n = mentions.n_wholes
    found, n_cells = _named(mentions, candidates, genes)
    documents = _documents(mentions, found, n_cells)
    named = {id for of in found.values() for _, _, id in of}
    microbes = {id for id in named if is_microbe(kb, id)}
    hosts = {
        owner: [place for place in of if place[2] not in microbes]
        for owner, of in found.items()
        if microbes.intersection(id for _, _, id in of)
    }
    without_microbes = documents | _documents(mentions, hosts, n_cells)
    places, strings = {}, mentions.strings
    said: dict[object, Counter[str]] = defaultdict(Counter)
    for number, homologs in genes.items():
        owner, whole = mentions.owners[number], _whole_of(number, mentions)
        start = whole.start_char
        sentence = owner, documents[owner].sentence(start)
        places[number] = start, whole.end_char, (owner, sentence, (owner, strings[number]))
        if number < n:
            for key in (owner, sentence):
                said[key].update(homologs.shares)
                said[key][""] += 1
            before = documents[owner].last(start, within=_NEAR)
            said[owner, strings[number]][before] += 1
    owner_of, organisms, rows = [], [], []
    for number, homologs in genes.items():
        start, end, keys = places[number]
        text = mentions.spans[number].text
        place = _Place(text, start, end, number < n, [said[key] for key in keys])
        # A virus or bacterium is why a name that no gene has is none of man, and no other.
        is_of_host = bool(homologs.named) and not _BACTERIAL.fullmatch(text)
        document = (without_microbes if is_of_host else documents)[mentions.owners[number]]
        for organism, features in _rows(homologs, document, place):
            owner_of.append(number)
            organisms.append(organism)
            rows.append(features)
    return OrganismTable(
        np.array(owner_of, dtype=np.int64),
        organisms,
        np.array(rows, dtype=np.float32).reshape(-1, len(FEATURES)),
    )


@dataclass(frozen=True)
class _Place:
    """A mention in its document.

    start, end (int): Where it, or the composite that it is a part of, starts and ends.
    is_counted (bool): It is among those that `said` counts.
    said (Sequence): Organisms of the genes of the document, of those of the sentence, and those
        that stand before the same name.
    """

    text: str
    start: int
    end: int
    is_counted: bool
    said: Sequence[Counter[str]]


def _rows(
    homologs: SpeciesCandidates, document: NamedOrganisms, place: _Place
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Features of each organism that the mention may be of."""
    text, counted = place.text, place.is_counted
    before, last = document.last(place.start, within=_NEAR), document.last(place.start)
    behind = document.behind(place.end)
    in_sentence, after = document.around(place.start)
    is_symbol = " " not in text and len(text) > 1
    is_title = is_symbol and text[0].isupper() and text[1:].islower()
    is_upper = is_symbol and text.isupper()
    is_lower = is_symbol and text.islower()
    fish = ZEBRAFISH if ZEBRAFISH in document.counts else ""
    prefix = _PREFIXES[text[0]] if PREFIX.match(text) and not homologs.is_whole else ""
    others, near, same = place.said
    for organism in dict.fromkeys([*homologs.genes, *document.counts, *homologs.always]):
        human, own = organism == HUMAN, homologs.shares.get(organism, 0.0) * counted
        yield (
            organism,
            (
                human,
                human and not document.counts,
                human * log1p(document.n_cells),
                human and is_upper,
                human and is_title,
                (is_title and organism in (MOUSE, RAT)) or (is_lower and organism == fish),
                log1p(document.counts[organism]),
                organism in document.heading,
                organism == before,
                organism == last,
                organism == behind,
                organism in in_sentence,
                organism in after,
                (organism == prefix) * (_HUMAN_PREFIX if human else 1.0),
                organism in homologs.named,
                organism in homologs.by_symbol,
                (others[organism] - own) / max(others[""] - counted, 1),
                (near[organism] - own) / max(near[""] - counted, 1),
                organism != before and same[organism] > 0,
            ),
        )


def score_species(table: OrganismTable) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Yield each mention with the organisms that it may be of, and their probabilities."""
    likely = softmax_by_group(default_weights().scores(table.features), table.mention).tolist()
    rows = zip(table.mention.tolist(), table.organisms, likely, strict=True)
    for number, of_mention in groupby(rows, key=lambda row: row[0]):
        yield number, [(organism, probability) for _, organism, probability in of_mention]


@cache
def default_weights() -> Fusion:
    """Weights of the evidence for an organism."""
    return Fusion.from_json(srsly.read_json(_WEIGHTS), FEATURES)


def _named(
    mentions: Mentions, candidates: Candidates, genes: Mapping[int, SpeciesCandidates]
) -> tuple[dict[int, list[tuple[int, int, str]]], Counter[int]]:
    """Where the documents with genes name organisms, and how many cell lines they name."""
    found: dict[int, list[tuple[int, int, str]]] = {mentions.owners[g]: [] for g in genes}
    cells: Counter[int] = Counter()
    wholes = mentions.spans[: mentions.n_wholes]
    for span, owner, of_mention in zip(
        wholes, mentions.owners, candidates.of_mentions, strict=False
    ):
        best = of_mention[0] if of_mention else None
        if best is not None and best.score >= candidates.nil_threshold and owner in found:
            if best.id.startswith(ORGANISM) and not is_experimental_system(span):
                found[owner].append((span.start_char, span.end_char, best.id))
        cells[owner] += span.label_ == CELL_LINE and not any(organism_words(span.text))
    return found, cells


def _documents(
    mentions: Mentions, found: Mapping[int, list[tuple[int, int, str]]], n_cells: Counter[int]
) -> dict[int, NamedOrganisms]:
    return {
        owner: NamedOrganisms(mentions.docs[owner], places, n_cells[owner])
        for owner, places in found.items()
    }


def is_microbe(kb: KnowledgeBase, organism: str) -> bool:
    """Whether it lives in those whose genes are meant: a virus, a bacterium, one of the archaea."""
    # By parts, whose columns are mapped: those of a joined knowledge base would be made.
    rows = ((part, part.find(organism)) for part in parts_of(kb))
    return any(row >= 0 and not MICROBES.isdisjoint(part.types_of(row)) for part, row in rows)


def _whole_of(number: int, mentions: Mentions) -> Span:
    """What stands before a composite stands before its parts: "mouse BRCA1 and TP53"."""
    part, owner, n = mentions.spans[number], mentions.owners[number], mentions.n_wholes
    if number < n:
        return part
    wholes = (s for s, of in zip(mentions.spans[:n], mentions.owners, strict=False) if of == owner)
    return next(m for m in wholes if m.start <= part.start and part.end <= m.end)
