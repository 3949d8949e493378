"""`bioel` run in this process."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import typer

from spacy_bioel.cli import app, main

COMMANDS: Any = typer.main.get_command(app)
INTERRUPTED = "Interrupted; no unfinished file was written. Run the command again.\n"


class Ran(NamedTuple):
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def words(self) -> str:
        """Both streams without line breaks, tables without their lines."""
        return " ".join(f"{self.out} {self.err}".replace("│", " ").split())


def unknown_options(arguments: list[str]) -> set[str]:
    """Options among the arguments of `bioel` that the command does not have."""
    command, rest = COMMANDS, list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    known = {option for param in command.params for option in param.opts} | {"--help"}
    return {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} - known


# Arguments, and by the keyword `status` the exit status that is expected, 0 by default.
Bioel = Callable[..., Ran]


def command(capsys: pytest.CaptureFixture[str]) -> Bioel:
    def run(*argv: object, status: int = 0) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main([str(argument) for argument in argv])
        done = Ran(*capsys.readouterr())
        assert int(exited.value.code or 0) == status, done.err
        return done

    return run
