"""Measure the time of each step of linking: `python -m benchmarks.run where`.

`python -m benchmarks.run imports` measures the imports of a first link, by package.

The starter links the abstracts of BC5CDR's development documents, which the project has fetched, in
batches, in one process with all cores, after a few that fill its caches. Steps are timed by wall
time; the time of a step within another one is subtracted from the outer one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pkgutil import resolve_name
from time import perf_counter
from typing import Any

import spacy_bioel
from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.starter import development_texts

_N_WARM_UP, _BATCH_SIZE = 64, 32
# Function, by the module in which its caller looks it up -> name of the step.
STEPS = {
    "spacy.language.Language.make_doc": "tokens",
    "spacy_bioel.mentions.pipe.MentionDetector.predict": "detector: selection of mentions",
    "spacy_bioel.mentions.pipe.match_gazetteer": "detector: gazetteer",
    "spacy_bioel.mentions.pipe.find_spans": "detector: span scores",
    "spacy_bioel.mentions.model.token_vectors": "detector: network over tokens",
    "spacy_bioel.linking.pipe.Linker.predict": "linker: mentions and decisions",
    "spacy_bioel.linking.candidates.CandidateGenerator._rank": "linker: fusion of evidence",
    "spacy_bioel.linking.evidence._from_exact_names": "linker: exact names",
    "spacy_bioel.linking.searches.FrozenEncoder.encode": "linker: name encoder",
    "spacy_bioel.kb.vectors.ExactIndex.search": "linker: dense search",
    "spacy_bioel.kb.spelling.NgramIndex.search": "linker: n-gram search",
    "spacy_bioel.entities.genes.Genes.rescore": "linker: species assignment",
    "spacy_bioel.dictionary.unambiguous.UnambiguousNames.propose": "linker: unambiguous names",
    "spacy_bioel.linking.link.agree_in_documents": "linker: agreement within the document",
    "spacy_bioel.mentions.pipe.MentionDetector.set_annotations": "spans of the Doc",
    "spacy_bioel.linking.pipe.Linker.set_annotations": "spans of the Doc",
}


@question("where")
def where(note: NoteOption = "") -> Iterator[Row]:
    texts = [text.text for text in development_texts("bc5cdr")]
    nlp = spacy_bioel.load()
    list(nlp.pipe(texts[:_N_WARM_UP], batch_size=_BATCH_SIZE))
    seconds = Counter(dict.fromkeys(STEPS.values(), 0.0))
    _time_steps(seconds)
    start = perf_counter()
    list(nlp.pipe(texts[_N_WARM_UP:], batch_size=_BATCH_SIZE))
    total = perf_counter() - start
    seconds["the rest"] = total - seconds.total()
    seconds["all"] = total
    n = len(texts) - _N_WARM_UP
    for step, value in seconds.items():
        about = {"corpus": "bc5cdr", "split": "dev", "n": n, "note": note}
        yield from rows_of(step, {"milliseconds": 1000 * value / n}, **about)


def _time_steps(seconds: Counter[str]) -> None:
    """Time all further calls of the steps in this process."""
    inner_seconds: list[float] = []  # of each call in progress, the time of steps within it

    def timed(function: Callable, step: str) -> Callable:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            inner_seconds.append(0.0)
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = perf_counter() - start
                seconds[step] += elapsed - inner_seconds.pop()
                if inner_seconds:
                    inner_seconds[-1] += elapsed

        return run

    for path, step in STEPS.items():
        owner, _, name = path.rpartition(".")
        setattr(resolve_name(owner), name, timed(resolve_name(path), step))


_FIRST_LINK = "import spacy_bioel; spacy_bioel.load()('aspirin')"
_IMPORT = re.compile(r"^import time: +(\d+) \| +\d+ \| +([^. \n]+)", re.MULTILINE)
_N_PACKAGES_SHOWN = 8


@question("imports", key=("system", "package"))
def imports(system: str = "light") -> Iterator[Row]:
    command = [sys.executable, "-X", "importtime", "-c", _FIRST_LINK]
    run = partial(subprocess.run, command, stderr=subprocess.PIPE, text=True, check=True)
    reports = [run().stderr for _ in range(2)]
    seconds = Counter[str]()
    for microseconds, package in _IMPORT.findall(reports[-1]):  # the first run warms the caches
        seconds[package] += int(microseconds) / 1000
    shown = dict(seconds.most_common(_N_PACKAGES_SHOWN))
    shown |= {"others": seconds.total() - sum(shown.values()), "all": seconds.total()}
    for package, value in shown.items():
        yield from rows_of(system, {"milliseconds": value}, digits=0, package=package)
