"""Where the time of an abstract goes: `python -m benchmarks.run where`.

The abstracts of BC5CDR's development documents, which the project has fetched, go through the
pipeline of the package in batches of 32, one process with all cores, after a first few that fill
its caches. Functions are timed on the clock where they are called; a step that is part of another
one is taken off it. --profile FILE writes what cProfile sees, for snakeviz and the like.
"""

from __future__ import annotations

import cProfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

import spacy_bioel
from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.starter import development_texts
from spacy_bioel.kb.vectors.index import ExactIndex
from spacy_bioel.kb.words.ngrams import NgramIndex
from spacy_bioel.models import detector as networks
from spacy_bioel.pipeline.linker import candidates, decision, evidence, queries, searches
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.mentions import detector
from spacy_bioel.pipeline.mentions.detector import MentionDetector

_CORPUS, _FIRST, _BATCH = "bc5cdr", 64, 32
# What is called, and the step that it is; a step is what is left when its parts are taken off.
_STEPS: list[tuple[Any, str, str]] = [
    (Language, "make_doc", "tokens"),
    (MentionDetector, "predict", "detector: choosing mentions"),
    (detector, "match_lexicon", "detector: names and words of the lexicon"),
    (detector, "find_spans", "detector: scoring spans"),
    (networks, "token_vectors", "detector: network over tokens"),
    (Linker, "predict", "linker: mentions and decisions"),
    (candidates.CandidateGenerator, "_rank", "linker: weighing candidates"),
    (evidence, "_exact", "linker: exact names"),
    (searches.FrozenEncoder, "encode", "linker: encoder"),
    (ExactIndex, "search", "linker: nearest vectors"),
    (NgramIndex, "search", "linker: spelling"),
    (decision, "weigh_organisms", "linker: organisms"),
    (queries, "agree_in_document", "linker: one string, one concept"),
    (MentionDetector, "set_annotations", "spans of the Doc"),
    (Linker, "set_annotations", "spans of the Doc"),
]


@question("where")
def where(
    profile: Annotated[Path | None, typer.Option(help="For cProfile's figures.")] = None,
    note: NoteOption = "",
) -> Iterator[Row]:
    texts = [text.text for text in development_texts(_CORPUS)]
    nlp = spacy_bioel.load()
    list(nlp.pipe(texts[:_FIRST], batch_size=_BATCH))
    texts = texts[_FIRST:]
    with timed() as seconds:
        start = time.perf_counter()
        list(nlp.pipe(texts, batch_size=_BATCH))
        total = time.perf_counter() - start
    if profile is not None:
        with cProfile.Profile() as seen:
            list(nlp.pipe(texts, batch_size=_BATCH))
        seen.dump_stats(profile)
    seconds["the rest"] = total - seconds.total()
    about = {"corpus": _CORPUS, "split": "dev", "n": len(texts), "note": note}
    for step, value in {**seconds, "all": total}.items():
        yield from rows_of(step, {"milliseconds": 1000 * value / len(texts)}, **about)


@contextmanager
def timed() -> Iterator[Counter[str]]:
    """Time the steps while the block runs. YIELDS (Counter): Seconds by step."""
    seconds: Counter[str] = Counter()
    within: list[float] = []  # of the calls that are going on, what their parts took

    def watch(function: Callable, step: str) -> Callable:
        @wraps(function)
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            within.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                seconds[step] += took - within.pop()
                if within:
                    within[-1] += took

        return timed_function

    before = [(where, name, getattr(where, name)) for where, name, _ in _STEPS]
    seconds.update(dict.fromkeys([step for *_, step in _STEPS], 0))
    for (where, name, function), (*_, step) in zip(before, _STEPS, strict=True):
        setattr(where, name, watch(function, step))
    try:
        yield seconds
    finally:
        for where, name, function in before:
            setattr(where, name, function)
