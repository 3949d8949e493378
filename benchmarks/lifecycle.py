"""Speed, memory and accuracy of this version beside those of an earlier one.

python -m benchmarks.run lifecycle CORPUS --python OLD/bin/python, where OLD is an environment with
the earlier version, which has trained models/CORPUS/final. Both versions load that pipeline, by
turns; medians are compared. It is evaluated by both, on the development documents.

documents   a second, from text to links
mentions    a second, the gold mentions being given: of the second half of the documents; the first
            half, by a pipeline that was just loaded, is first_mentions: there, each part of the
            knowledge base is checked for damage when it is first used
memory      of the process at its peak, MB
accuracy    F1 of mentions and end to end, accuracy@1 of gold mentions with NIL ignored
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.record import measurement, save

_STEP = Path(__file__).with_name("lifecycle_step.py").resolve()
_METRICS = {
    "documents": "per_second",
    "first_mentions": "per_second",
    "mentions": "per_second",
    "memory": "megabytes",
}
_PROTOCOLS = {"mention": "f1", "end_to_end": "f1", "gold": "accuracy@1_nil_ignored"}
# The same figure under the name that earlier versions gave it.
_EARLIER = {"accuracy@1_nil_ignored": "accuracy@1"}


def main(
    corpus: str,
    python: Annotated[Path, typer.Option(help="Of the environment of the earlier version.")],
    old: Annotated[str, typer.Option(help="Its commit.")],
    turns: int = 5,
) -> None:
    model = (Path("models") / corpus / "final").resolve()
    dev = (Path("corpus") / corpus / "dev").resolve()
    pythons = {"old": python.absolute(), "new": Path(sys.executable)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for _ in range(turns):
        for name, executable in pythons.items():
            found[name].append(_run(executable, _STEP, model, dev.with_suffix(".spacy")))
    about: dict[str, Any] = {"corpus": corpus, "split": "dev", "old": old, "turns": turns}
    rows = []
    for question, metric in _METRICS.items():
        values = {name: median(run[question] for run in runs) for name, runs in found.items()}
        rows += [
            measurement(question, name, metric=metric, value=round(value, 1), **about)
            for name, value in values.items()
        ]
        ratio = round(values["new"] / values["old"], 3)
        rows.append(measurement(question, "new", metric="ratio", value=ratio, **about))
    for name, executable in pythons.items():
        rows += [
            measurement("accuracy", name, **row, **about)
            for row in _evaluate(executable, model, dev.with_suffix(".jsonl"))
        ]
    for row in rows:
        typer.echo(f"{row['question']:14} {row['system']:4} {row['metric']:11} {row['value']:>10}")
    typer.echo(save("lifecycle", rows))


def _run(*command: object) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:  # so that no version is found in this one
        done = subprocess.run(
            [str(part) for part in command], check=True, stdout=subprocess.PIPE, cwd=folder
        )
    return json.loads(done.stdout.splitlines()[-1])


def _evaluate(executable: Path, model: Path, gold: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "dev.json"
        protocols = [part for name in _PROTOCOLS for part in ("--protocol", name)]
        command = [executable, "-m", "spacy_bioel", "evaluate", model, gold, "--json", out]
        subprocess.run(
            [str(part) for part in [*command, *protocols]],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        found = json.loads(out.read_text("utf8"))
    rows = []
    for protocol, metric in _PROTOCOLS.items():
        figures = {
            row["metric"]: row for row in found if row["protocol"] == protocol and not row["label"]
        }
        row = figures.get(metric) or figures[_EARLIER[metric]]
        value = round(row["value"], 2)
        rows.append({"protocol": protocol, "metric": metric, "value": value, "n": row["n"]})
    return rows


if __name__ == "__main__":
    typer.run(main)
