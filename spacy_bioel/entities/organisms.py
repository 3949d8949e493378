"""The organisms that documents name, and where: their mentions, words that imply them, names."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from math import exp, log1p
from typing import NamedTuple

import srsly
from spacy.tokens import Doc

from spacy_bioel.batch import Batch
from spacy_bioel.doc import text_of
from spacy_bioel.entities.patterns import find_words, patterns
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import MICROBES, ORGANISM

NamedPlace = tuple[int, int, str]  # start and end in characters, organism id
# Text between a gene and the organism that it belongs to: "TP53 expression in mice".
_GENE_TO_ORGANISM = re.compile(
    r"\s(?:(?:genes?|proteins?|mRNAs?|expression|mutations?|homologu?es?|orthologu?es?)\s)?"
    r"(?:in|of|from)\s(?:the\s|both\s|adult\s|wild-type\s)?",
    re.IGNORECASE,
)
_CASED_WORD = re.compile(r"(?<![\w-])[A-Za-z][a-z]{1,20}(?![\w-])")  # "rams", but not "RAM"
_WORD, _MAX_WORDS_IN_NAME = re.compile(r"\w+"), 4
_MAX_ORGANISMS = 50
_ANYWHERE = 1 << 40  # longer than any document, in characters


_NEAR = 60.0  # characters; nearness falls to a third over this distance


class Cues(NamedTuple):
    """Clues to whose genes a text means: how many words for people and for work with laboratory
    animals it has (logarithms), and whether it has variants, or genes put into other organisms."""

    n_people: float
    n_laboratory: float
    has_variant: bool
    has_transgene: bool


def cues_of(text: str) -> Cues:
    uses = ("people", "laboratory")
    n_people, n_laboratory = (log1p(len(patterns()[use].findall(text))) for use in uses)
    has_variant, has_transgene = (
        bool(find_words(u, text)) for u in ("variant of a gene", "transgene")
    )
    return Cues(n_people, n_laboratory, has_variant, has_transgene)


class NamedOrganisms:
    """The organisms mentioned in a document, with their positions, in text order."""

    def __init__(self, doc: Doc, places: list[NamedPlace], n_cell_lines: int) -> None:
        self.text, places = text_of(doc), sorted(places)
        self.starts = [start for start, _, _ in places]
        self.ends = [end for _, end, _ in places]
        self.ids = [id for _, _, id in places]
        self.counts, self.n_cell_lines = Counter(self.ids), n_cell_lines
        # The organisms that a gene may belong to. Limited, so that the running time is linear even
        # if a text lists thousands of organisms and of genes.
        self.likely = list(self.counts)
        if len(self.likely) > _MAX_ORGANISMS:
            self.likely = [id for id, _ in self.counts.most_common(_MAX_ORGANISMS)]
        self.borders = sentence_borders(self.text)
        self._limits = [0, *self.borders, _ANYWHERE]
        self._first_and_last: dict[int, dict[str, tuple[int, int]]] = {}
        self._places_of: dict[str, tuple[list[int], list[int]]] = {}
        for start, end, id in places:
            starts_of, ends_of = self._places_of.setdefault(id, ([], []))
            starts_of.append(start)
            ends_of.append(end)
        self.cues, self._cues_of = cues_of(self.text), dict[int, Cues]()
        title_end = self.borders[0] if self.borders else _ANYWHERE
        self.in_title = set(self.ids[: bisect_left(self.starts, title_end)])

    def sentence_at(self, offset: int) -> int:
        """Return the index of the sentence at a character offset."""
        return bisect_right(self.borders, offset)

    def in_sentence(self, offset: int) -> tuple[set[str], set[str]]:
        """Return the likely organisms before and after an offset, in the same sentence."""
        places = self.organisms_in(self.sentence_at(offset))
        middle = bisect_right(self.ends, offset)
        before = {id for id, (first, _) in places.items() if first < middle}
        return before, {id for id, (_, last) in places.items() if last >= middle}

    def organisms_in(self, sentence: int) -> dict[str, tuple[int, int]]:
        """Return the first and the last place of each likely organism in a sentence."""
        if sentence not in self._first_and_last:
            start, end = self._limits[sentence : sentence + 2]
            likely, places = set(self.likely), dict[str, tuple[int, int]]()
            for place in range(bisect_left(self.starts, start), bisect_left(self.starts, end)):
                if (id := self.ids[place]) in likely:
                    places[id] = places.get(id, (place, place))[0], place
            self._first_and_last[sentence] = places
        return self._first_and_last[sentence]

    def nearness(self, organism: str, offset: int) -> tuple[float, float]:
        """Return how near the last mention before an offset is, and the nearest one: 1 to 0."""
        starts, ends = self._places_of.get(organism, ((), ()))
        n_before = bisect_right(ends, offset)
        before = exp((ends[n_before - 1] - offset) / _NEAR) if n_before else 0.0
        if n_before == len(starts):
            return before, before
        return before, max(before, exp(-max(starts[n_before] - offset, 0) / _NEAR))

    def cues_at(self, offset: int) -> Cues:
        """Return the cues of the sentence at a character offset."""
        sentence = self.sentence_at(offset)
        if sentence not in self._cues_of:
            start, end = self._limits[sentence : sentence + 2]
            self._cues_of[sentence] = cues_of(self.text[start:end])
        return self._cues_of[sentence]

    def right_after(self, end: int) -> str:
        """Return the organism in the text right after a gene ("in mice"), or ""."""
        next_place = bisect_left(self.starts, end)
        if next_place == len(self.starts):
            return ""
        is_linked = _GENE_TO_ORGANISM.fullmatch(self.text, end, self.starts[next_place])
        return self.ids[next_place] if is_linked else ""

    def last_before(self, start: int, *, within: int = _ANYWHERE) -> str:
        """Return the last organism at most `within` characters before an offset, or ""."""
        n_before = bisect_right(self.ends, start)
        is_near = n_before and start - self.ends[n_before - 1] <= within
        return self.ids[n_before - 1] if is_near else ""


def _is_experimental_system(text: str, start: int, end: int) -> bool:
    """Whether an organism is merely an experimental system: "yeast two-hybrid", "nude mice"."""
    uses = ("before a laboratory animal", "after a laboratory animal")
    return any(find_words(use, text, start, end) for use in uses)


@cache
def _organism_tables() -> tuple[re.Pattern[str], list[str], dict[str, str]]:
    """Return a pattern with a group for each organism that has words, these organisms, and the
    animals by their words ("sows", "beagle"; see SOURCES.md).

    Words for people, strains, and cell lines that are not human are in assets/species_words.json.
    """
    words_of: dict[str, list[str]] = srsly.read_json(ASSETS_FOLDER / "species_words.json")
    groups = "|".join(f"({'|'.join(words)})" for words in words_of.values())
    pattern = re.compile(rf"(?<![\w-])(?:{groups})(?!\w)", re.IGNORECASE)
    animals: dict[str, str] = srsly.read_json(ASSETS_FOLDER / "animals.json")
    animal_of = {word: animal for animal, words in animals.items() for word in words.split()}
    return pattern, list(words_of), animal_of


@lru_cache(maxsize=256)
def organism_words(text: str) -> list[NamedPlace]:
    """Return words that imply an organism ("patients", "C2C12"), found without a detector."""
    pattern, organisms, animals = _organism_tables()
    matches = pattern.finditer(text)
    places = [(*match.span(), organisms[(match.lastindex or 1) - 1]) for match in matches]
    for match in _CASED_WORD.finditer(text):
        if animal := animals.get(match[0]) or animals.get(match[0].lower()):
            before = text[max(0, match.start() - 2) : match.start()].strip()
            if match[0] in animals or before in ("", "."):
                places.append((*match.span(), animal))
    return places


@cache
def _names_in_training() -> dict[str, str]:
    """Read the normalised names of organisms in the training texts of the starter, with the
    organism that each mostly means."""
    table: dict[str, dict[str, int]] = srsly.read_json(ASSETS_FOLDER / "starter/alias_table.json")
    meant = ((name, max(ids, key=ids.__getitem__)) for name, ids in table.items())
    return {name: id for name, id in meant if id.startswith(ORGANISM) and len(name) > 2}


def organism_names(text: str) -> list[NamedPlace]:
    """Return the names of organisms in a text, for documents whose organisms nobody has marked."""
    names, places, covered = _names_in_training(), list[NamedPlace](), 0
    words = [(match[0].lower(), *match.span()) for match in _WORD.finditer(text)]
    for i, (_, start, _) in enumerate(words):
        if start < covered:
            continue
        for n in range(_MAX_WORDS_IN_NAME, 0, -1):
            name = words[i : i + n]
            if id := names.get(" ".join(word for word, *_ in name)):
                covered = name[-1][2]
                places.append((start, covered, id))
                break
    return places


def organism_places(batch: Batch, owners: Iterable[int]) -> dict[int, list[NamedPlace]]:
    """Return the organisms that documents of a batch name: their mentions, then words that imply
    an organism. In documents without mentions of organisms, these are found by their names."""
    texts = {owner: text_of(batch.docs[owner]) for owner in owners}
    places: dict[int, list[NamedPlace]] = {owner: [] for owner in texts}
    columns = batch.spans[: batch.n_wholes], batch.owners, batch.candidates
    for span, owner, candidates in zip(*columns, strict=False):
        best = next(iter(candidates), None)
        if owner in places and best and best.score >= batch.nil_threshold:
            if best.id.startswith(ORGANISM):
                places[owner].append((span.start_char, span.end_char, best.id))
    for owner, text in texts.items():
        found = places[owner] or organism_names(text)
        found = [place for place in found if not _is_experimental_system(text, *place[:2])]
        words = organism_words(text)
        ends = {end for _, end, _ in words}  # "flies" are fruit flies, also where they are linked
        places[owner] = [*(place for place in found if place[1] not in ends), *words]
    return places


def is_microbe(kb: KnowledgeBase, organism: str) -> bool:
    """Whether an organism is a microbe (a virus, bacterium or archaeon), which lives in a host."""
    # The parts' types are memory-mapped; a joined knowledge base would have to compute its types.
    rows = ((part, part.find(organism)) for part in parts_of(kb))
    return any(row >= 0 and not MICROBES.isdisjoint(part.types_of(row)) for part, row in rows)
