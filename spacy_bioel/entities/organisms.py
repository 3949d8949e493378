"""Find where documents name organisms, from mentions, names and words such as "patients"."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import exp, sqrt
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc

from spacy_bioel.batch import Batch
from spacy_bioel.doc import text_of
from spacy_bioel.entities.patterns import find_words
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import CELL_LINE, HUMAN, MICROBES, ORGANISM

NamedPlace = tuple[int, int, str]  # start and end in characters, organism id.
# Text between a gene and its organism: "TP53 expression in mice".
_GENE_TO_ORGANISM = re.compile(
    r"\s(?:(?:genes?|proteins?|mRNAs?|expression|mutations?|homologu?es?|orthologu?es?)\s)?"
    r"(?:in|of|from)\s(?:the\s|both\s|adult\s|wild-type\s)?",
    re.IGNORECASE,
)
_CASED_WORD = re.compile(r"(?<![\w-])[A-Za-z][a-z]{1,20}(?![\w-])")  # "rams", but not "RAM"
_WORD = re.compile(r"\w+")
OTHER = "other"  # all organisms with too few texts to fit their own weights
LETTERS = re.compile(r"[a-z]{2,}")
_MAX_ORGANISMS = 50
_ANYWHERE = 1 << 40  # longer than any document, in characters
_NEAR = 60.0  # in characters; nearness falls to a third over this distance.
# Uses in patterns.tsv for animals that serve as tools: "yeast two-hybrid", "nude mice".
_TOOLS = ("before a laboratory animal", "after a laboratory animal")


@dataclass(frozen=True)
class WordWeights:
    """How strongly words such as "littermates" or "larvae" point to an organism's genes.

    organisms (Sequence[str]): Ids of the organisms, and `OTHER`.
    weights (NDArray): Log-odds for each word and organism. Shape (n_words, n_organisms).
    """

    organisms: Sequence[str]
    row_of: Mapping[str, int]
    weights: NDArray[np.float32]

    def of(self, text: str) -> dict[str, float]:
        """Return how strongly a text's words point to each organism."""
        rows = sorted(self.row_of[w] for w in {*LETTERS.findall(text.lower())} if w in self.row_of)
        weights = self.weights[rows].sum(0) / sqrt(len(rows) + 1)  # normalised by length
        return dict(zip(self.organisms, weights.tolist(), strict=True))


@cache
def word_weights() -> WordWeights:
    """Read the word weights fitted by training/scripts/gene_evidence.py."""
    table: dict[str, list[Any]] = srsly.read_gzip_json(ASSETS_FOLDER / "organism_context.json.gz")
    return WordWeights(
        table.pop(""),
        {word: row for row, word in enumerate(table)},
        np.array([*table.values()], np.float32),
    )


class NamedOrganisms:
    """The organisms mentioned in a document, with their positions, in text order.

    words, words_of: The evidence for each organism from the words of the whole document, and a list
        with the evidence from each sentence.
    """

    def __init__(self, doc: Doc, places: list[NamedPlace], words: WordWeights) -> None:
        self.text, places = text_of(doc), sorted(places)
        self.starts = [start for start, _, _ in places]
        self.ends = [end for _, end, _ in places]
        self.ids = [id for _, _, id in places]
        self.counts = Counter(self.ids)
        # Limit a gene's possible organisms, so that the running time stays linear even if a text
        # lists thousands of organisms and genes.
        self.likely = [id for id, _ in self.counts.most_common(_MAX_ORGANISMS)]
        self.borders = sentence_borders(self.text)
        self._limits = [0, *self.borders, _ANYWHERE]
        self._places_of: dict[str, tuple[list[int], list[int]]] = {}
        for start, end, id in places:
            starts_of, ends_of = self._places_of.setdefault(id, ([], []))
            starts_of.append(start)
            ends_of.append(end)
        self.words, borders = words.of(self.text), [0, *self.borders, len(self.text)]
        self.words_of = [words.of(self.text[start:end]) for start, end in pairwise(borders)]
        title_end = self.borders[0] if self.borders else _ANYWHERE
        self.in_title = set(self.ids[: bisect_left(self.starts, title_end)])

    def sentence_at(self, offset: int) -> int:
        """Return the index of the sentence at a character offset."""
        return bisect_right(self.borders, offset)

    def around(self, organism: str, offset: int) -> tuple[float, float, bool, bool, bool]:
        """Return how near an organism's last earlier mention and its nearest mention are to an
        offset (1: at the offset, 0: far away), and three flags: mentioned earlier in the sentence,
        later in the sentence, and in the previous sentence."""
        starts, ends = self._places_of.get(organism, ((), ()))
        sentence, n = self.sentence_at(offset), bisect_right(ends, offset)
        limits = self._limits[max(0, sentence - 1)], *self._limits[sentence : sentence + 2]
        n_earlier, n_in_earlier, n_so_far = (bisect_left(starts, limit) for limit in limits)
        before = nearest = exp((ends[n - 1] - offset) / _NEAR) if n else 0.0
        if n < len(starts):
            nearest = max(before, exp(-max(starts[n] - offset, 0) / _NEAR))
        return before, nearest, n_in_earlier < n, n < n_so_far, n_earlier < n_in_earlier

    def right_after(self, end: int) -> str:
        """Return the organism named right after a gene ("in mice"), or ""."""
        next_place = bisect_left(self.starts, end)
        if next_place == len(self.starts):
            return ""
        is_linked = _GENE_TO_ORGANISM.fullmatch(self.text, end, self.starts[next_place])
        return self.ids[next_place] if is_linked else ""

    def last_before(self, start: int, *, within: int = _ANYWHERE) -> str:
        """Return the last organism named at most `within` characters before an offset, or ""."""
        n_before = bisect_right(self.ends, start)
        is_near = n_before and start - self.ends[n_before - 1] <= within
        return self.ids[n_before - 1] if is_near else ""


@cache
def _organism_tables() -> tuple[re.Pattern[str], list[str], dict[str, str]]:
    """Return a pattern with one group per organism, each group's organism, and a mapping from words
    such as "sows" or "beagle" to animals (see SOURCES.md).

    Words for people, strains and non-human cell lines are in assets/species_words.json.
    Cell lines in which genes of other organisms are expressed have no organism there ("").
    """
    words_of: dict[str, list[str]] = srsly.read_json(ASSETS_FOLDER / "species_words.json")
    groups = "|".join(f"({'|'.join(words)})" for words in words_of.values())
    pattern = re.compile(rf"(?<![\w-])(?:{groups})(?!\w)", re.IGNORECASE)
    animals: dict[str, str] = srsly.read_json(ASSETS_FOLDER / "animals.json")
    animal_of = {word: animal for animal, words in animals.items() for word in words.split()}
    return pattern, list(words_of), animal_of


@lru_cache(maxsize=256)
def organism_words(text: str) -> list[NamedPlace]:
    """Find words that imply an organism ("patients", "C2C12"), without needing a detector."""
    pattern, organisms, animals = _organism_tables()
    matches = pattern.finditer(text)
    places = [(*match.span(), organisms[(match.lastindex or 1) - 1]) for match in matches]
    for match in _CASED_WORD.finditer(text):
        if animal := animals.get(match[0]) or animals.get(match[0].lower()):
            before = text[max(0, match.start() - 2) : match.start()].strip()
            if match[0] in animals or before in ("", ".") or match[0].endswith("s"):
                places.append((*match.span(), animal))
    return places


@cache
def _names_in_training() -> dict[str, list[tuple[list[str], str]]]:
    """Read the organism names in the starter's training texts, each with its most frequent
    organism. Names are grouped by first word, longest first."""
    table: dict[str, dict[str, int]] = srsly.read_json(ASSETS_FOLDER / "starter/alias_table.json")
    names: dict[str, list[tuple[list[str], str]]] = {}
    for name, ids in sorted(table.items(), key=lambda entry: -len(entry[0].split())):
        id, words = max(ids, key=ids.__getitem__), name.split()
        if id.startswith(ORGANISM) and len(name) > 2:
            names.setdefault(words[0], []).append((words, id))
    return names


def organism_names(text: str) -> list[NamedPlace]:
    """Find organism names in a text, for documents whose organisms are not marked yet."""
    names, places, next_word = _names_in_training(), list[NamedPlace](), 0
    found = list(_WORD.finditer(text))
    words = [match[0].lower() for match in found]
    for i, word in enumerate(words):
        for name, id in names.get(word, ()) if i >= next_word else ():
            if words[i : i + len(name)] == name:
                next_word = i + len(name)
                places.append((found[i].start(), found[next_word - 1].end(), id))
                break
    return places


def organism_places(batch: Batch, owners: Iterable[int]) -> dict[int, list[NamedPlace]]:
    """Find where each document names organisms: in mentions, in words that imply an organism, and
    in cell lines (human unless such a word says otherwise). If no mention is linked to an organism,
    look up organism names in the text instead."""
    texts = {owner: text_of(batch.docs[owner]) for owner in owners}
    places: dict[int, list[NamedPlace]] = {owner: [] for owner in texts}
    cells: dict[int, list[NamedPlace]] = {owner: [] for owner in texts}
    columns = batch.spans[: batch.n_wholes], batch.owners, batch.candidates
    for span, owner, candidates in zip(*columns, strict=False):
        best = next(iter(candidates), None)
        if owner not in places:
            continue
        if span.label_ == CELL_LINE and not organism_words(span.text):
            cells[owner].append((span.start_char, span.end_char, HUMAN))
        if best and best.score >= batch.nil_threshold and best.id.startswith(ORGANISM):
            places[owner].append((span.start_char, span.end_char, best.id))
    for owner, text in texts.items():
        found = places[owner] or organism_names(text)
        found = [p for p in found if not any(find_words(use, text, *p[:2]) for use in _TOOLS)]
        words = [place for place in organism_words(text) if place[2]]
        # "flies" means fruit flies, even if the mention is linked to another organism.
        read = {offset for start, end, _ in words for offset in range(start, end)}
        found = [place for place in found if read.isdisjoint(range(*place[:2]))]
        places[owner] = [*found, *words, *cells[owner]]
    return places


def is_microbe(kb: KnowledgeBase, organism: str) -> bool:
    """Whether an organism is a microbe: a virus, bacterium or archaeon."""
    # Query the parts: their types are memory-mapped, but a joined knowledge base computes them.
    rows = ((part, part.find(organism)) for part in parts_of(kb))
    return any(row >= 0 and not MICROBES.isdisjoint(part.types_of(row)) for part, row in rows)
