"""Time of linking 10,000 different mentions against the names of a knowledge base.

python -m benchmarks.linking_speed CORPUS MENTIONS takes the strings of the gold mentions of a file
in any format; CORPUS is one of the project, with a knowledge base. Also the first use of the
package's own knowledge base and encoder, and the next.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.linking import SYSTEMS, make_pipeline
from benchmarks.record import measurement, save
from spacy_bioel.corpus import read_texts
from spacy_bioel.pipeline.linker.starter import CACHE_VARIABLE
from spacy_bioel.text.normalize import normalize_name

_FIRST_USE = """
import time
start = time.perf_counter()
import spacy
imported = time.perf_counter()
nlp = spacy.blank("en")
nlp.add_pipe("bioel_linker", config={"mentions": "kb"})
nlp("A heart attack.")
print(time.perf_counter() - imported)
"""


def main(corpus: str, mentions: Path, n: Annotated[int, typer.Option()] = 10_000) -> None:
    texts = read_texts(mentions)
    strings = {normalize_name(t.text[m.start : m.end]): None for t in texts for m in t.mentions}
    queries = [(string, "") for string in strings if string][:n]
    rows: list[dict[str, Any]] = []
    for system in ("lexical", "rescnn"):
        _, linker = make_pipeline(corpus, SYSTEMS[system], encoder="starter", uses_training=True)
        linker.generator.rank(queries[:100])
        start = time.perf_counter()
        linker.generator.rank(queries)
        seconds = round(time.perf_counter() - start, 2)
        rows.append(
            measurement(
                "linking_speed",
                system,
                corpus=corpus,
                metric="seconds",
                value=seconds,
                n=len(queries),
                names=linker.kb.n_names,
            )
        )
    with tempfile.TemporaryDirectory() as cache:
        for use in ("first_use", "next_use"):
            command = [sys.executable, "-c", _FIRST_USE]
            environment = os.environ | {CACHE_VARIABLE: cache}
            found = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            )
            value = round(float(found.stdout.split()[-1]), 2)
            rows.append(measurement("starter", use, metric="seconds", value=value))
    typer.echo("\n".join(f"{row['question']} {row['system']} {row['value']} s" for row in rows))
    typer.echo(save("linking_speed", rows))


if __name__ == "__main__":
    typer.run(main)
