"""Our part of benchmarks.rivals, run in a separate process: STEP FOLDER [MODEL]."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spacy
import srsly

from benchmarks.rivals_theirs import Find, Report, measure, peak_megabytes, read, report
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import load_model
from spacy_bioel.types import Concept

_BATCH = 64  # documents


def _linker(folder: Path) -> Any:
    """Make a linker with the starter's encoder and default weights."""
    config = {"kb": str(folder / "ours")}
    return spacy.blank("en").add_pipe("bioel_linker", config=config)


def build(folder: Path) -> None:
    start = time.perf_counter()
    build_kb(_concepts(folder), folder / "ours")
    linker = _linker(folder)
    linker.encode_kb(linker.kb)
    report(folder, time.perf_counter() - start, to="built.json")


def _concepts(folder: Path) -> Iterator[Concept]:
    for record in srsly.read_jsonl(folder / "concepts.jsonl"):
        yield Concept(record["concept_id"], (record["canonical_name"], *record["aliases"]))


def link(folder: Path) -> None:
    queries, documents = read(folder, "queries.json"), read(folder, "documents.json")
    found: Report = {"index": read(folder, "built.json"), "own": -peak_megabytes()}
    start = time.perf_counter()
    linker = _linker(folder)
    linker.generator.rank([(queries[0], "")])
    loaded = time.perf_counter()
    for first in range(0, len(documents), _BATCH):
        strings = {string for doc in documents[first : first + _BATCH] for string in doc}
        linker.generator.rank([(string, "") for string in sorted(strings)])
    linked = time.perf_counter()
    linker = _linker(folder)  # with an empty cache of strings
    linker.generator.rank([(queries[0], "")])
    again = time.perf_counter()
    ranked = linker.generator.rank([(query, "") for query in queries])
    found |= {
        "load": loaded - start,
        "throughput": sum(map(len, documents)) / (linked - loaded),
        "different": len(queries) / (time.perf_counter() - again),
        "memory": peak_megabytes(),
        "found": [ranked[query, ""][0].id if ranked[query, ""] else None for query in queries],
    }
    report(folder, found | {"own": found["own"] + peak_megabytes()})


def exchange(folder: Path, model: Path) -> None:
    """Save the pipeline with another knowledge base, whose concepts do not have types."""
    build_kb(_concepts(folder), folder / "ours")
    nlp = spacy.load(model)
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["label_types"] = {}
    linker.set_kb(folder / "ours")
    linker.encode_kb(linker.kb)
    nlp.to_disk(folder / "light")


def pipe(folder: Path, model: Path) -> None:
    texts = read(folder, "texts.json")
    nlp = spacy.load(model)
    nlp(texts[0])
    start, n_mentions, n_links = time.perf_counter(), 0, 0
    for doc in nlp.pipe(texts):
        spans = doc.spans["bioel"]
        n_mentions += len(spans)
        n_links += sum(bool(span._.cui) for span in spans)
    speed = len(texts) / (time.perf_counter() - start)
    counts = {"mentions": n_mentions, "links": n_links}
    report(folder, {"documents_per_second": speed, "megabytes": peak_megabytes()} | counts)


def find(folder: Path, kb: Path) -> None:
    def load() -> Find:
        nlp = load_model(str(kb))
        return lambda texts: [len(doc.spans["bioel"]) for doc in nlp.pipe(texts, batch_size=_BATCH)]

    measure(folder, load)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(Path, sys.argv[2:]))
