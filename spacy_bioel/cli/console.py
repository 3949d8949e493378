"""Helpers shared by all commands: arguments, options, messages on stderr, tables and files."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial, wraps
from inspect import Parameter, signature
from io import TextIOWrapper
from operator import length_hint
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import is_stream, replacing_text
from spacy_bioel.io.open import BadRecord, skipping_bad
from spacy_bioel.parallel import require_gpu
from spacy_bioel.registered import PRESETS, all_names, load_registered
from spacy_bioel.text.normalize import escape_formula
from spacy_bioel.types import DOC_ENTS

Tracked = TypeVar("Tracked")
_WIDTH_OF_FILES = 160
# Error numbers for a full disk or an exceeded quota; these errors do not name the file.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Terminal control characters (C0 except line breaks and tabs, C1, text direction), and lone
# surrogates.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Escape control characters ("\x1b") so that names and texts cannot control the terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class _Console(Console):
    """Console that escapes control characters and does not turn words such as ":id:" into emoji."""

    def render_str(self, text: str, **options: Any) -> Text:  # type: ignore[override]
        return super().render_str(visible(text), **options | {"emoji": False})


def show_error(message: str) -> None:
    """Print an error on stderr, in red and on one line."""
    _stderr().print(
        f"error: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True
    )


def show_note(message: str) -> None:
    """Print a message for the user on stderr; stdout is reserved for results."""
    _stderr().print(message, markup=False, highlight=False, soft_wrap=True)


def count_of(n: int, noun: str) -> str:
    """Format a count with its noun: "1 document", "2,000 documents"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def bullet_list(meanings: Mapping[str, str]) -> str:
    """Format terms and their meanings as a Markdown list, for a command's help."""
    return "\n".join(f"* {term}: {meaning}." for term, meaning in meanings.items())


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table on stdout; omit the header if no columns are given."""
    headers = (Column(name, overflow="fold") for name in columns)
    table = Table(*headers, title=title or None, show_header=bool(columns))
    for row in rows:
        table.add_row(*row)
    # For files and pipes, rich assumes 80 columns, which would truncate cells. Markup is off,
    # because names may contain brackets.
    width = None if sys.stdout.isatty() else _WIDTH_OF_FILES
    _Console(width=width, markup=False, highlight=False).print(table)


def track(
    items: Iterable[Tracked], description: str, *, total: int | None = None
) -> Iterator[Tracked]:
    """Yield items while showing a progress bar, including the time left if the total is known."""
    with progress_bar(description, total=total or length_hint(items) or None) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def progress_bar(description: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if stderr is a terminal.

    YIELDS (Callable[[int], None]): Advances the bar by a number of items.
    """
    console = _stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    options: Any = {"console": console, "transient": True, "disable": not console.is_terminal}
    times = (TimeElapsedColumn(), *[TextColumn("left:"), TimeRemainingColumn()][: 2 * bool(total)])
    with Progress(*columns, *times, **options) as progress:
        task = progress.add_task(description, total=total)
        yield lambda n: progress.advance(task, n)


def write_json(path: Path | None, content: object) -> bool:
    """Write a result atomically to the file given by `--json`, or to stdout for "-".

    RETURNS (bool): Whether stdout is free for a table.
    """
    if path is not None:
        with writing(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return str(path) != "-"


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open a temporary text file that is moved to `path` on success; "-" means stdout."""
    if str(path) == "-":
        with naming(Path("stdout")):
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf8")  # regardless of the locale
            yield sys.stdout
            sys.stdout.flush()  # raise errors here, so that they mention stdout
        return
    make_folder(path.parent)
    with naming(path), replacing_text(path) as file:
        yield file


@contextmanager
def reporting_bad(report: Path | None, *, sources: Sequence[Path]) -> Iterator[None]:
    """Skip bad records, list them in `report` and print a few; if `report` is None, raise errors.

    RAISES BioelError: [B400] if all records are bad. The report is still written.
    """
    if report is None:
        yield
        return
    failure: BioelError | None = None
    with writing(report) as file, skipping_bad(partial(_write_bad, file)) as skipped:
        file.write("file\tline\tcode\tmessage\n")
        try:
            yield
        except BioelError as error:
            failure = error
    if failure is not None:
        if not skipped.first or skipped.kept:
            raise failure
        about = {"sources": ", ".join(map(str, sources)), "n": skipped.n, "report": report}
        raise BioelError(Errors.B400.format(**about, first=skipped.first[0])) from failure
    for message in skipped.first:
        show_note(f"Skipped: {message}")
    show_note(f"{count_of(skipped.n, 'bad record')} skipped, see {report}")


def _write_bad(file: TextIO, record: BadRecord) -> None:
    cells = (record.path, str(record.line or ""), record.code, record.message.partition("] ")[2])
    file.write("\t".join(escape_formula(" ".join(cell.split())) for cell in cells) + "\n")


def check_distinct(inputs: Iterable[object], outputs: Iterable[object]) -> None:
    """Check that no output is also an input or another output; ignore None, "-" and devices.

    RAISES BioelError: [B493] if an output is also an input, [B555] if two outputs are one file.
    """
    used = dict.fromkeys(map(_identity, inputs), Errors.B493)
    for path in outputs:
        if problem := used.get(identity := _identity(path)):
            raise BioelError(problem.format(path=path))
        used[identity] = Errors.B555


def _identity(file: object) -> object:
    """Return a key that identifies a file whatever its name: device and inode, or else the path."""
    path = Path(str(file))
    if file is None or str(file) == "-" or is_stream(path):
        return object()  # equal to no other file
    return (path.stat().st_dev, path.stat().st_ino) if path.exists() else path.resolve()


def make_folder(folder: Path) -> None:
    """Create an output folder, and tell the user, in case the name was a typo."""
    if not folder.exists():
        folder.mkdir(parents=True)
        show_note(f"Created the folder {folder}.")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make OSErrors raised in this block report `path` as their file.

    Otherwise, a full disk is reported without a file name, and other errors with the name of the
    temporary file.
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
    """Print one line of results on stdout."""
    typer.echo(visible(line))


def is_watched() -> bool:
    """Return whether progress bars are shown."""
    return _stderr().is_terminal


def _stderr() -> Console:
    # Create a new console each time, because a console keeps the stream it was created with.
    return _Console(stderr=True)


def refuse_folder(path: Path | None) -> Path | None:
    """Reject an output path that is a folder, before the command starts."""
    if path is not None and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "", str(path))
    return path


def _import_code(path: str | None) -> str | None:
    """Import the `--code` file during option parsing, before any pipeline is loaded."""
    if path is not None:
        from spacy_bioel.loading import import_code

        import_code(path)
    return path


Format = Annotated[
    str | None, Option(help="Format of the input; default: detected from its contents.")
]
Prefix = Annotated[
    str, Option(help="Prefix for ids without one: with MESH, D003920 becomes MESH:D003920.")
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
Html = Annotated[
    Path | None,
    Option(metavar="OUT.html", help="Also write an HTML page with charts.", callback=refuse_folder),
]

# MODEL argument of `link`, `explain`, `serve` and `mcp`.
MODEL = (
    "a pipeline (folder or package name) or a knowledge base (a folder, or a bundled one such as "
    "starter:mesh; see `bioel kb list`); default: the starter."
)

Code = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="Python file that registers functions named in MODEL's config, such as your own "
        "entity rules.",
        callback=_import_code,
    ),
]


def _use_gpu(gpu_id: int) -> int:
    """Activate the GPU given by `--gpu-id` before any pipeline is loaded."""
    require_gpu(gpu_id)
    return gpu_id


GpuId = Annotated[
    int,
    Option(metavar="N", help="GPU to use, counted from 0; -1: the CPU.", callback=_use_gpu, min=-1),
]


def _check_preset(preset: str | None) -> str | None:
    """Reject an unknown preset. RAISES BioelError: [B661, B662, B663]"""
    if preset is not None:
        load_registered(PRESETS, preset)
    return preset


Preset = Annotated[
    str | None,
    Option(
        metavar=" or ".join(all_names(PRESETS)),
        callback=_check_preset,
        help="clinical: settings for clinical notes. Recognises shorthand and abnormal lab values, "
        "and marks mentions as negated, historical and so on.",
    ),
]

MoreKbs = Annotated[
    list[str] | None,
    Option(
        "--kb",
        metavar="[LABEL=]KB",
        help="An additional knowledge base (a folder, or a name from `bioel kb list`); repeatable. "
        "If MODEL is a pipeline, also give the label that it applies to: Anatomy=kb/uberon.",
    ),
]
OtherKb = Annotated[
    str | None,
    Option(
        "--kb",
        metavar="[LABEL=]KB",
        help="Link to this knowledge base instead of MODEL's; Anatomy=kb/uberon does so only "
        "for mentions labelled Anatomy.",
    ),
]
NProcess = Annotated[int, Option(min=1, help="Number of worker processes, to use more cores.")]
BatchSize = Annotated[int, Option(min=1, help="Number of documents per batch.")]
SkipBad = Annotated[
    Path | None,
    Option(metavar="REPORT.tsv", help="Skip invalid records and list them in this file."),
]


@dataclass(frozen=True)
class GoldPlace:
    """Options that specify where a .spacy file stores its gold mentions."""

    spans_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Span group with gold mentions in .spacy; default: detected."),
    ] = None
    ents: Annotated[
        bool, Option("--ents", help="Use the entities in the .spacy file as gold mentions.")
    ] = False

    def key(self) -> str | None:
        """Return the key for `read_texts`. RAISES BioelError: [B522] if both options are set."""
        if self.ents and self.spans_key is not None:
            raise BioelError(Errors.B522.format(problem="both are given", option="one of them"))
        return DOC_ENTS if self.ents else self.spans_key


# Arguments and options of `bioel kb`.
KbFolder = Annotated[Path, Argument(help="Folder written by `bioel kb build`.")]
Kb = Annotated[
    str,
    Argument(
        metavar="KB",
        help="Folder written by `bioel kb build`, or a bundled knowledge base such as "
        "starter:mesh; `bioel kb list` shows all bundled ones.",
    ),
]


def expand_options(
    command: Callable[..., None], plugins: Sequence[type] = ()
) -> Callable[..., None]:
    """Replace a command's `options` parameter, a dataclass, with one option per field.

    plugins (Sequence[type]): Further dataclasses, passed to the command as the list `plugins`.
    """
    original = signature(command, eval_str=True)
    groups = [get_type_hints(command)["options"], *plugins]
    types = {group: get_type_hints(group, include_extras=True) for group in groups}

    @wraps(command)
    def run(*arguments: object, **values: Any) -> None:
        filled = [
            group(**{f.name: values.pop(f.name) for f in fields(group) if f.name in values})
            for group in groups
        ]
        more = {"plugins": filled[1:]} if "plugins" in original.parameters else {}
        command(*arguments, options=filled[0], **more, **values)

    options = [
        Parameter(
            f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=types[group][f.name]
        )
        for group in groups
        for f in fields(group)
    ]
    others = [p for p in original.parameters.values() if p.name not in ("options", "plugins")]
    run.__signature__ = original.replace(parameters=others + options)  # type: ignore[attr-defined]
    return run
