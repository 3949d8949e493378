"""Run benchmarks and record their measurements in result files.

A benchmark is a function decorated with `question` that yields rows: dicts with at least `system`,
`metric` and `value`. `python -m benchmarks.run NAME` runs it, prints the rows and records them.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from spacy_bioel.files import replacing_file
from spacy_bioel.plugins.evaluation.evaluate import Figure

Row = dict[str, Any]
Asked = ParamSpec("Asked")
RESULTS = Path(__file__).parent / "results"
NoteOption = Annotated[
    str, typer.Option(help="A remark for readers, e.g. that the machine was busy.")
]
SeedOption = Annotated[int, typer.Option(help="Random seed.")]
_ABOUT = ("command", "machine", "date", "question", "system", "metric", "value")


def question(
    file: str, *, key: Sequence[str] = ()
) -> Callable[[Callable[Asked, Iterable[Row]]], Callable[Asked, None]]:
    """Record the rows that a function yields in benchmarks/results/FILE.json.

    key (Sequence[str]): Each row replaces one with the same values in these fields as soon as it
        is measured. Without a key, the rows replace the whole file.
    """

    def decorate(ask: Callable[Asked, Iterable[Row]]) -> Callable[Asked, None]:
        @wraps(ask)
        def run(*args: Asked.args, **kwargs: Asked.kwargs) -> None:
            rows: list[Row] = []
            for row in ask(*args, **kwargs):
                rows.append({"question": file} | about() | row)
                fields = [f"{k} {v}" for k, v in row.items() if k not in _ABOUT and v != ""]
                shown = [rows[-1][name] for name in ("question", "system", "metric")]
                typer.echo(f"{', '.join([*shown, *fields])}: {row['value']:,}")
                if key:
                    add(file, rows[-1:], key=key)
            if not key:
                save(file, rows)

        return run

    return decorate


def rows_of(
    system: str, values: Mapping[str, float], *, digits: int = 2, **fields: Any
) -> Iterator[Row]:
    """Yield a row for each metric, each with the same other fields."""
    for metric, value in values.items():
        yield {"system": system, **fields, "metric": metric, "value": round(value, digits)}


def about() -> Row:
    """Return command, machine and date of a row; paths of this machine become FOLDER."""
    name, *arguments = sys.argv[1:] or [""]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {
        "command": " ".join(["python -m benchmarks.run", name, *map(_named, arguments)]),
        "machine": f"{machine}, no GPU",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _named(argument: str) -> str:
    name, equals, place = argument.partition("=")
    if equals and Path(place).is_dir():
        return f"{name}=FOLDER"
    path = Path(argument)
    if path.is_dir():
        return "FOLDER"
    return f"FOLDER/{path.name}" if path.is_absolute() else argument


def figures(row: Figure) -> Row:
    """Return the fields of a measurement that are recorded."""
    numbers = {name: round(getattr(row, name), 2) for name in ("value", "low", "high")}
    return {"metric": row.metric, **numbers, "n": row.n}


def load(name: str) -> list[Row]:
    """Return the rows of a result file; [] if the file does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text("utf8")) if path.is_file() else []


def save(name: str, rows: Iterable[Row]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with replacing_file(RESULTS / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf8")


def add(name: str, rows: Iterable[Row], *, key: Sequence[str]) -> None:
    """Add rows to a result file; they replace rows with the same values of `key`."""
    save(name, {tuple(row.get(k) for k in key): row for row in [*load(name), *rows]}.values())
