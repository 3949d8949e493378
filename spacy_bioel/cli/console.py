"""What commands have in common: arguments and options, messages on stderr, results as tables and
files.
"""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

from spacy_bioel.files import replacing_text

Item = TypeVar("Item")
_WIDTH_OF_FILES = 160
# Errors of writing to an open file, which do not name the file.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What a terminal obeys (C0 but line ends and tabs, C1, changes of direction), and half characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Write control characters as escapes, "\x1b": a name or a text must not steer a terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class _Console(Console):
    """Console in whose strings, those of tables included, control characters are visible."""

    def render_str(self, text: str, **options: Any) -> Text:  # type: ignore[override]
        return super().render_str(visible(text), **options)


def show_error(message: str) -> None:
    """Print an error in red on one line of stderr."""
    _stderr().print(
        f"error: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True
    )


def show_note(message: str) -> None:
    """Print a line for users on stderr; stdout is for results."""
    _stderr().print(message, markup=False, highlight=False, soft_wrap=True)


def count_of(n: int, noun: str) -> str:
    """Format a number with its noun: "1 document", "2,000 documents"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table on stdout; without columns, it has no header."""
    heads = (Column(name, overflow="fold") for name in columns)
    table = Table(*heads, title=title or None, show_header=bool(columns))
    for row in rows:
        table.add_row(*row)
    # For files and pipes rich assumes 80 columns, which would cut cells. Names may have brackets,
    # which are no markup.
    width = None if sys.stdout.isatty() else _WIDTH_OF_FILES
    _Console(width=width, markup=False, highlight=False).print(table)


def track(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield items while showing a progress bar."""
    with progress_bar(description) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def progress_bar(description: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if that is a terminal; what it yields advances it."""
    console = _stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    options: Any = {"console": console, "transient": True, "disable": not console.is_terminal}
    with Progress(*columns, TimeElapsedColumn(), **options) as progress:
        task = progress.add_task(description, total=total)
        yield lambda n: progress.advance(task, n)


def write_json(path: Path | None, content: object) -> bool:
    """Write a result to the file of `--json`, atomically, or to stdout for "-".

    RETURNS (bool): Whether stdout is left for people.
    """
    if path is not None:
        with writing(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return str(path) != "-"


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Write a text file, which gets its name only on success; "-" is stdout."""
    if str(path) == "-":
        with naming(Path("stdout")):
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf8")  # whatever the terminal is
            yield sys.stdout
            sys.stdout.flush()  # so that errors are raised here
        return
    make_folder(path.parent)
    with naming(path), replacing_text(path) as file:
        yield file


def make_folder(folder: Path) -> None:
    """Make a folder for output, and say so: its name may be a slip."""
    if not folder.exists():
        folder.mkdir(parents=True)
        show_note(f"Made the folder {folder}.")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Set the file name of an OSError to `path`: a full disk names no file, other errors name the
    temporary file beside it.
    """
    try:
        yield
    except OSError as error:
        temporary = f".{path.resolve().name}."
        is_unnamed = error.filename is None and error.errno in NO_ROOM
        if is_unnamed or Path(str(error.filename or "")).name.startswith(temporary):
            error.filename = str(path)
        raise


def show_line(line: str) -> None:
    """Print a line of a result on stdout."""
    typer.echo(visible(line))


def _stderr() -> Console:
    # A new console for each use, because a console keeps the stream of its creation.
    return _Console(stderr=True)


def refuse_folder(path: Path | None) -> Path | None:
    """Refuse a folder before anything is done, not when the result is there to be written."""
    if path is not None and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "", str(path))
    return path


def _import_code(path: str | None) -> str | None:
    """Import it while the options are read, before a pipeline is loaded."""
    if path is not None:
        from spacy_bioel.loading import import_code

        import_code(path)
    return path


Format = Annotated[
    str | None, Option(help="Format of the input; default: detected from the content.")
]
Prefix = Annotated[
    str, Option(help="Prefix of ids without one, e.g. MESH: D003920 becomes MESH:D003920.")
]
Json = Annotated[
    Path | None,
    Option(
        "--json",
        metavar="FILE",
        help="Also write the result as JSON; - for stdout.",
        callback=refuse_folder,
    ),
]

# A pipeline, of `link`, `explain`, `serve` and `mcp`.
MODEL = (
    "a pipeline, by folder or package name, or a knowledge base; default: the pipeline of the "
    "package."
)

Code = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="Python that registers functions which the config of MODEL names, such as rules for a "
        "kind of entity of your own.",
        callback=_import_code,
    ),
]

PresetName = StrEnum("PresetName", ["CLINICAL"])
Preset = Annotated[
    PresetName | None,
    Option(
        help="clinical, for notes: their shorthand and measurements are found, and what they say "
        "of each mention (negated, past, ...)."
    ),
]

# Gold documents, of `evaluate` and `tune`.
Label = Annotated[
    list[str] | None,
    Option(
        "--label",
        metavar="GOLD=MODEL",
        help="The label MODEL of the pipeline is GOLD in the corpus; can be repeated, also for one "
        "MODEL. GOLD= leaves the mentions of GOLD out.",
    ),
]
Prefixes = Annotated[
    list[str] | None,
    Option(
        "--prefix",
        metavar="PREFIX",
        help="Prefix of ids without one, e.g. MESH: D003920 becomes MESH:D003920. Gene=NCBIGene is "
        "for the label Gene of the corpus alone; can be repeated.",
    ),
]
Annotates = Annotated[
    list[str] | None,
    Option(
        metavar="LABEL",
        help="A label of the pipeline that the corpus annotates, can be repeated: predictions of "
        "other labels are left out, and not counted as wrong. Default: what the documents say, or "
        "all labels.",
    ),
]

# Knowledge bases and their sources, of `bioel kb`.
KbFolder = Annotated[Path, Argument(help="Folder that `bioel kb build` wrote.")]
Kb = Annotated[
    str,
    Argument(
        metavar="KB",
        help="Folder that `bioel kb build` wrote, or a knowledge base of the package: "
        "starter:mesh, starter:genes, starter:species or starter:cells.",
    ),
]
Sources = Annotated[
    list[Path],
    Argument(
        metavar="SOURCE",
        help="OBO, OWL, MeSH XML, a UMLS folder, CTD, JSONL, CSV or TSV.",
    ),
]
Columns = Annotated[
    str | None,
    Option(
        metavar="KEY=COLUMN,...",
        help="Columns of a table, by number or header: id=1,name=2,synonyms=Synonyms.",
    ),
]
Types = Annotated[
    str | None,
    Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
]
SourceName = Annotated[
    str, Option(help="Name of the source, for the record; default: the file names.")
]
Release = Annotated[
    str, Option(help="Release of the source, for the record; default: that of OBO headers.")
]
Licence = Annotated[
    str, Option(help="Licence of the source, for the record; default: that of OBO headers.")
]
