"""Run a benchmark by the name of its question: python -m benchmarks.run NAME ARGUMENTS."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_NO_QUESTIONS = (
    "docstrings",
    "encoders",
    "finding_ours",
    "finding_theirs",
    "growth_step",
    "lifecycle_step",
    "markdown",
    "readme",
    "readme_encoders",
    "readme_front",
    "readme_generative",
    "readme_linkers",
    "readme_no_labels",
    "readme_papers",
    "readme_speed",
    "readme_types",
    "screenshots",
    "record",
    "reference",
    "run",
    "scale",
    "scispacy_ours",
    "scispacy_theirs",
    "site",
)


def questions() -> list[str]:
    """Scripts that measure something; `--help` after a name says what they take."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    return [name for name in names if name not in _NO_QUESTIONS]


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in questions():
        sys.exit(
            f"python -m benchmarks.run NAME ..., where NAME is one of: {', '.join(questions())}"
        )
    name = sys.argv.pop(1)
    sys.argv[0] = str(Path(__file__).with_name(f"{name}.py"))  # results say how they were made
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
