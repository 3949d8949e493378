"""One size of `benchmarks.growth`, in a process of its own, so that its memory is its own.

python -m benchmarks.growth_step KB STRINGS.json prints one line of JSON:

open       seconds on the clock from a blank pipeline to a linker that is ready to search
before     megabytes that were resident (VmRSS) before; a linker with three names had worked, so
           that all packages were imported, and an encoder was in memory
resident   megabytes that are resident after linking (VmRSS), mapped files included
own        the part of them that is no mapped file (RssAnon)
peak       the most megabytes that were ever resident until then (VmHWM)
mention    seconds of processor time, of all threads, for each string; all in one call
agreement_KIND
           of each kind of string, the percentage whose nearest name, by the linker's index, is as
           near as that of an exact search among the vectors as the encoder makes them, unrounded
agreement_KIND_stored
           the same, among the vectors that are stored: misses of the index, rounding aside
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spacy
import typer
from numpy.typing import NDArray

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

_BLOCK = 1 << 14  # names that are compared to all strings at a time
_SAME = 1e-6  # cosines nearer than this are of names that are equally near
_WARM_UP = ("fever", "aspirin", "heart attack")
_MEMORY = {"resident": "VmRSS", "own": "RssAnon", "peak": "VmHWM"}

Array = NDArray[np.float32]
Blocks = Iterator[tuple[int, Array]]


def main(kb: Path, strings: Path) -> None:
    kinds: dict[str, list[str]] = json.loads(strings.read_text("utf8"))
    queries = [string for kind in kinds.values() for string in kind]
    with tempfile.TemporaryDirectory() as folder:
        build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(_WARM_UP)], folder)
        open_linker(Path(folder)).generator.rank([(name, "") for name in _WARM_UP])
    before = memory()["VmRSS"]
    start = time.perf_counter()
    generator = open_linker(kb).generator
    names = generator.names
    opened = time.perf_counter() - start
    start = time.process_time()
    generator.rank([(string, "") for string in dict.fromkeys(queries)])
    seconds = (time.process_time() - start) / len(set(queries))
    used = memory()
    vectors = generator.encoder.encode(queries)
    found = names.search(vectors, 1)[0][:, 0]
    figures = {"open": opened, "before": before, "mention": seconds}
    figures |= {name: used[field] for name, field in _MEMORY.items()}
    for suffix, blocks in (("", encoded(generator)), ("_stored", stored(generator))):
        is_nearest = are_nearest(vectors, found, blocks)
        kind_of = np.repeat(list(kinds), [len(kind) for kind in kinds.values()])
        for kind in kinds:
            share = is_nearest[kind_of == kind].mean()
            figures[f"agreement_{kind}{suffix}"] = 100 * share
    typer.echo(json.dumps({name: float(value) for name, value in figures.items()}))


def open_linker(kb: Path) -> Any:
    return spacy.blank("en").add_pipe("bioel_linker", config={"kb": str(kb)})


def memory() -> dict[str, float]:
    """Megabytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) / 1000 for name, number, _ in fields}


def encoded(generator: Any) -> Blocks:
    """First row and vectors of blocks of all names, encoded now."""
    for start in range(0, generator.kb.n_names, _BLOCK):
        rows = range(start, min(start + _BLOCK, generator.kb.n_names))
        yield (
            start,
            generator.encoder.encode(
                [normalize_name(name) for name in generator.kb.names.take(rows)]
            ),
        )


def stored(generator: Any) -> Blocks:
    """The same, of the vectors of the knowledge base."""
    for start in range(0, generator.kb.n_names, _BLOCK):
        yield (
            start,
            generator.names.take(np.arange(start, min(start + _BLOCK, generator.kb.n_names))),
        )


def are_nearest(queries: Array, found: NDArray[np.int64], blocks: Blocks) -> NDArray[np.bool_]:
    """Whether no row is nearer to a query than the one that was found.

    queries (Array): Shape (n, dim).
    found (NDArray): Row of each query, -1 for none. Shape (n,).
    blocks (Blocks): First row of each block, and its vectors, shape (n_block, dim).
    RETURNS (NDArray): Shape (n,).
    """
    best = np.full(len(queries), -np.inf)
    own = np.full(len(queries), -np.inf)
    for start, block in blocks:
        cosines = queries @ block.T
        best = np.maximum(best, cosines.max(axis=1))
        here = np.flatnonzero((found >= start) & (found < start + len(block)))
        own[here] = cosines[here, found[here] - start]
    return own >= best - _SAME


if __name__ == "__main__":
    typer.run(main)
