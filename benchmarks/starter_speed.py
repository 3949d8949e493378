"""Speed and memory of the pipeline of the package, from a fresh cache.

python -m benchmarks.starter_speed links the abstracts of BC5CDR's development documents, which the
project has fetched, in processes of their own: the first link with an empty cache and with one that
is there, besides the import of spaCy and the package; and all abstracts, in one process and in two.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Annotated, Any

import typer

from benchmarks.record import measurement, save
from benchmarks.starter import development_texts

_STEP = "step"
_CORPUS = "bc5cdr"


def main(
    step: Annotated[str, typer.Argument(hidden=True)] = "",
    note: Annotated[str, typer.Option(help="What the reader must know, e.g. a busy machine.")] = "",
) -> None:
    if step:
        typer.echo(json.dumps(_first_link() if step == _STEP else _abstracts(int(step))))
        return
    texts = [text.text for text in development_texts(_CORPUS)]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        measured = {
            "first link, empty cache": _run(_STEP, cache, texts),
            "first link": _run(_STEP, cache, texts),
            "abstracts, one process": _run("1", cache, texts),
            "abstracts, two processes": _run("2", cache, texts),
        }
    for system, values in measured.items():
        for metric, value in values.items():
            about = {"corpus": _CORPUS, "split": "dev", "n": len(texts), "note": note}
            rows.append(measurement("starter_speed", system, metric=metric, value=value, **about))
            typer.echo(f"{system:26} {metric:10} {value}")
    typer.echo(save("starter_speed", rows))


def _run(step: str, cache: str, texts: list[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starter_speed", step],
        env=os.environ | {"SPACY_BIOEL_CACHE": cache},
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _first_link() -> dict[str, float]:
    import spacy  # noqa: F401

    import spacy_bioel

    text = json.load(sys.stdin)[0]
    start = time.perf_counter()
    spacy_bioel.load()(text)
    return _with_memory({"seconds": time.perf_counter() - start})


def _abstracts(n_process: int) -> dict[str, float]:
    import spacy_bioel
    from spacy_bioel.distributed.rows import link_texts

    texts = json.load(sys.stdin)
    nlp = spacy_bioel.load()
    nlp(texts[0])
    documents: Any = [(text, None) for text in texts * n_process]
    start = time.perf_counter()
    n = sum(1 for _ in link_texts(nlp, documents, n_process=n_process))
    return _with_memory({"per_second": n / (time.perf_counter() - start)})


def _with_memory(found: dict[str, float]) -> dict[str, float]:
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {name: round(value, 2) for name, value in found.items()} | {
        "megabytes": round(megabytes)
    }


if __name__ == "__main__":
    typer.run(main)
