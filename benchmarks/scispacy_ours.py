"""Our part of benchmarks.scispacy and .documents, in a process of its own: STEP FOLDER [MODEL]."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spacy

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import Concept

_BATCH = 64  # documents


def make_linker(folder: Path) -> Any:
    """A linker with the package's encoder and weights, names only."""
    config = {"kb": str(folder / "ours")}
    linker: Any = spacy.blank("en").add_pipe("bioel_linker", config=config)
    return linker


def build(folder: Path) -> None:
    start = time.perf_counter()
    build_kb(read_concepts(folder / "concepts.jsonl"), folder / "ours")
    linker = make_linker(folder)
    linker.encode_kb(linker.kb)
    (folder / "built.json").write_text(json.dumps(time.perf_counter() - start), "utf8")


def read_concepts(path: Path) -> Iterator[Concept]:
    """Concepts of a file in scispaCy's format."""
    for line in path.open(encoding="utf8"):
        record = json.loads(line)
        yield Concept(record["concept_id"], (record["canonical_name"], *record["aliases"]))


def link(folder: Path) -> None:
    queries = json.loads((folder / "queries.json").read_text("utf8"))
    documents = json.loads((folder / "documents.json").read_text("utf8"))
    before = peak_megabytes()
    start = time.perf_counter()
    linker = make_linker(folder)
    linker.generator.rank([(queries[0], "")])
    loaded = time.perf_counter()
    for first in range(0, len(documents), _BATCH):
        strings = {string for doc in documents[first : first + _BATCH] for string in doc}
        linker.generator.rank([(string, "") for string in sorted(strings)])
    linked = time.perf_counter()
    linker = make_linker(folder)  # without a cache of strings
    linker.generator.rank([(queries[0], "")])
    again = time.perf_counter()
    ranked = linker.generator.rank([(query, "") for query in queries])
    result = {
        "index": json.loads((folder / "built.json").read_text("utf8")),
        "load": loaded - start,
        "throughput": sum(map(len, documents)) / (linked - loaded),
        "different": len(queries) / (time.perf_counter() - again),
        "memory": peak_megabytes(),
        "own": peak_megabytes() - before,
        "ranked": [ranked[query, ""][0].id if ranked[query, ""] else None for query in queries],
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


def peak_megabytes() -> float:
    """Peak of this process alone: that of getrusage begins with its parent's. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def exchange(folder: Path, model: Path) -> None:
    """Save the pipeline with another knowledge base, whose concepts have no types."""
    build_kb(read_concepts(folder / "concepts.jsonl"), folder / "ours")
    nlp = spacy.load(model)
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["label_types"] = {}
    linker.set_kb(folder / "ours")
    linker.encode_kb(linker.kb)
    nlp.to_disk(folder / "light")


def pipe(folder: Path, model: Path) -> None:
    texts = json.loads((folder / "texts.json").read_text("utf8"))
    nlp = spacy.load(model)
    nlp(texts[0])
    start, n_mentions, n_links = time.perf_counter(), 0, 0
    for doc in nlp.pipe(texts):
        spans = doc.spans["bioel"]
        n_mentions += len(spans)
        n_links += sum(bool(span._.cui) for span in spans)
    result = {
        "documents_per_second": len(texts) / (time.perf_counter() - start),
        "megabytes": peak_megabytes(),
        "mentions": n_mentions,
        "links": n_links,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


STEPS: dict[str, Callable[..., None]] = {
    "build": build,
    "link": link,
    "exchange": exchange,
    "pipe": pipe,
}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*map(Path, sys.argv[2:]))
