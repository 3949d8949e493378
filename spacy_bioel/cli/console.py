"""What the commands share: progress and messages on stderr, results for machines in files."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spacy_bioel.io.open import replacing

Item = TypeVar("Item")
_WIDTH_OF_FILES = 160
# Of a write to a file that is open already: these errors carry no name.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the result as JSON; - for stdout."),
]
PrefixOption = Annotated[
    str, typer.Option(help="Vocabulary of ids that name none, e.g. MESH: D003920 is MESH:D003920.")
]


def show_error(message: str) -> None:
    """One red line on stderr, whatever line breaks the message has."""
    _stderr().print(
        f"error: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True
    )


def show_note(message: str) -> None:
    """A line for people, on stderr, so that stdout stays free for results."""
    _stderr().print(message, markup=False, highlight=False, soft_wrap=True)


def count_of(n: int, noun: str) -> str:
    """A number with its noun: "1 document", "2,000 documents"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def show_table(table: Table) -> None:
    """A table on stdout."""
    # A file or a pipe has no width; the 80 columns that rich assumes would cut cells.
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES).print(table)


def track(items: Iterable[Item], description: str, *, total: int | None = None) -> Iterator[Item]:
    """Yield the items behind a progress bar."""
    with progress_bar(description, total=total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def progress_bar(description: str, *, total: int | None = None) -> Iterator[Any]:
    """A progress bar on stderr; silent when stderr is no terminal.

    YIELDS (Callable[[int], None]): Say how many items more are done.
    """
    console = _stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(description, total=total)
        yield lambda n: progress.advance(task, n)


def write_json(path: Path, content: Any) -> None:
    """Write JSON to a file, whole or not at all, or to stdout for "-"."""
    with writing(path) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Write a text file that appears under its name when all went well; "-" is stdout."""
    if str(path) == "-":
        with naming(Path("stdout")), _flushed(sys.stdout) as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), replacing(path) as file:
        yield file


@contextmanager
def _flushed(file: TextIO) -> Iterator[TextIO]:
    """Results are UTF-8, whatever the terminal is, and fail here rather than when Python ends."""
    if isinstance(file, TextIOWrapper):
        file.reconfigure(encoding="utf8")
    yield file
    file.flush()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError of writing `path` this name: a full disk names no file, other errors the
    temporary one beside it.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in NO_ROOM:
            error.filename = str(path)
        elif _is_temporary(error.filename, path):
            error.filename = str(path)
        raise


def _is_temporary(name: object, path: Path) -> bool:
    return isinstance(name, str) and Path(name).name.startswith(f".{path.resolve().name}.")


def _stderr() -> Console:
    # Made anew for each use: a console remembers the stream that stderr was at its birth.
    return Console(stderr=True)
