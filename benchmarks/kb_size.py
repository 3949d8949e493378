"""Measure time, memory and search errors of linking as the knowledge base grows.

python -m benchmarks.run kb_size KB MENTIONS draws names of a large knowledge base (`python -m spacy
project run kb_large .` makes kb/large), and extends a knowledge base with `kb add` and `kb encode`
from 10,000 to 2 million of them. MENTIONS is a corpus in any format, such as the project's
corpus/bc5cdr/dev.jsonl, whose gold mentions are linked.

At each size a new process opens a blank pipeline with the light linker and links the same strings:
half of them are gold mentions, the others are names of the smallest size with one letter missing,
doubled or swapped. Linux only. It measures:

add, encode   seconds of processor time to add the names, and to encode them
open          seconds of wall time from a blank pipeline to a linker that is ready to search
before        resident megabytes (VmRSS) before; a linker with three names has run, so all packages
              are imported and an encoder is loaded
resident      resident megabytes (VmRSS) after linking, with mapped files
own           the same without mapped files (RssAnon)
peak          peak of the resident megabytes until then (VmHWM)
mention       seconds of processor time of all threads for each string, all in one call; `ratio`:
              compared with BASE names
agreement_KIND   percentage of the strings of each kind whose nearest name in the index is as near
              as in an exact search among unrounded vectors; agreement_KIND_stored: among the
              stored vectors
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

# Units of costs; other figures are percentages.
_METRICS = dict.fromkeys(("add", "encode", "open", "mention"), "seconds") | dict.fromkeys(
    ("before", "resident", "own", "peak"), "megabytes"
)
_SIZES = (10_000, 100_000, 1_000_000, 2_000_000)
_N_STRINGS = 500  # of each kind
_FOLDER = Path("kb/kb_size")
BASE = 100_000
_NAMES_PER_BLOCK = 1 << 14  # compared with all strings at a time
_TOLERANCE = 1e-6  # of equal cosines
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
    edited = [edit(name, rng) for name in large.names.take(order[:_N_STRINGS])]
    gold = [string for text in read_texts(mentions) for string in mention_strings(text)]
    strings = {"edited": edited, "mentions": list(dict.fromkeys(gold))[:_N_STRINGS]}
    asked = {"question": "mention", "metric": "seconds", "names": BASE}
    base = next((row["value"] for row in load("kb_size") if asked.items() <= row.items()), None)
    done = 0
    for size in _SIZES:
        costs = extend(_FOLDER, large, order[done:size], is_new=not done)
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
    """Return a normalised name with one letter missing, doubled, or swapped with the next."""
    name = normalize_name(name)
    index = int(rng.integers(len(name)))
    rest = name[index + 1 :]
    edits = (rest, name[index] * 2 + rest, rest[:1] + name[index] + rest[1:])
    return normalize_name(name[:index] + edits[rng.integers(len(edits))]) or name


def extend(
    folder: Path, large: KnowledgeBase, rows: NDArray[np.int64], *, is_new: bool
) -> dict[str, float]:
    """Add these names of the large knowledge base to the one in `folder`, and encode them.

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
    """Yield a record for each of these names and each of its concepts."""
    indptr, concepts, _ = kb.concepts_of_names(rows)
    names = kb.names.take(np.repeat(rows, np.diff(indptr)))
    for name, concept in zip(names, concepts.tolist(), strict=True):
        yield Concept(kb.ids[concept], (name,), kb.types_of(concept))


def _processor_seconds() -> float:
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + times.ru_utime + times.ru_stime


def measure(kb: Path, kinds: dict[str, list[str]]) -> dict[str, float]:
    """Measure linking in this process, which has not done anything else that needs memory."""
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
    nearest = names.search(vectors, 1)[0][:, 0]
    figures = {"open": opened, "before": before, "mention": seconds}
    figures |= {name: used[field] for name, field in _MEMORY.items()}
    kind_of = np.repeat(list(kinds), [len(kind) for kind in kinds.values()])

    def encoded(rows: NDArray[np.int64]) -> Array:
        return encoder.encode([normalize_name(name) for name in generator.kb.names.take(rows)])

    for suffix, take in (("", encoded), ("_stored", names.take)):
        is_nearest = are_nearest(vectors, nearest, take, generator.kb.n_names)
        for kind in kinds:
            share = is_nearest[kind_of == kind].mean()
            figures[f"agreement_{kind}{suffix}"] = 100 * share
    return {name: float(value) for name, value in figures.items()}


def _linker(kb: Path) -> Any:
    return spacy.blank("en").add_pipe("bioel_linker", config={"kb": str(kb)})


def memory() -> dict[str, float]:
    """Return the memory fields of this process in Linux, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) / 1000 for name, number, _ in fields}


def are_nearest(
    queries: Array,
    found: NDArray[np.int64],
    take: Callable[[NDArray[np.int64]], Array],
    n: int,
    *,
    block: int = _NAMES_PER_BLOCK,
) -> NDArray[np.bool_]:
    """Return whether the row found for each query is a nearest one. Shape (n_queries,).

    queries (Array): Shape (n_queries, dim).
    found (NDArray): Row of each query, -1 for none. Shape (n_queries,).
    take (Callable): Vectors of some of the n rows, shape (n_rows, dim).
    """
    best = np.full(len(queries), -np.inf)
    found_cosines = np.full(len(queries), -np.inf)
    for start in range(0, n, block):
        cosines = queries @ take(np.arange(start, min(start + block, n))).T
        best = np.maximum(best, cosines.max(axis=1))
        here = np.flatnonzero((found >= start) & (found < start + cosines.shape[1]))
        found_cosines[here] = cosines[here, found[here] - start]
    return found_cosines >= best - _TOLERANCE


if __name__ == "__main__":  # a step of `kb_size`
    print(json.dumps(measure(Path(sys.argv[1]), json.load(sys.stdin))))
