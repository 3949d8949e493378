"""Our part of benchmarks.finding, in a process of its own: FOLDER KB."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.finding_theirs import Find, measure
from spacy_bioel.pipeline.loading import load_model

_BATCH = 64  # documents


def main(folder: Path, kb: str) -> None:
    def load() -> Find:
        nlp = load_model(kb)
        return lambda texts: [len(doc.spans["bioel"]) for doc in nlp.pipe(texts, batch_size=_BATCH)]

    measure(folder, load)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
