"""Mistakes of users and their messages, tests/mistakes.yml, as a part of a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import srsly

MISTAKES = Path(__file__).parents[1] / "tests" / "mistakes.yml"


@dataclass(frozen=True)
class Mistake:
    """A mistake of a user.

    mistake (str): In words.
    what (str): A command line, or Python code.
    says (str): The beginning of the message, with "..." for anything.
    """

    mistake: str
    what: str
    says: str
    is_python: bool


def read_mistakes() -> dict[str, list[Mistake]]:
    """The mistakes of each section."""
    return {
        section: [
            Mistake(
                one["mistake"],
                (one.get("python") or one["command"]).strip(),
                one["says"],
                is_python="python" in one,
            )
            for one in mistakes
        ]
        for section, mistakes in srsly.read_yaml(MISTAKES).items()
    }


def mistakes() -> str:
    """List the mistakes of each section with their messages."""
    parts = []
    for section, of_section in read_mistakes().items():
        parts += [f"## {section}\n", *map(_entry, of_section)]
    return "\n".join(parts)


def _entry(one: Mistake) -> str:
    # Not as ```python, which would be run: it is meant to fail.
    what = "".join(f"    {line}\n" for line in one.what.splitlines())
    return f"**{one.mistake[0].upper()}{one.mistake[1:]}**\n\n{what}\n> {_quoted(one.says)}\n"


def _quoted(text: str) -> str:
    """The text with its marks of Markdown and HTML escaped."""
    for mark in "\\*_[]<>`":
        text = text.replace(mark, f"\\{mark}")
    return text
