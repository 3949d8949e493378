"""Cost of linking as the knowledge base grows: time, memory, and mistakes of the search.

python -m benchmarks.growth KB MENTIONS draws names of a large knowledge base (`python -m spacy
project run kb_large .` makes kb/large), 10,000 at first, and lets a knowledge base grow with `kb
add` and `kb encode` to 2 million of them; the smaller one is always a part of the larger. MENTIONS
is a corpus in any format, as corpus/bc5cdr/dev.jsonl of the project, of which the strings of the
gold mentions are taken.

At each size a fresh process opens a blank pipeline with the light linker and links the same
strings: half of them names of the smallest size with one letter missing, doubled or exchanged,
half of them gold mentions. See `benchmarks.growth_step` for what it measures. Linux only. Sizes
that are done are written at once; give --sizes to make others.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.record import add, load, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.grow import add_concepts
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

# Costs that `grow` and `growth_step` measure; everything else is a percentage.
METRICS = dict.fromkeys(("add", "encode", "open", "mention"), "seconds") | dict.fromkeys(
    ("before", "resident", "own", "peak"), "megabytes"
)
SIZES = "10000,100000,1000000,2000000"
BASE = 100_000  # the time per mention of other sizes is compared to that of this one
KEY = ("question", "metric", "names")


def main(
    kb: Path,
    mentions: Path,
    sizes: Annotated[str, typer.Option(help="Numbers of names, ascending.")] = SIZES,
    queries: Annotated[int, typer.Option(help="Strings to link, half of each kind.")] = 1000,
    folder: Annotated[Path, typer.Option(help="For the knowledge base that grows.")] = Path(
        "kb/growth"
    ),
    seed: int = 0,
) -> None:
    large = KnowledgeBase.open(kb)
    wanted = [int(size) for size in sizes.split(",")]
    if wanted != sorted(wanted) or not 0 < wanted[0] <= wanted[-1] <= large.n_names:
        raise typer.BadParameter(f"{sizes}: expected ascending sizes up to {large.n_names}")
    rng = np.random.default_rng(seed)
    order = rng.permutation(large.n_names)
    edited = [edit(name, rng) for name in large.names.take(order[: min(wanted[0], queries // 2)])]
    strings = {"edited": edited, "mentions": gold_strings(mentions)[: queries // 2]}
    n, done = sum(map(len, strings.values())), 0
    for size in wanted:
        costs = grow(folder, large, order[done:size], is_new=not done)
        costs |= measure(folder, strings)
        about = {"corpus": mentions.parent.name, "split": mentions.stem, "n": n, "seed": seed}
        add("growth", rows_of(costs, about | {"names": size}), key=KEY)
        add_ratios()
        done = size
    show()


def gold_strings(path: Path) -> list[str]:
    """Different normalised strings of the gold mentions, in the order of the corpus."""
    strings = (
        normalize_name(t.text[m.start : m.end]) for t in read_texts(path) for m in t.mentions
    )
    return list(dict.fromkeys(filter(None, strings)))


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
    start = processor_seconds()
    if is_new:
        build_kb(_records(large, rows), folder)
    else:
        add_concepts(folder, _records(large, rows))
    added = processor_seconds()
    encode = [sys.executable, "-m", "spacy_bioel", "kb", "encode", str(folder), str(folder)]
    subprocess.run(encode, check=True)
    return {"add": added - start, "encode": processor_seconds() - added}


def _records(kb: KnowledgeBase, rows: NDArray[np.int64]) -> Iterator[Concept]:
    """Each of these names, as a record of each of its concepts."""
    indptr, concepts, _ = kb.concepts_of_names(rows)
    names = kb.names.take(np.repeat(rows, np.diff(indptr)))
    for name, concept in zip(names, concepts.tolist(), strict=True):
        yield Concept(kb.ids[concept], (name,), kb.types_of(concept))


def processor_seconds() -> float:
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + times.ru_utime + times.ru_stime


def measure(folder: Path, strings: dict[str, list[str]]) -> dict[str, float]:
    """Measurements of `benchmarks.growth_step`, in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "strings.json"
        file.write_text(json.dumps(strings), encoding="utf8")
        step = [sys.executable, "-m", "benchmarks.growth_step", str(folder), str(file)]
        return dict(json.loads(subprocess.check_output(step, text=True).splitlines()[-1]))


def rows_of(costs: dict[str, float], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Each cost as a row of results."""
    return [
        measurement(
            name,
            "light",
            metric=METRICS.get(name, "agreement@1"),
            value=float(f"{value:.4g}"),
            **about,
        )
        for name, value in costs.items()
    ]


def add_ratios() -> Path:
    """Add the time per mention of each size over that of BASE names, if that was measured."""
    rows = [row for row in load("growth") if row["question"] == "mention"]
    seconds = {row["names"]: row["value"] for row in rows if row["metric"] == "seconds"}
    ratios = [
        row | {"metric": "ratio", "value": round(row["value"] / seconds[BASE], 2), "base": BASE}
        for row in rows
        if row["metric"] == "seconds" and BASE in seconds
    ]
    return add("growth", ratios, key=KEY)


def show() -> None:
    """A column for each size."""
    rows = load("growth")
    sizes = sorted({row["names"] for row in rows})
    table = Table("", *(f"{size:,}" for size in sizes))
    values = {(row["question"], row["metric"], row["names"]): row["value"] for row in rows}
    for question, metric in dict.fromkeys((row["question"], row["metric"]) for row in rows):
        cells = (values.get((question, metric, size), "") for size in sizes)
        table.add_row(f"{question}, {metric}", *map(str, cells))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    typer.run(main)
