"""Speed and memory of the pipeline of the package, from a fresh cache.

python -m benchmarks.starter_speed links the abstracts of BC5CDR's development documents, which the
project has fetched, in processes of their own: the first link with an empty cache and with one that
is there, without and with the imports of spaCy and the package; and all abstracts, in one process
and in two. Run it where PyTorch is not installed: spaCy imports it where it is. --before measures
the first link of another commit beside them, in an environment of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.record import measurement, save
from benchmarks.starter import development_texts

# Its output: seconds with the imports and without them, and megabytes.
_FIRST_LINK = """
import json, resource, sys, time
start = time.perf_counter()
import spacy, spacy_bioel
imported = time.perf_counter()
spacy_bioel.load()(sys.stdin.read())
end = time.perf_counter()
megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([round(end - start, 2), round(end - imported, 2), round(megabytes)]))
"""
_CORPUS = "bc5cdr"


def main(
    step: Annotated[str, typer.Argument(hidden=True)] = "",
    before: Annotated[
        Path | None, typer.Option(help="Python where an earlier commit is installed.")
    ] = None,
    note: Annotated[str, typer.Option(help="What the reader must know, e.g. a busy machine.")] = "",
) -> None:
    if step:
        typer.echo(json.dumps(_abstracts(int(step))))
        return
    texts = [text.text for text in development_texts(_CORPUS)]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        python = Path(sys.executable)
        empty = _first_link(python, cache, texts[0])
        warm = min(_first_link(python, cache, texts[0]) for _ in range(3))
        measured = {
            "first link, empty cache": {"seconds": empty[1], "megabytes": empty[2]},
            "first link": {"seconds": warm[1], "megabytes": warm[2]},
            "first link, imports included": {"seconds": warm[0], "megabytes": warm[2]},
            "abstracts, one process": _run("1", cache, texts),
            "abstracts, two processes": _run("2", cache, texts),
        }
        if before is not None:
            earlier = min(_first_link(before, cache, texts[0]) for _ in range(4))
            measured["first link, imports included, before"] = {
                "seconds": earlier[0],
                "megabytes": earlier[2],
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


def _first_link(python: Path, cache: str, text: str) -> list[float]:
    """Seconds with and without imports, and megabytes, of a process of its own."""
    done = subprocess.run(
        [str(python), "-P", "-c", _FIRST_LINK],
        env=os.environ | {"SPACY_BIOEL_CACHE": cache},
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[float] = json.loads(done.stdout)
    return found


def _abstracts(n_process: int) -> dict[str, float]:
    import spacy_bioel
    from spacy_bioel.distributed.rows import link_texts

    texts = json.load(sys.stdin)
    nlp = spacy_bioel.load()
    nlp(texts[0])
    documents: Any = [(text, None) for text in texts * n_process]
    start = time.perf_counter()
    n = sum(1 for _ in link_texts(nlp, documents, n_process=n_process))
    seconds = time.perf_counter() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"per_second": round(n / seconds, 2), "megabytes": round(megabytes)}


if __name__ == "__main__":
    typer.run(main)
