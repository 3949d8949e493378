"""What notes say of mentions, beside negspaCy and medspaCy: `python -m benchmarks.run assertion`.

FILE has the columns condition, sentence, negation, temporality and experiencer (the sentences that
come with NegEx). A condition is looked for in its sentence; those that are not there are left out.
--negspacy and --medspacy are Pythons of environments with these packages: medspaCy pins spaCy below
3.8 and NumPy below 2. They get the same mentions as entities, and defaults.

The phrases of our rules were chosen with a look at these sentences: the figures are optimistic.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.record import Row, question, rows_of
from benchmarks.texts import blank
from spacy_bioel.doc import get_links

GOLD = {
    "negated": ("negation", "Negated"),
    "historical": ("temporality", "Historical"),
    "hypothetical": ("temporality", "Not particular"),
}
# Run in another environment: from texts with mentions to what is said of each, by question.
_NEGSPACY = """
from negspacy.negation import Negex
nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
nlp.add_pipe("negex", config={"ent_types": []})
said = lambda ent: {"negated": ent._.negex}
"""
_MEDSPACY = """
import medspacy.context
nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
nlp.add_pipe("medspacy_context")
said = lambda ent: {"negated": ent._.is_negated, "historical": ent._.is_historical,
                    "hypothetical": ent._.is_hypothetical}
"""
_THEIRS = """
import json, sys, time
import spacy
from spacy.tokens import Span
{system}
cases, found = json.load(sys.stdin), []
start = time.perf_counter()
for text, first, last in cases:
    doc = nlp.make_doc(text)
    span = doc.char_span(first, last, label="CONDITION", alignment_mode="expand")
    doc.set_ents([span])
    for name, pipe in nlp.pipeline:
        doc = pipe(doc)
    found.append(said(doc.ents[0]))
print(json.dumps([found, len(cases) / (time.perf_counter() - start)]))
"""
Case = tuple[str, int, int]
Found = tuple[list[dict[str, bool]], float]


def read(path: Path) -> tuple[list[Case], list[dict[str, str]]]:
    """Sentences with the place of their condition, and their rows."""
    cases, kept = [], []
    with path.open(encoding="utf8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            words = r"\s+".join(map(re.escape, row["condition"].split()))
            capitals = r"\s+".join(map(re.escape, row["condition"].upper().split()))
            match = re.search(capitals, row["sentence"]) or re.search(
                words, row["sentence"], re.IGNORECASE
            )
            if match:
                cases.append((row["sentence"], match.start(), match.end()))
                kept.append(row)
    return cases, kept


def ours(cases: Sequence[Case]) -> Found:
    nlp = blank()
    pipe: Any = nlp.add_pipe("bioel_context")
    found, start = [], time.perf_counter()
    for text, first, last in cases:
        doc = nlp.make_doc(text)
        doc.spans["bioel"] = [doc.char_span(first, last, alignment_mode="expand")]
        said = get_links(pipe(doc))[0].context
        found.append({asked: getattr(said, asked) for asked in GOLD})
    return found, len(cases) / (time.perf_counter() - start)


def theirs(python: Path, system: str, cases: Sequence[Case]) -> Found:
    done = subprocess.run(
        [str(python), "-P", "-W", "ignore", "-c", _THEIRS.replace("{system}", system)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    found, speed = json.loads(done.stdout.splitlines()[-1])
    return found, speed


def scores(found: Sequence[bool], gold: Sequence[bool]) -> dict[str, float]:
    both = sum(a and b for a, b in zip(found, gold, strict=True))
    precision, recall = both / max(1, sum(found)), both / max(1, sum(gold))
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"precision": 100 * precision, "recall": 100 * recall, "f1": 100 * f1}


@question("assertion", key=("question", "system", "metric"))
def assertion(
    file: Path,
    negspacy: Annotated[Path | None, typer.Option(help="Python of its environment.")] = None,
    medspacy: Annotated[Path | None, typer.Option(help="Python of its environment.")] = None,
) -> Iterator[Row]:
    cases, kept = read(file)
    systems = {"ours": ours(cases)}
    for name, python, system in (
        ("negspacy", negspacy, _NEGSPACY),
        ("medspacy", medspacy, _MEDSPACY),
    ):
        if python is not None:
            systems[name] = theirs(python, system, cases)
    for system, (found, speed) in systems.items():
        about: Row = {"question": "speed", "n": len(cases)}
        yield {"system": system, **about, "metric": "per_second", "value": round(speed)}
        for asked, (column, value) in GOLD.items():
            if asked in found[0]:
                gold = [row[column] == value for row in kept]
                values = scores([bool(one[asked]) for one in found], gold)
                yield from rows_of(system, values, digits=1, question=asked, n=sum(gold))
