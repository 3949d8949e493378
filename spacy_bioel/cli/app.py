"""The commands by name, and what becomes of errors.

The command modules import spaCy and torch inside their functions, so that `bioel --help` and
mistakes on the command line are answered at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from spacy_bioel import __version__
from spacy_bioel.cli.console import show_error
from spacy_bioel.cli.convert import convert
from spacy_bioel.cli.evaluate import evaluate
from spacy_bioel.cli.kb_add import add
from spacy_bioel.cli.kb_build import build
from spacy_bioel.cli.kb_compact import compact
from spacy_bioel.cli.kb_encode import encode
from spacy_bioel.cli.kb_info import info
from spacy_bioel.cli.kb_retire import retire
from spacy_bioel.cli.link import link
from spacy_bioel.cli.probe import probe
from spacy_bioel.cli.tune import tune
from spacy_bioel.errors import BioelError

BAD_INPUT = 2
_MISTAKEN_PATHS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

app = typer.Typer(
    help="Biomedical entity linking with spaCy: knowledge bases, corpora, linking, evaluation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # fills the paragraphs of the docstrings
    pretty_exceptions_enable=False,
)
kb_app = typer.Typer(
    help="Build, inspect, encode and change knowledge bases.", no_args_is_help=True
)
app.add_typer(kb_app, name="kb")
app.command()(convert)
app.command()(link)
app.command()(tune)
app.command()(evaluate)
app.command()(probe)
kb_app.command()(build)
kb_app.command()(info)
kb_app.command()(encode)
kb_app.command()(add)
kb_app.command()(retire)
kb_app.command()(compact)


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
    RAISES SystemExit: With status 0 when all went well, 2 for unusable arguments or input (one
        line on stderr), 1 for any other failure.
    """
    try:
        app(args=None if argv is None else list(argv), prog_name="bioel")
    except (BioelError, PermissionError, *_MISTAKEN_PATHS) as error:
        show_error(str(error))
        sys.exit(BAD_INPUT)
