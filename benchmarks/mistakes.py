"""Write docs/reference/mistakes.md from tests/mistakes.yml: python -m benchmarks.mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import srsly

_ROOT = Path(__file__).parents[1]
MISTAKES = _ROOT / "tests" / "mistakes.yml"
PAGE = _ROOT / "docs" / "reference" / "mistakes.md"
_INTRODUCTION = """\
# Mistakes and their messages

Written by `python -m benchmarks.mistakes` from `tests/mistakes.yml`; a test makes each of these
mistakes. Messages of this package have a code: B for errors, W for warnings, T for the steps of the
training project. They say what was found, what was expected and what to do, and leave files as they
were. The beginning of each is shown; "..." stands for words that depend on your files. `bioel` ends
with status 2 after a mistake. In Python all errors are `spacy_bioel.errors.BioelError`.
"""


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


def page() -> str:
    """All of docs/reference/mistakes.md."""
    parts = [_INTRODUCTION]
    for section, mistakes in read_mistakes().items():
        parts.append(f"## {section}\n")
        parts += [_entry(one) for one in mistakes]
    return "\n".join(parts)


def _entry(one: Mistake) -> str:
    # Not as ```python, which would be run: it is meant to fail.
    what = "".join(f"    {line}\n" for line in one.what.splitlines())
    return f"**{one.mistake[0].upper()}{one.mistake[1:]}**\n\n{what}\n> {_quoted(one.says)}\n"


def _quoted(text: str) -> str:
    """The text as it is, whatever marks of Markdown or HTML it has."""
    for mark in "\\*_[]<>`":
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf8")
