"""Accuracy of a pipeline that was trained on BC5CDR train, with text only as input.

python -m benchmarks.main_job FOLDER runs the project on the files below FOLDER and records what
`bioel evaluate` measured on dev, beside the same linker without its encoder (exact names, training
strings and character 3-grams: the lexical floor).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer

from benchmarks.end_to_end import retuned
from benchmarks.record import measurement, save

CORPUS = "bc5cdr"
MODEL = Path("models") / CORPUS / "final"
DEV = Path("corpus") / CORPUS / "dev.jsonl"
_GIVEN = ("accuracy@1", "accuracy@1_nil_ignored")
_SHOWN = {"mention": ("f1",), "end_to_end": ("f1",), "gold": _GIVEN, "gold_any": _GIVEN}


def main(
    data: Path,
    seed: Annotated[int, typer.Option()] = 0,
    trained: Annotated[
        bool, typer.Option("--trained", help="The project was run before: only record it.")
    ] = False,
) -> None:
    rows: list[dict[str, Any]] = []
    if not trained:
        rows += [
            measurement("training", "rescnn", corpus=CORPUS, seed=seed, **found)
            for found in run_project(data, seed)
        ]
    metrics = json.loads((Path("metrics") / CORPUS / "dev.json").read_text("utf8"))
    rows += accuracy_rows("rescnn", metrics, seed)
    rows += accuracy_rows("lexical", evaluate_without_encoder(), seed)
    typer.echo(save("main_job", rows))


def run_project(data: Path, seed: int) -> list[dict[str, Any]]:
    """Wall time and peak memory of `project run all`."""
    start = time.perf_counter()
    overrides = ["--vars.corpus", CORPUS, "--vars.data", str(data), "--vars.seed", str(seed)]
    run = [sys.executable, "-m", "spacy", "project", "run", "all", ".", *overrides]
    subprocess.run(run, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return [
        {"metric": "seconds", "value": round(time.perf_counter() - start)},
        {"metric": "megabytes", "value": round(peak)},
    ]


def evaluate_without_encoder() -> list[dict[str, Any]]:
    """Figures of the same pipeline, its linker without vectors and tuned anew on dev."""
    with retuned(MODEL, CORPUS, {"dense": False}) as tuned:
        out = tuned.with_name("dev.json")
        protocols = [part for name in _SHOWN for part in ("--protocol", name)]
        evaluate = ["-m", "spacy_bioel", "evaluate", tuned, DEV, *protocols, "--json", out]
        subprocess.run([sys.executable, *map(str, evaluate)], check=True)
        return list(srsly.read_json(out))


def accuracy_rows(system: str, metrics: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    return [
        measurement(
            "accuracy",
            system,
            corpus=CORPUS,
            split="dev",
            protocol=row["protocol"],
            metric=row["metric"],
            value=round(row["value"], 2),
            low=round(row["low"], 2),
            high=round(row["high"], 2),
            n=row["n"],
            seed=seed,
            kb=row["kb_fingerprint"],
        )
        for row in metrics
        if row["metric"] in _SHOWN.get(row["protocol"], ()) and not row["label"]
    ]


if __name__ == "__main__":
    typer.run(main)
