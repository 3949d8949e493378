"""Result files: flat lists of measurements, and the tables of the README made from them."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spacy_bioel.scoring.evaluation import Measurement
from spacy_bioel.storage.atomic import replacing_file

RESULTS = Path(__file__).parent / "results"


def command() -> str:
    """The command line that made a result, with FOLDER and FILE for places of this machine."""
    module = Path(sys.argv[0]).stem
    return " ".join(["python", "-m", f"benchmarks.{module}", *map(_named, sys.argv[1:])])


def _named(argument: str) -> str:
    name, equals, place = argument.partition("=")
    if equals and Path(place).is_dir():
        return f"{name}=FOLDER"
    path = Path(argument)
    if path.is_dir():
        return "FOLDER"
    return f"FOLDER/{path.name}" if path.is_absolute() else argument


def machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, no GPU"
    )


def measurement(question: str, system: str, **fields: Any) -> dict[str, Any]:
    """One row: who was measured on what, with the command, the machine and the date."""
    about = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    return {"question": question, "system": system, "command": command()} | about | fields


def figures(row: Measurement) -> dict[str, Any]:
    """Fields that are recorded of a measurement of `spacy_bioel.scoring`."""
    numbers = {name: round(getattr(row, name), 2) for name in ("value", "low", "high")}
    return {"metric": row.metric, **numbers, "n": row.n}


def save(name: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Write benchmarks/results/NAME.json, by way of a temporary name."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    with replacing_file(path) as temporary:
        temporary.write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf8")
    return path


def load(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text("utf8"))


def add(name: str, rows: Iterable[dict[str, Any]], *, key: Sequence[str]) -> Path:
    """Put rows into a result file, in the place of those with the same values of `key`."""
    known = load(name) if (RESULTS / f"{name}.json").is_file() else []
    return save(name, {tuple(row.get(k) for k in key): row for row in [*known, *rows]}.values())
