"""The `bioel` command: register its subcommands and print errors as messages.

Only plugins import this package; plugins and other packages add commands through entry points.
Commands import spaCy-dependent modules inside their functions, so that `bioel --help` and usage
errors appear without delay.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

from spacy_bioel import __version__
from spacy_bioel.cli import console, corpora, documents, kb_build, kb_show
from spacy_bioel.errors import LOGGER, BioelError, Errors, crash_report
from spacy_bioel.parallel import memory_errors
from spacy_bioel.registered import COMMANDS, all_names, load_registered

# Errors for wrong paths and missing permissions (for a full disk, see `console.NO_ROOM`).
_PATH_ERRORS = frozenset(
    getattr(errno, name)
    for name in "ENOENT EEXIST ENOTDIR EISDIR EACCES EPERM EROFS ENAMETOOLONG ELOOP ENXIO".split()
)

app = typer.Typer(
    help="""Find and link biomedical entities with spaCy; build and change knowledge bases.

    Example: `bioel link notes.txt -o links.jsonl`
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # reflows docstring paragraphs
    pretty_exceptions_enable=False,
)
kb_app = typer.Typer(
    help="""Build, inspect, search, encode and change knowledge bases.

    Example: `bioel kb build my_kb hp.obo`
    """,
    no_args_is_help=True,
)
corpus_app = typer.Typer(
    help="""Examine annotated corpora.

    Example: `bioel corpus check train.pubtator dev.pubtator --kb kb/mine`
    """,
    no_args_is_help=True,
)
app.add_typer(kb_app, name="kb")
app.add_typer(corpus_app, name="corpus")
app.command("convert")(corpora.convert)
app.command("link")(documents.link_command)
app.command("explain")(documents.explain_command)
app.command("verify")(kb_show.verify_command)
kb_app.command("build")(kb_build.build)
kb_app.command("list")(kb_show.list_kbs)
for kb_command in (kb_show.info, kb_show.search, kb_show.show, kb_build.encode, kb_build.copy):
    kb_app.command()(kb_command)


def _add_registered() -> None:
    """Add commands from plugins and other packages; "kb diff" becomes `bioel kb diff`.

    A command that is missing or cannot be imported is hidden, and raises an error when run.
    """
    groups = {"kb": kb_app, "corpus": corpus_app}
    own = {commands: _names_in(commands) for commands in (app, *groups.values())}
    for name in sorted(all_names(COMMANDS)):
        group, _, command = name.rpartition(" ")
        commands = groups.get(group, app)
        if command in own[commands]:
            about = {"what": "command", "name": name, "first": __package__, "second": "another"}
            LOGGER.error(Errors.B660.format(**about))
            continue
        try:
            commands.command(command)(load_registered(COMMANDS, name))
        except BioelError as error:
            settings = {"ignore_unknown_options": True}
            commands.command(command, hidden=True, context_settings=settings)(_refusing(error))


def _names_in(commands: typer.Typer) -> set[str]:
    named = ((c.name, getattr(c.callback, "__name__", "")) for c in commands.registered_commands)
    return {name or function.replace("_", "-") for name, function in named}


def _refusing(error: BioelError) -> Callable[..., None]:
    def refuse(_: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise error

    return refuse


_add_registered()


def _show_version(is_requested: bool) -> None:
    if is_requested:
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
    """Run the `bioel` command and exit.

    argv (Sequence[str] | None): Arguments; None: the process's arguments.
    RAISES SystemExit: With status 0 on success, 2 for invalid arguments or input (one line on
        stderr), 130 after Ctrl+C, 1 for any other failure.
    """
    # Pipelines and builds create many objects but few reference cycles, so run the GC less often.
    gc.set_threshold(50_000, 20, 20)
    try:
        with memory_errors():
            app(args=None if argv is None else list(argv), prog_name="bioel")
    except SystemExit as error:  # typer prints nothing after Ctrl+C
        if isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt):
            console.show_note("Interrupted; no unfinished file was written. Run the command again.")
        raise
    except BioelError as error:
        _exit_with_error(str(error))
    except UnicodeEncodeError as error:  # an argument that is not UTF-8
        if not error.encoding.startswith("utf"):
            raise
        start = max(error.start - 20, 0)
        _exit_with_error(Errors.B480.format(found=error.object[start : error.start + 20]))
    except OSError as error:
        if error.errno not in console.NO_ROOM | _PATH_ERRORS:
            raise
        path = error.filename or "The output"
        reason = os.strerror(error.errno or 0)
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "expected a folder, found a file"
        _exit_with_error(Errors.B252.format(path=path, reason=reason))
    finally:  # replaces typer's hook, because an unexpected error's message may quote a document
        sys.excepthook = lambda _, error, __: print(crash_report(error), end="", file=sys.stderr)


def _exit_with_error(message: str) -> NoReturn:
    console.show_error(message)
    try:
        sys.stdout.flush()
    except OSError:  # the disk is full, and Python would retry the write at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(2)
