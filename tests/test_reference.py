"""Generated parts of the reference: each setting has a description, and nothing else has one."""

from __future__ import annotations

import re

import pytest
import srsly

from benchmarks.reference import DESCRIPTIONS, GENERATED, defaults
from benchmarks.site import with_links_of_the_site


@pytest.mark.parametrize("pipe", ["bioel_mentions", "bioel_linker"])
def test_every_setting_is_described_in_the_order_of_the_code(pipe: str) -> None:
    described = srsly.read_yaml(DESCRIPTIONS)[pipe]
    assert list(described) == list(defaults(pipe))
    assert [name for name, text in described.items() if len(text.split()) < 4] == []


def test_settings_and_their_defaults() -> None:
    lines = GENERATED["settings bioel_linker"]().splitlines()
    assert "| `nil_threshold` | `0.25` | From 0 to 1. The best candidate is not linked (NIL)" in (
        "\n".join(lines)
    )
    assert len([line for line in lines if line.startswith("| `evidence.")]) == 8
    assert "| `model` | `spacy-bioel.ResCNN.v1` |" in "\n".join(lines)


def test_commands_have_their_options() -> None:
    text = GENERATED["commands"]()
    assert {"## bioel link", "## bioel kb build", "## bioel tune"} <= set(text.splitlines())
    assert "| `--engine` | `local or spark` | `local` |" in text


def test_messages_can_stand_in_a_table() -> None:
    lines = GENERATED["errors"]().splitlines()
    assert len(lines) > 150 and {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert '| <a id="B020"></a>B020 | No knowledge base in *path*: expected' in "\n".join(lines)


def test_links_are_those_of_the_site() -> None:
    text = "[a](../../README.md#install) [b](../guides/x.md) [c](https://x.org)\n"
    assert with_links_of_the_site(text, source="docs/t/p.md", page="t/p.md") == (
        "[a](../index.md#install) [b](../guides/x.md) [c](https://x.org)\n"
    )
    assert with_links_of_the_site("[d]: docs/y.md\n", source="README.md", page="index.md") == (
        "[d]: y.md\n"
    )
