"""The command `bioel`: registration of its commands, and conversion of errors to messages.

No other package imports this one but `service`, which registers its commands by entry point, as
other packages may. The modules of commands import what needs spaCy inside their functions, so that
`bioel --help` and usage errors respond without delay.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, NoReturn

import typer

from spacy_bioel import __version__
from spacy_bioel.cli import card, console, documents, evaluate, kb_build, kb_show
from spacy_bioel.errors import BioelError, Errors

# Errors of wrong paths and missing permissions, in addition to those of a full disk.
_REFUSED = frozenset(
    getattr(errno, name)
    for name in "ENOENT EEXIST ENOTDIR EISDIR EACCES EPERM EROFS ENAMETOOLONG ELOOP ENXIO".split()
)

app = typer.Typer(
    help="Biomedical entity linking with spaCy: knowledge bases, corpora, linking, evaluation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # reflows the paragraphs of the docstrings
    pretty_exceptions_enable=False,
)
kb_app = typer.Typer(
    help="Build, inspect, search, encode and change knowledge bases.", no_args_is_help=True
)
app.add_typer(kb_app, name="kb")
for command in (
    *(documents.convert, documents.link, documents.explain),
    *(evaluate.tune, evaluate.evaluate, card.card, kb_show.verify),
):
    app.command()(command)
for registered in entry_points(group="spacy_bioel_commands"):
    for command in registered.load():
        app.command()(command)
for of_kb in (
    *(kb_build.build, kb_show.info, kb_show.search, kb_show.show, kb_build.encode),
    *(kb_build.copy, kb_build.add, kb_build.edit, kb_build.retire, kb_build.compact),
):
    kb_app.command()(of_kb)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None: ...


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command `bioel` and exit.

    argv (Sequence[str] | None): Arguments; None takes those of the process.
    RAISES SystemExit: With status 0 on success, 2 for invalid arguments or input (one line on
        stderr), 1 for any other failure.
    """
    # A pipeline and a build have many objects, of which few are garbage that refers to itself.
    gc.set_threshold(50_000, 20, 20)
    try:
        app(args=None if argv is None else list(argv), prog_name="bioel")
    except BioelError as error:
        _end(str(error))
    except UnicodeEncodeError as error:  # an argument that is not UTF-8
        if not error.encoding.startswith("utf"):
            raise
        _end(Errors.B480.format(found=error.object[max(error.start - 20, 0) : error.start + 20]))
    except OSError as error:
        if error.errno not in console.NO_ROOM | _REFUSED:
            raise
        path = error.filename or "The output"
        reason = os.strerror(error.errno or 0)
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "a file is where a folder is needed"
        _end(Errors.B252.format(path=path, reason=reason))


def _end(message: str) -> NoReturn:
    console.show_error(message)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk refused output, which Python would try to write again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(2)
