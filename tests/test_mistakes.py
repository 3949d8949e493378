"""Mistakes of users get the messages that the table says."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import spacy
import typer
from mistake_files import write_files
from spacy.training import Example

from benchmarks.mistakes import Mistake, read_mistakes
from spacy_bioel.cli import main
from spacy_bioel.cli.app import app
from spacy_bioel.distributed.rows import link_texts
from spacy_bioel.errors import BioelError

ROOT = Path(__file__).parents[1]
TABLE = [one for of_section in read_mistakes().values() for one in of_section]
# Any text will do; and a report is written to --json by one function, which is wrong once.
NEVER_WRONG = "--prefix --source-name --release --licence --corpus --split --json".split()
NEVER_WRONG += "--author --domain --limit --version".split()  # of `bioel card`
PATTERNS = [{"label": "Disease", "pattern": "Fever"}]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mistakes")
    write_files(home)
    shutil.copy(ROOT / "project.yml", home)
    return home


@pytest.fixture
def _there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder with the files is the current one, and no mistake has left anything there."""
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(ROOT / "training" / "scripts")
    yield
    assert not (home / "out").exists() and not (home / "tuned").exists()


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.what[:60])
def test_the_message_of_a_mistake(
    one: Mistake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        in_python(one.what) if one.is_python else on_the_command_line(one.what, capsys, monkeypatch)
    )
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", said).split())  # the frame round a usage error
    expected = ".*".join(map(re.escape, one.says.split("...")))
    assert re.search(f"(^|error: |Error ){expected}", said), said


def on_the_command_line(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    program, *argv = shlex.split(command)
    with pytest.raises(SystemExit) as ended:
        if program == "bioel":
            main(argv)
        monkeypatch.setattr(sys, "argv", argv)
        import_module("corpora").main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def in_python(code: str) -> str:
    names = {
        "nlp": spacy.blank("en"),
        "spacy": spacy,
        "shutil": shutil,
        "Example": Example,
        "link_texts": link_texts,
        "patterns": PATTERNS,
    }
    printed: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(
                code,
                names | {"print": lambda error: printed.append(f"[{error.code}] {error.message}")},
            )
        except BioelError as error:
            return str(error)
    return printed[0] if printed else str(warned[0].message)


def test_every_option_of_every_command_is_wrong_once() -> None:
    argvs = [shlex.split(one.what) for one in TABLE if one.what.startswith("bioel ")]
    missing = {
        f"{command} {option.opts[0]}"
        for command, options in commands_of(typer.main.get_command(app), "bioel")
        for option in options
        if not any(given(argv, command, option.opts + option.secondary_opts) for argv in argvs)
    }
    # Of types that no new concept has, the counts say that nothing was added.
    assert {one for one in missing if one.split()[-1] not in NEVER_WRONG} == {
        "bioel kb add --types"
    }
    assert any(given(argv, "bioel", ["--json"]) for argv in argvs)


def commands_of(command: Any, name: str) -> Iterator[tuple[str, list[Any]]]:
    """The commands below a command, each with its options that take a value."""
    for below, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, f"{name} {below}")
    if not hasattr(command, "commands"):
        options = [p for p in command.params if p.param_type_name == "option" and not p.is_flag]
        yield name, options


def given(argv: list[str], command: str, options: list[str]) -> bool:
    words = command.split()
    return argv[: len(words)] == words and not set(options).isdisjoint(argv)


def test_every_command_has_a_mistake() -> None:
    commands = [command for command, _ in commands_of(typer.main.get_command(app), "bioel")]
    said = "\n".join(one.what for one in TABLE)
    assert [command for command in commands if f"{command} " not in said] == []
    assert len(commands) >= 13


def test_the_table_is_long_and_names_each_mistake_once() -> None:
    assert len(TABLE) > 100
    assert len({one.what for one in TABLE}) == len(TABLE)
    assert sum(one.says.startswith("[") for one in TABLE) > 90  # the others are of typer
