"""Time to build and to open a knowledge base of all MeSH diseases and chemicals.

python -m benchmarks.knowledge_base FOLDER, with MeSH as `training/corpora.yml` wants it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import typer

from benchmarks.record import measurement, save

_OPEN = "import time; t=time.perf_counter(); \
from spacy_bioel.kb.columns.store import KnowledgeBase as K; \
u=time.perf_counter(); kb=K.open({path!r}); print(time.perf_counter()-u, len(kb), kb.n_names)"
_IMPORT = "import spacy, time; t=time.perf_counter(); import {module}; print(time.perf_counter()-t)"


def main(data: Path) -> None:
    python = [sys.executable]
    step = [*python, "training/scripts/corpora.py"]
    subprocess.run([*step, "fetch", "bc5cdr", "--data", str(data)], check=True)
    start = time.perf_counter()
    subprocess.run([*step, "kb", "bc5cdr"], check=True)
    build = time.perf_counter() - start
    opened = subprocess.check_output([*python, "-c", _OPEN.format(path="kb/bc5cdr")], text=True)
    seconds, concepts, names = opened.split()
    imported = subprocess.check_output([*python, "-c", _IMPORT.format(module="spacy_bioel")])
    size = sum(file.stat().st_size for file in Path("kb/bc5cdr").iterdir()) / 1e6
    fields = {"corpus": "bc5cdr", "n": int(names), "concepts": int(concepts), "seed": 0}
    rows = [
        measurement("build", "kb", metric="seconds", value=round(build, 1), **fields),
        measurement("open", "kb", metric="seconds", value=round(float(seconds), 4), **fields),
        measurement("size", "kb", metric="megabytes", value=round(size, 1), **fields),
        measurement("import", "spacy_bioel", metric="seconds", value=round(float(imported), 4)),
    ]
    typer.echo(save("knowledge_base", rows).read_text())


if __name__ == "__main__":
    typer.run(main)
