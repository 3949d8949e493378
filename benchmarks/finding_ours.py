"""Our part of benchmarks.finding, in a process of its own: FOLDER KB."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.finding_theirs import peak_megabytes
from spacy_bioel.pipeline.loading import load_model

_BATCH = 64  # documents


def main(folder: Path, kb: str) -> None:
    texts = json.loads((folder / "texts.json").read_text("utf8"))
    start = time.perf_counter()
    nlp = load_model(kb)
    nlp(texts[0])
    loaded = time.perf_counter()
    found = sum(len(doc.spans["bioel"]) for doc in nlp.pipe(texts, batch_size=_BATCH))
    seconds = time.perf_counter() - loaded
    result = {
        "load": loaded - start,
        "documents_per_second": len(texts) / seconds,
        "memory": peak_megabytes(),
        "found": found,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
