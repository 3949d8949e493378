"""`bioel` run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spacy_bioel.cli import main


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
