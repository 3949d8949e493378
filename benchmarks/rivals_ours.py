"""Our part of benchmarks.rivals, run in a separate process: STEP FOLDER [MODEL]."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spacy
import srsly

from benchmarks.rivals_theirs import peak_megabytes, read, report
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept


def _concepts(folder: Path) -> Iterator[Concept]:
    for record in srsly.read_jsonl(folder / "concepts.jsonl"):
        yield Concept(record["concept_id"], (record["canonical_name"], *record["aliases"]))


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


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(Path, sys.argv[2:]))
