"""Our part of benchmarks.scispacy and .documents, in a process of its own: STEP FOLDER [MODEL]."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spacy

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept


def make_linker(folder: Path) -> Any:
    """The package's encoder and weights, names only."""
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
    """From scispaCy's format."""
    for line in path.open(encoding="utf8"):
        record = json.loads(line)
        yield Concept(record["concept_id"], (record["canonical_name"], *record["aliases"]))


def link(folder: Path) -> None:
    queries = json.loads((folder / "queries.json").read_text("utf8"))
    start = time.perf_counter()
    linker = make_linker(folder)
    linker.ranker.rank([(queries[0], "")])
    loaded = time.perf_counter()
    ranked = linker.ranker.rank([(query, "") for query in queries])
    seconds = time.perf_counter() - loaded
    result = {
        "index": json.loads((folder / "built.json").read_text("utf8")),
        "load": loaded - start,
        "throughput": len(queries) / seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ranked": [ranked[query, ""][0].id if ranked[query, ""] else None for query in queries],
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


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
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "mentions": n_mentions,
        "links": n_links,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


STEPS: dict[str, Callable[..., None]] = {"build": build, "link": link, "pipe": pipe}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*map(Path, sys.argv[2:]))
