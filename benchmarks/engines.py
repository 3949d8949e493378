"""Compare the engines of quantised inference.

python -m benchmarks.run engines: the starter links the abstracts of BC5CDR's development documents,
which the project has fetched, in a process each: with NumPy and with numkong, and with other
kernels of OpenBLAS and NumPy. Speed is measured in turns, on one core, by processor time, after a
few abstracts that fill the caches. --before is a checkout of an earlier version; its cache folder
is --before-cache. A digest over all links, candidates and scores shows whether results are equal
to the bit.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.starter import development_texts

_N_WARM_UP, _TURNS = 64, 3
_PROGRAM = """
import json, resource, sys
from hashlib import blake2b
from time import process_time
if sys.argv[2] == "NumPy":
    sys.modules["numkong"] = None
import spacy_bioel
with open(sys.argv[1], encoding="utf8") as file:
    texts = json.load(file)
n_warm_up, digest = int(sys.argv[3]), blake2b(digest_size=8)
nlp = spacy_bioel.load()
list(nlp.pipe(texts[:n_warm_up]))
start = process_time()
docs = list(nlp.pipe(texts[n_warm_up:]))
seconds = process_time() - start
for doc in docs:
    for span in doc.spans["bioel"]:
        link = (span.start, span.end, span.label_, span._.cui, span._.candidates)
        digest.update(repr(link).encode())
    digest.update(repr(doc.spans["bioel"].attrs).encode())
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([digest.hexdigest(), len(docs) / seconds, memory]))
"""
# System -> engine and environment. The others are measured for equality only.
_SYSTEMS: dict[str, tuple[str, dict[str, str]]] = {"NumPy": ("NumPy", {}), "numkong": ("", {})}
_NO_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"
_OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "NumPy, OpenBLAS for Haswell, no AVX-512": (
        "NumPy",
        {
            "OPENBLAS_CORETYPE": "Haswell",
            "NPY_DISABLE_CPU_FEATURES": _NO_AVX512,
        },
    ),
    "NumPy, OpenBLAS for Nehalem": ("NumPy", {"OPENBLAS_CORETYPE": "Nehalem"}),
    "numkong, two threads": ("", {"OPENBLAS_NUM_THREADS": "2"}),
}


@question("engines")
def engines(
    before: Annotated[Path | None, typer.Option(help="Checkout of an earlier version.")] = None,
    before_cache: Annotated[Path | None, typer.Option(help="Its cache folder.")] = None,
    note: NoteOption = "",
) -> Iterator[Row]:
    systems = dict(_SYSTEMS)
    if before:
        environment = {"PYTHONPATH": str(before), "SPACY_BIOEL_CACHE": str(before_cache)}
        systems["before"] = ("NumPy", environment)
    runs: dict[str, list[Any]] = {name: [] for name in [*systems, *_OTHERS]}
    texts = [text.text for text in development_texts("bc5cdr")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(texts), encoding="utf8")
        for _ in range(_TURNS):
            for name, system in systems.items():
                runs[name].append(_run(path, *system))
        for name, system in _OTHERS.items():
            runs[name].append(_run(path, *system))
    for name, results in runs.items():
        digests, speeds, megabytes = zip(*results, strict=True)
        values = {"links equal to those with NumPy": float({*digests} == {runs["NumPy"][0][0]})}
        if name in systems:
            values |= {"documents per second": median(speeds), "MB": median(megabytes)}
        n = len(texts) - _N_WARM_UP
        yield from rows_of(name, values, digits=1, corpus="bc5cdr", split="dev", n=n, note=note)


def _run(texts: Path, engine: str, environment: dict[str, str]) -> Any:
    arguments = [str(texts), engine, str(_N_WARM_UP)]
    return json.loads(_python(_PROGRAM, arguments, environment)[-1])


def _python(program: str, arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Run a program in a new process, on one core, and return the lines that it prints."""
    result = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", program, *arguments],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()
