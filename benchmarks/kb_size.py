"""Cost of linking as the knowledge base grows: time, memory, and mistakes of the search.

python -m benchmarks.run kb_size KB MENTIONS draws names of a large knowledge base (`python -m spacy
project run kb_large .` makes kb/large), 10,000 at first, and lets a knowledge base grow with `kb
add` and `kb encode` to 2 million of them; the smaller one is always a part of the larger. MENTIONS
is a corpus in any format, as corpus/bc5cdr/dev.jsonl of the project, of which the strings of the
gold mentions are taken.

At each size a fresh process opens a blank pipeline with the light linker and links the same
strings: half of them names of the smallest size with one letter missing, doubled or exchanged,
half of them gold mentions. Linux only. It measures:

add, encode   seconds of processor time to put the names in, and to encode them
open          seconds on the clock from a blank pipeline to a linker that is ready to search
before        megabytes that were resident (VmRSS) before; a linker with three names had worked, so
              that all packages were imported, and an encoder was in memory
resident      megabytes that are resident after linking (VmRSS), mapped files included
own           the part of them that is no mapped file (RssAnon)
peak          the most megabytes that were ever resident until then (VmHWM)
mention       seconds of processor time, of all threads, for each string; all in one call; `ratio`:
              over the time among BASE names
agreement_KIND   of each kind of string, the percentage whose nearest name, by the index, is as
              near as that of an exact search among the vectors as the encoder makes them,
              unrounded; agreement_KIND_stored: among the vectors that are stored
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spacy
from numpy.typing import NDArray

from benchmarks.record import Row, SeedOption, load, question
from benchmarks.texts import mention_strings, python
from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

# Costs; everything else is a percentage.
_METRICS = dict.fromkeys(("add", "encode", "open", "mention"), "seconds") | dict.fromkeys(
    ("before", "resident", "own", "peak"), "megabytes"
)
_SIZES = (10_000, 100_000, 1_000_000, 2_000_000)
_STRINGS = 500  # of each kind
_FOLDER = Path("kb/kb_size")  # of the knowledge base that grows
BASE = 100_000
_BLOCK = 1 << 14  # names that are compared to all strings at a time
_SAME = 1e-6  # cosines nearer than this are of names that are equally near
_WARM_UP = ("fever", "aspirin", "heart attack")
_MEMORY = {"resident": "VmRSS", "own": "RssAnon", "peak": "VmHWM"}
Array = NDArray[np.float32]


@question("kb_size", key=("question", "metric", "names"))
def kb_size(
    kb: Path,
    mentions: Path,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    large = KnowledgeBase.open(kb)
    rng = np.random.default_rng(seed)
    order = rng.permutation(large.n_names)
    edited = [edit(name, rng) for name in large.names.take(order[:_STRINGS])]
    gold = [string for text in read_texts(mentions) for string in mention_strings(text)]
    strings = {"edited": edited, "mentions": list(dict.fromkeys(gold))[:_STRINGS]}
    asked = {"question": "mention", "metric": "seconds", "names": BASE}
    base = next((row["value"] for row in load("kb_size") if asked.items() <= row.items()), None)
    done = 0
    for size in _SIZES:
        costs = grow(_FOLDER, large, order[done:size], is_new=not done)
        step = [sys.executable, "-m", "benchmarks.kb_size", str(_FOLDER)]
        found = subprocess.run(step, input=json.dumps(strings), stdout=-1, text=True, check=True)
        costs |= json.loads(found.stdout.splitlines()[-1])
        about = {"system": "light", "corpus": mentions.parent.name, "split": mentions.stem}
        about |= {"n": sum(map(len, strings.values())), "seed": seed, "names": size}
        for name, value in costs.items():
            metric = _METRICS.get(name, "agreement@1")
            yield {"question": name, **about, "metric": metric, "value": float(f"{value:.4g}")}
        base = costs["mention"] if size == BASE else base
        if base:
            ratio = {"metric": "ratio", "value": round(costs["mention"] / base, 2), "base": BASE}
            yield {"question": "mention", **about, **ratio}
        done = size


def edit(name: str, rng: np.random.Generator) -> str:
    """A normalised name with one letter missing, doubled, or exchanged with the next, if any."""
    name = normalize_name(name)
    at = int(rng.integers(len(name)))
    rest = name[at + 1 :]
    edits = (rest, name[at] * 2 + rest, rest[:1] + name[at] + rest[1:])
    return normalize_name(name[:at] + edits[rng.integers(len(edits))]) or name


def grow(
    folder: Path, large: KnowledgeBase, rows: NDArray[np.int64], *, is_new: bool
) -> dict[str, float]:
    """Put these names of the large knowledge base into the one that grows, and encode them.

    RETURNS (dict): Seconds of processor time, of all threads and processes.
    """
    start = _processor_seconds()
    if is_new:
        build_kb(_records(large, rows), folder)
    else:
        add_concepts(folder, _records(large, rows))
    added = _processor_seconds()
    python("-m", "spacy_bioel", "kb", "encode", folder, folder)
    return {"add": added - start, "encode": _processor_seconds() - added}


def _records(kb: KnowledgeBase, rows: NDArray[np.int64]) -> Iterator[Concept]:
    """Each of these names, as a record of each of its concepts."""
    indptr, concepts, _ = kb.concepts_of_names(rows)
    names = kb.names.take(np.repeat(rows, np.diff(indptr)))
    for name, concept in zip(names, concepts.tolist(), strict=True):
        yield Concept(kb.ids[concept], (name,), kb.types_of(concept))


def _processor_seconds() -> float:
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + times.ru_utime + times.ru_stime


def measure(kb: Path, kinds: dict[str, list[str]]) -> dict[str, float]:
    """Measure linking in this process, so that its memory is its own."""
    queries = [string for kind in kinds.values() for string in kind]
    with tempfile.TemporaryDirectory() as empty:
        build_kb([Concept(f"X:{i}", (name,)) for i, name in enumerate(_WARM_UP)], empty)
        _linker(Path(empty)).generator.rank([(name, "") for name in _WARM_UP])
    before = memory()["VmRSS"]
    start = time.perf_counter()
    generator = _linker(kb).generator
    names, encoder = generator.names, generator.encoder
    opened = time.perf_counter() - start
    start = time.process_time()
    generator.rank([(string, "") for string in dict.fromkeys(queries)])
    seconds = (time.process_time() - start) / len(set(queries))
    used = memory()
    vectors = encoder.encode(queries)
    found = names.search(vectors, 1)[0][:, 0]
    figures = {"open": opened, "before": before, "mention": seconds}
    figures |= {name: used[field] for name, field in _MEMORY.items()}
    kind_of = np.repeat(list(kinds), [len(kind) for kind in kinds.values()])

    def encoded(rows: NDArray[np.int64]) -> Array:
        return encoder.encode([normalize_name(name) for name in generator.kb.names.take(rows)])

    for suffix, take in (("", encoded), ("_stored", names.take)):
        is_nearest = are_nearest(vectors, found, take, generator.kb.n_names)
        for kind in kinds:
            share = is_nearest[kind_of == kind].mean()
            figures[f"agreement_{kind}{suffix}"] = 100 * share
    return {name: float(value) for name, value in figures.items()}


def _linker(kb: Path) -> Any:
    return spacy.blank("en").add_pipe("bioel_linker", config={"kb": str(kb)})


def memory() -> dict[str, float]:
    """Return megabytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) / 1000 for name, number, _ in fields}


def are_nearest(
    queries: Array,
    found: NDArray[np.int64],
    take: Callable[[NDArray[np.int64]], Array],
    n: int,
    *,
    block: int = _BLOCK,
) -> NDArray[np.bool_]:
    """Return whether no row is nearer to a query than the one that was found. Shape (n_queries,).

    queries (Array): Shape (n_queries, dim).
    found (NDArray): Row of each query, -1 for none. Shape (n_queries,).
    take (Callable): Vectors of some of the n rows, shape (n_rows, dim).
    """
    best = np.full(len(queries), -np.inf)
    own = np.full(len(queries), -np.inf)
    for start in range(0, n, block):
        cosines = queries @ take(np.arange(start, min(start + block, n))).T
        best = np.maximum(best, cosines.max(axis=1))
        here = np.flatnonzero((found >= start) & (found < start + cosines.shape[1]))
        own[here] = cosines[here, found[here] - start]
    return own >= best - _SAME


if __name__ == "__main__":  # a step of `kb_size`
    print(json.dumps(measure(Path(sys.argv[1]), json.load(sys.stdin))))
