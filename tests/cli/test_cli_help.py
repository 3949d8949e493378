"""The help of `bioel`: every command has a purpose and an example, with options that exist."""

import re
import shlex
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import pytest
from commands import COMMANDS, unknown_options


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:  # as one is whose plugin is missing
            yield from leaves(inner, f"{path} {name}".strip())


ALL = dict(leaves(COMMANDS, ""))


@pytest.mark.parametrize("path", ALL)
def test_a_purpose_and_an_example(path):
    text = cleandoc(ALL[path].help)
    purpose, *_, example = text.split("\n\n")
    assert "\n" not in purpose and purpose.endswith(".") and len(purpose) < 100
    lines = re.findall(r"`(bioel [^`]+)`", example)
    assert re.match("Examples?: ", example) and lines
    for line in lines:
        arguments = shlex.split(line)[1:]
        assert unknown_options(arguments) == set()
        assert " ".join(arguments).startswith(path)
