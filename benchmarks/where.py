"""Where the time of an abstract goes: `python -m benchmarks.run where`.

`python -m benchmarks.run imports` does the same for the imports of a first link, by package.

The abstracts of BC5CDR's development documents, which the project has fetched, go through the
pipeline of the package in batches, one process with all cores, after a first few that fill its
caches. Functions are timed on the clock where they are called; a step that is part of another one
is taken off it.
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

_FIRST, _BATCH = 64, 32
# What is called, where its caller looks for it, and the step that it is.
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
    "spacy_bioel.dictionary.unambiguous.UnambiguousNames.add_to": "linker: unambiguous names",
    "spacy_bioel.linking.decide.agree_in_document": "linker: agreement within the document",
    "spacy_bioel.mentions.pipe.MentionDetector.set_annotations": "spans of the Doc",
    "spacy_bioel.linking.pipe.Linker.set_annotations": "spans of the Doc",
}


@question("where")
def where(note: NoteOption = "") -> Iterator[Row]:
    texts = [text.text for text in development_texts("bc5cdr")]
    nlp = spacy_bioel.load()
    list(nlp.pipe(texts[:_FIRST], batch_size=_BATCH))
    seconds = Counter(dict.fromkeys(STEPS.values(), 0.0))
    _time_steps(seconds)
    start = perf_counter()
    list(nlp.pipe(texts[_FIRST:], batch_size=_BATCH))
    total = perf_counter() - start
    seconds["the rest"] = total - seconds.total()
    seconds["all"] = total
    n = len(texts) - _FIRST
    for step, value in seconds.items():
        about = {"corpus": "bc5cdr", "split": "dev", "n": n, "note": note}
        yield from rows_of(step, {"milliseconds": 1000 * value / n}, **about)


def _time_steps(seconds: Counter[str]) -> None:
    """Add the time of each call of a step from now on, in this process."""
    within: list[float] = []  # of the calls that are going on, what their parts took

    def timed(function: Callable, step: str) -> Callable:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            within.append(0.0)
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = perf_counter() - start
                seconds[step] += took - within.pop()
                if within:
                    within[-1] += took

        return run

    for path, step in STEPS.items():
        owner, _, name = path.rpartition(".")
        setattr(resolve_name(owner), name, timed(resolve_name(path), step))


_FIRST_LINK = "import spacy_bioel; spacy_bioel.load()('aspirin')"
_IMPORT = re.compile(r"^import time: +(\d+) \| +\d+ \| +([^. \n]+)", re.MULTILINE)
_SHOWN = 8


@question("imports", key=("system", "package"))
def imports(system: str = "light") -> Iterator[Row]:
    command = [sys.executable, "-X", "importtime", "-c", _FIRST_LINK]
    run = partial(subprocess.run, command, stderr=subprocess.PIPE, text=True, check=True)
    said = [run().stderr for _ in range(2)]
    seconds = Counter[str]()
    for microseconds, package in _IMPORT.findall(said[-1]):  # the first has warmed the caches
        seconds[package] += int(microseconds) / 1000
    shown = dict(seconds.most_common(_SHOWN))
    shown |= {"others": seconds.total() - sum(shown.values()), "all": seconds.total()}
    for package, value in shown.items():
        yield from rows_of(system, {"milliseconds": value}, digits=0, package=package)
