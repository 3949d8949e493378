"""Needs of encoders: accuracy with shuffled word pieces and narrow attention.

python -m benchmarks.probing SYSTEM CORPUS MODEL runs `benchmarks.probe` with the dev documents of a
corpus of the project, keeps its rows beside those of other systems, and draws them all:
benchmarks/results/probing.json and docs/probing.svg.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import srsly
import typer

from benchmarks.probe import plot_probing
from benchmarks.record import add, command, load

PLOT = Path(__file__).parents[1] / "docs" / "probing.svg"


def main(system: str, corpus: str, model: Path, seed: Annotated[int, typer.Option()] = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        gold = Path("corpus") / corpus / "dev.jsonl"
        options = ["--kb", f"kb/{corpus}", "--corpus", corpus, "--seed", seed, "--json", out]
        probe = [sys.executable, "-m", "benchmarks.probe", model, gold, *options]
        subprocess.run(list(map(str, probe)), check=True)
        rows = list(srsly.read_json(out))
    for row in rows:
        if not row.get("quoted"):
            row |= {"system": system, "command": command()}
    typer.echo(add("probing", rows, key=("system", "corpus", "protocol", "seed")))
    PLOT.parent.mkdir(exist_ok=True)
    plot_probing(load("probing"), PLOT)


if __name__ == "__main__":
    typer.run(main)
