"""Measure `bioel check`: wrong ids that it finds, and right ones that it doubts.

python -m benchmarks.run checks KB... makes pairs of a name and an id from each knowledge base: the
preferred name or a synonym of the concept with the id; a synonym with a typing error in a word of
at least five letters that is not a symbol; a name of a sibling, also with a typing error, or of any
concept, that the concept does not have; a retired id; and an id that does not exist. A verdict is
right if it finds the wrong ids, and nothing wrong in the others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Annotated

import numpy as np
import typer

from benchmarks.record import Row, SeedOption, question
from spacy_bioel.curation.check import Checker
from spacy_bioel.curation.pairs import Cell, IdVerdict, Pair
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.loading import load_model
from spacy_bioel.text.normalize import normalize_name

WRONG = {
    "sibling": IdVerdict.OTHER,
    "misspelt_sibling": IdVerdict.OTHER,
    "random": IdVerdict.OTHER,
    "retired": IdVerdict.RETIRED,
    "unknown": IdVerdict.UNKNOWN,
}
KINDS = ("preferred", "synonym", "typo", *WRONG)
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][a-z]{4,}(?![A-Za-z0-9])")  # not symbols
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@question("checks", key=("system", "kb", "kind", "metric"))
def checks(
    folders: Annotated[list[Path], typer.Argument(help="Knowledge bases with parents.")],
    n: Annotated[int, typer.Option(help="Pairs of each kind.")] = 714,
    linker: Annotated[str, typer.Option(help="Pipeline to compare times with.")] = "starter",
    n_linked: Annotated[int, typer.Option(help="Names that are linked, to compare times.")] = 300,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    for folder in folders:
        kb = KnowledgeBase.open(folder)
        checker, make = Checker([kb]), _Maker(kb, seed)
        names = []
        for kind in KINDS:
            pairs = make.pairs(kind, n)
            names += [name for name, _, _ in pairs]
            checked = [Pair(Cell(id), (Cell(name),), True) for name, id, _ in pairs]
            start = process_time()
            findings = list(map(checker.check, checked))
            seconds = process_time() - start
            about = {"system": "bioel check", "kb": folder.name, "kind": kind, "n": len(pairs)}
            if not pairs:
                continue
            if kind in WRONG:
                right = [finding.verdict is WRONG[kind] for finding in findings]
            else:
                right = [not finding.is_wrong for finding in findings]
            yield about | {"metric": "right_percent", "value": round(100 * np.mean(right), 2)}
            yield about | {"metric": "ms_per_pair", "value": round(1000 * seconds / len(pairs), 3)}
            if kind in ("sibling", "misspelt_sibling", "random"):
                first = [f.proposals[0].id if f.proposals else "" for f in findings]
                found = [id == meant for id, (_, _, meant) in zip(first, pairs, strict=True)]
                yield about | {"metric": "first_percent", "value": round(100 * np.mean(found), 2)}
        if n_linked:
            nlp = load_model(linker)
            chosen = random.Random(seed).sample(names, n_linked)
            list(nlp.pipe(chosen[:20]))
            start = process_time()
            list(nlp.pipe(chosen))
            value = round(1000 * (process_time() - start) / n_linked, 3)
            about = {
                "system": f"linking with {linker}",
                "kb": folder.name,
                "kind": "",
                "n": n_linked,
            }
            yield about | {"metric": "ms_per_pair", "value": value}


class _Maker:
    """Makes pairs of a name, an id, and the id that the name means, from a knowledge base."""

    def __init__(self, kb: KnowledgeBase, seed: int) -> None:
        self._kb, self._rng = kb, random.Random(seed)

    def pairs(self, kind: str, n: int) -> list[tuple[str, str, str]]:
        make: Callable[[], tuple[str, str, str] | None] = getattr(self, f"_{kind}")
        made: dict[tuple[str, str, str], None] = {}
        for _ in range(50 * n):
            if len(made) < n and (pair := make()):
                made[pair] = None
        return list(made)

    def _row(self) -> int:
        return self._rng.randrange(len(self._kb))

    def _names(self, row: int) -> list[str]:
        return self._kb.names.take(self._kb.names_of(row))

    def _preferred(self) -> tuple[str, str, str]:
        row = self._row()
        return self._kb.preferred_name(row), self._kb.ids[row], self._kb.ids[row]

    def _synonym(self) -> tuple[str, str, str] | None:
        row = self._row()
        synonyms = self._names(row)[1:]
        return (self._rng.choice(synonyms), *[self._kb.ids[row]] * 2) if synonyms else None

    def _typo(self) -> tuple[str, str, str] | None:
        return self._misspelt(self._synonym())

    def _misspelt_sibling(self) -> tuple[str, str, str] | None:
        return self._misspelt(self._sibling())

    def _misspelt(self, pair: tuple[str, str, str] | None) -> tuple[str, str, str] | None:
        words = list(_WORD.finditer(pair[0])) if pair else []
        if not pair or not words:
            return None
        word = self._rng.choice(words)
        at = self._rng.randrange(word.start() + 1, word.end() - 1)
        name, letter = pair[0], self._rng.choice(_LETTERS)
        changed = self._rng.choice(
            (
                name[:at] + name[at + 1 :],
                name[:at] + letter + name[at:],
                name[:at] + letter + name[at + 1 :],
                name[:at] + name[at + 1] + name[at] + name[at + 2 :],
            )
        )
        same = normalize_name(changed) == normalize_name(name)
        return None if same else (changed, pair[1], pair[2])

    def _other(self, row: int, other: int) -> tuple[str, str, str] | None:
        name = self._rng.choice(self._names(other))
        own = set(map(normalize_name, self._names(row)))
        if row == other or normalize_name(name) in own:
            return None
        return name, self._kb.ids[row], self._kb.ids[other]

    def _sibling(self) -> tuple[str, str, str] | None:
        row = self._row()
        parents = self._kb.parents_of(row)
        if not len(parents):
            return None
        children = self._kb.children_of(int(self._rng.choice(parents.tolist())))
        return self._other(row, int(self._rng.choice(children.tolist())))

    def _random(self) -> tuple[str, str, str] | None:
        return self._other(self._row(), self._row())

    def _retired(self) -> tuple[str, str, str] | None:
        if not len(self._kb.retired):
            return None
        number = self._rng.randrange(len(self._kb.retired))
        row = int(self._kb.retired_targets[number])
        return self._kb.preferred_name(row), self._kb.retired[number], self._kb.ids[row]

    def _unknown(self) -> tuple[str, str, str] | None:
        row = self._row()
        id = re.sub(r"\d", lambda _: self._rng.choice("0123456789"), self._kb.ids[row])
        is_known = id in self._kb or id in self._kb.withdrawn
        return None if is_known else (self._kb.preferred_name(row), id, self._kb.ids[row])
