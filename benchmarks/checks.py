"""Measure `bioel check`: wrong ids that it finds, and right ones that it doubts.

python -m benchmarks.run checks KB... makes pairs of a name and an id from each knowledge base: the
preferred name or a synonym of the concept with the id; a synonym with a typing error in a word of
at least five letters that is not a symbol; a name of a sibling, also with a typing error, or of any
concept, that the concept does not have; a retired id; and an id that does not exist. A verdict is
right if it finds the wrong ids, and nothing wrong in the others.

python -m benchmarks.run check_peers KB... --python PYTHON gives the same pairs to `bioel check` and
to linkml-term-validator, in an environment of its own. It reads an ontology from OBO, SQLite or a
service, so the concepts are written as OBO. Its setting is the strictest, without its cache of
labels, which is written again for each id. Both check parsed pairs after loading, on one thread.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Annotated

import numpy as np
import typer

from benchmarks.record import Row, SeedOption, question, rows_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.loading import load_model
from spacy_bioel.plugins.curation.check import Checker
from spacy_bioel.plugins.curation.pairs import Cell, CheckedId, IdVerdict, Pair
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
# Run in another environment: reads names and ids by kind, prints which are called wrong, and times.
_VALIDATE = """
import json, sys, time
from importlib.metadata import version
from pathlib import Path
from linkml_term_validator.models import ValidationConfig
from linkml_term_validator.validator import EnumValidator
config = ValidationConfig(oak_config_path=Path("oak.yaml"), cache_labels=False, strict_mode=True)
validator, kinds = EnumValidator(config), json.load(sys.stdin)
name, id, _ = kinds["preferred"][0]
assert validator.validate_curie_label_pairs([(id, name, "")]) == []  # reads the ontology
found = {}
for kind, made in kinds.items():
    pairs = [(id, name, str(at)) for at, (name, id, _) in enumerate(made)]
    start = time.process_time()
    issues = validator.validate_curie_label_pairs(pairs)
    seconds = time.process_time() - start
    wrong = {issue.enum_name for issue in issues if issue.is_error()}
    found[kind] = [[place in wrong for _, _, place in pairs], seconds]
print(json.dumps([found, version("linkml-term-validator")]))
"""
Made = list[tuple[str, str, str]]  # a name, an id, and the id that the name means
FoldersArgument = Annotated[list[Path], typer.Argument(help="Knowledge bases with parents.")]
NOption = Annotated[int, typer.Option(help="Pairs of each kind.")]


@question("checks", key=("system", "kb", "kind", "metric"))
def checks(
    folders: FoldersArgument,
    n: NOption = 714,
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
            findings, seconds = _check(checker, pairs)
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


@question("check_peers", key=("system", "kb", "kind", "metric"))
def check_peers(
    folders: FoldersArgument,
    python: Annotated[Path, typer.Option(help="Python with linkml-term-validator.")],
    n: NOption = 714,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    for folder in folders:
        kb = KnowledgeBase.open(folder)
        checker, make = Checker([kb]), _Maker(kb, seed)
        pairs = {kind: made for kind in KINDS if (made := make.pairs(kind, n))}
        ours = {kind: _check(checker, made) for kind, made in pairs.items()}
        theirs, version = _validate(python, kb, pairs)
        systems = {
            "bioel check": {k: ([f.is_wrong for f in found], s) for k, (found, s) in ours.items()},
            "linkml-term-validator": theirs,
        }
        for system, kinds in systems.items():
            for kind, (wrong, seconds) in kinds.items():
                values = {
                    "wrong_percent": 100 * float(np.mean(wrong)),
                    "ms_per_pair": 1000 * seconds / len(wrong),
                }
                about = {"kb": folder.name, "kind": kind, "n": len(wrong), "version": version}
                yield from rows_of(system, values, digits=3, **about)


def _check(checker: Checker, made: Made) -> tuple[list[CheckedId], float]:
    """Return findings on pairs, and the processor time in seconds."""
    pairs = [Pair(Cell(id), (Cell(name),), True) for name, id, _ in made]
    start = process_time()
    return list(map(checker.check, pairs)), process_time() - start


def _validate(
    python: Path, kb: KnowledgeBase, pairs: dict[str, Made]
) -> tuple[dict[str, tuple[list[bool], float]], str]:
    """Return which pairs linkml-term-validator calls wrong, with the seconds, and its version."""
    preferred = list(map(kb.preferred_name, range(len(kb))))
    old = ((id, preferred[row]) for id, row in zip(kb.retired, kb.retired_targets, strict=True))
    with tempfile.TemporaryDirectory() as scratch:
        ontology, config = Path(scratch) / "kb.obo", Path(scratch) / "oak.yaml"
        with ontology.open("w", encoding="utf8") as file:
            file.write("format-version: 1.2\n")
            for id, name in zip(kb.ids, preferred, strict=True):
                file.write(f"\n[Term]\nid: {id}\nname: {name}\n")
            for id, name in old:
                file.write(f"\n[Term]\nid: {id}\nname: {name}\nis_obsolete: true\n")
        prefixes = sorted({id.partition(":")[0] for id in kb.ids})
        adapters = {prefix: f"simpleobo:{ontology}" for prefix in prefixes}
        config.write_text(json.dumps({"ontology_adapters": adapters}), "utf8")  # JSON is YAML
        done = subprocess.run(
            [python.absolute(), "-I", "-c", _VALIDATE],
            cwd=scratch,
            input=json.dumps(pairs),
            capture_output=True,
            text=True,
            check=True,
        )
    found, version = json.loads(done.stdout.splitlines()[-1])
    return found, version


class _Maker:
    """Makes pairs of a name, an id, and the id that the name means, from a knowledge base."""

    def __init__(self, kb: KnowledgeBase, seed: int) -> None:
        self._kb, self._rng = kb, random.Random(seed)

    def pairs(self, kind: str, n: int) -> Made:
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
