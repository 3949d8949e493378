"""Compare negation and other context detection with negspaCy and medspaCy.

python -m benchmarks.run assertion FILE: a table with the columns condition, sentence, negation,
temporality and experiencer (the sentences distributed with NegEx). Conditions that do not occur in
their sentence are left out. --negspacy and --medspacy are the Python executables of environments
with these packages: medspaCy pins spaCy below 3.8 and NumPy below 2. Both packages run with their
defaults on the same mentions, given as entities.

python -m benchmarks.run statuses FILE ...: mentions whose status, in one word, is right, in notes
with `mentions` or lines with `expect` (benchmarks/notes_layout.jsonl, assertion_lines.jsonl).

python -m benchmarks.run layout_cost FILE --kb FOLDER: processor time of the layout and of all of
`bioel_context`, relative to the dictionary and the linker, measured in turns on one thread.

Our rules were developed with these texts in view, so our figures are optimistic.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

from benchmarks.record import Row, question, rows_of
from benchmarks.texts import blank
from spacy_bioel.doc import get_links
from spacy_bioel.loading import load_model
from spacy_bioel.parallel import use_one_thread
from spacy_bioel.plugins.clinical.layout import read_layout, units_of
from spacy_bioel.plugins.clinical.presets import add_context
from spacy_bioel.plugins.clinical.status import Context

GOLD = {
    "negated": ("negation", "Negated"),
    "historical": ("temporality", "Historical"),
    "hypothetical": ("temporality", "Not particular"),
}
# Run in another environment: reads texts with mentions, prints the context of each mention.
_NEGSPACY = """
from negspacy.negation import Negex
nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
nlp.add_pipe("negex", config={"ent_types": []})
context = lambda ent: {"negated": ent._.negex}
"""
_MEDSPACY = """
import medspacy.context
nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
nlp.add_pipe("medspacy_context")
context = lambda ent: {"negated": ent._.is_negated, "historical": ent._.is_historical,
                       "hypothetical": ent._.is_hypothetical, "uncertain": ent._.is_uncertain,
                       "family": ent._.is_family}
"""
_RUN_SYSTEM = """
import json, sys, time
import spacy
from spacy.tokens import Span
{system}
cases, contexts = json.load(sys.stdin), []
start = time.perf_counter()
for text, first, last in cases:
    doc = nlp.make_doc(text)
    span = doc.char_span(first, last, label="CONDITION", alignment_mode="expand")
    doc.set_ents([span])
    for name, pipe in nlp.pipeline:
        doc = pipe(doc)
    contexts.append(context(doc.ents[0]))
print(json.dumps([contexts, len(cases) / (time.perf_counter() - start)]))
"""
# Flags by precedence, with the status of a mention that has them.
STATUSES = {
    "negated": "absent",
    "family": "family",
    "other": "other",
    "hypothetical": "conditional",
    "uncertain": "possible",
    "historical": "historical",
}
_OTHER_WORDS = {"negated": "absent", "affirmed": "present", "uncertain": "possible"}
Case = tuple[str, int, int]  # sentence, first and last character of the condition
Contexts = tuple[list[dict[str, bool]], float]  # context of each case, cases a second


def read(path: Path) -> tuple[list[Case], list[dict[str, str]]]:
    """Return sentences with the offsets of their condition, and the rows they are from."""
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


def run_ours(cases: Sequence[Case]) -> Contexts:
    nlp = blank()
    pipe: Any = nlp.add_pipe("bioel_context")
    contexts, start = [], time.perf_counter()
    for text, first, last in cases:
        doc = nlp.make_doc(text)
        doc.spans["bioel"] = [doc.char_span(first, last, alignment_mode="expand")]
        context = Context.of(get_links(pipe(doc))[0])
        flags = {asked: getattr(context, asked) for asked in (*GOLD, "uncertain")}
        contexts.append(flags | {context.experiencer: True})
    return contexts, len(cases) / (time.perf_counter() - start)


def run_other(python: Path, system: str, cases: Sequence[Case]) -> Contexts:
    done = subprocess.run(
        [str(python), "-P", "-W", "ignore", "-c", _RUN_SYSTEM.replace("{system}", system)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    contexts, speed = json.loads(done.stdout.splitlines()[-1])
    return contexts, speed


def scores(found: Sequence[bool], gold: Sequence[bool]) -> dict[str, float]:
    both = sum(a and b for a, b in zip(found, gold, strict=True))
    precision, recall = both / max(1, sum(found)), both / max(1, sum(gold))
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"precision": 100 * precision, "recall": 100 * recall, "f1": 100 * f1}


def read_statuses(path: Path) -> Iterator[tuple[Case, str]]:
    """Yield mentions with their status."""
    for line in path.read_text("utf8").splitlines():
        row = json.loads(line)
        places = [(row["text"].index(words), words) for words in row.get("expect", {})]
        mentions = [(at, at + len(words), row["expect"][words]) for at, words in places]
        mentions += [(m["start"], m["end"], m["is"]) for m in row.get("mentions", ())]
        for start, end, status in mentions:
            yield (row["text"], start, end), _OTHER_WORDS.get(status, status)


def status_of(context: dict[str, bool]) -> str:
    return next((word for flag, word in STATUSES.items() if context.get(flag)), "present")


@question("assertion", key=("question", "system", "corpus", "metric"))
def statuses(
    files: list[Path],
    negspacy: Annotated[
        Path | None, typer.Option(help="Python of an environment with negspaCy.")
    ] = None,
    medspacy: Annotated[
        Path | None, typer.Option(help="Python of an environment with medspaCy.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of our rules in the results.")] = "ours",
) -> Iterator[Row]:
    for path in files:
        cases, gold = zip(*read_statuses(path), strict=True)
        systems = {name: run_ours(cases)}
        for other, python, system in (
            ("negspacy", negspacy, _NEGSPACY),
            ("medspacy", medspacy, _MEDSPACY),
        ):
            if python is not None:
                systems[other] = run_other(python, system, cases)
        for system, (contexts, _) in systems.items():
            right = sum(status_of(c) == status for c, status in zip(contexts, gold, strict=True))
            about: Row = {"question": "statuses", "corpus": path.stem, "n": len(gold)}
            yield {"system": system, **about, "metric": "right", "value": right}


@question("assertion", key=("question", "system", "corpus", "metric"))
def layout_cost(
    files: list[Path],
    kb: Annotated[Path, typer.Option(help="Knowledge base.")],
    repeats: Annotated[int, typer.Option(help="Times each measurement is made.")] = 7,
) -> Iterator[Row]:
    use_one_thread()
    plain, with_context = load_model(str(kb)), load_model(str(kb))
    add_context(with_context)
    for path in files:
        texts = [json.loads(line)["text"] for line in path.read_text("utf8").splitlines()]
        measured = {
            "finder": partial(_seconds, plain, texts),
            "context": partial(_seconds, with_context, texts),
            "layout": partial(_seconds, None, texts),
        }
        turns = [{name: run() for name, run in measured.items()} for _ in range(1 + repeats)]
        least = {name: min(turn[name] for turn in turns[1:]) for name in measured}
        values = {
            "layout": 100 * least["layout"] / least["finder"],
            "context": 100 * (least["context"] / least["finder"] - 1),
        }
        about: Row = {"question": "layout_cost", "corpus": path.stem, "n": len(texts)}
        yield from rows_of("ours", values, digits=1, **about)


def _seconds(nlp: Language | None, texts: Sequence[str]) -> float:
    """Return the processor time of a pipeline, or of the layout alone."""
    read_layout.cache_clear()
    units_of.cache_clear()
    start = time.process_time()
    deque(nlp.pipe(texts) if nlp else map(read_layout, texts), maxlen=0)
    return time.process_time() - start


@question("assertion", key=("question", "system", "corpus", "metric"))
def assertion(
    file: Path,
    negspacy: Annotated[
        Path | None, typer.Option(help="Python of an environment with negspaCy.")
    ] = None,
    medspacy: Annotated[
        Path | None, typer.Option(help="Python of an environment with medspaCy.")
    ] = None,
) -> Iterator[Row]:
    cases, kept = read(file)
    systems = {"ours": run_ours(cases)}
    for name, python, system in (
        ("negspacy", negspacy, _NEGSPACY),
        ("medspacy", medspacy, _MEDSPACY),
    ):
        if python is not None:
            systems[name] = run_other(python, system, cases)
    for system, (contexts, speed) in systems.items():
        about: Row = {"question": "speed", "n": len(cases)}
        yield {"system": system, **about, "metric": "per_second", "value": round(speed)}
        for asked, (column, value) in GOLD.items():
            if asked in contexts[0]:
                gold = [row[column] == value for row in kept]
                values = scores([bool(context[asked]) for context in contexts], gold)
                yield from rows_of(system, values, digits=1, question=asked, n=sum(gold))
