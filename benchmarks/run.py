"""Run a benchmark by name: python -m benchmarks.run NAME ARGUMENTS; see NAME --help.

`--to FOLDER` before the name writes results to that folder instead of benchmarks/results. The
command of a row in the results ends with "# at commit ..." if its benchmark has answered its
question: that commit has the code.
"""

import sys
from importlib import import_module
from pathlib import Path

import typer

from benchmarks import record
from spacy_bioel.errors import BioelError

# Module -> its benchmarks.
MODULES = {
    "ablations": ["ablations"],
    "adversarial": ["adversarial"],
    "assertion": ["statuses"],
    "end_to_end": ["end_to_end", "main_job"],
    "house": ["house", "install_size"],
    "libraries": ["libraries"],
    "linking": ["linking"],
    "main_jobs": ["main_jobs"],
    "names": ["names"],
    "probing": ["probing"],
    "rivals": ["documents"],
    "screenshots": ["screenshots"],
    "starter": ["starter", "starter_speed"],
    "tmvar3": ["variants_forms", "peers"],
    "where": ["where", "imports"],
}
QUESTIONS = {name: module for module, names in MODULES.items() for name in names}


def main() -> None:
    if "--to" in sys.argv[1:2]:
        record.RESULTS = Path(sys.argv[2])
        del sys.argv[1:3]
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in QUESTIONS:
        sys.exit(f"python -m benchmarks.run NAME ..., where NAME is one of: {', '.join(QUESTIONS)}")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(getattr(import_module(f"benchmarks.{QUESTIONS[name]}"), name))
    try:
        app(sys.argv[2:], prog_name=f"python -m benchmarks.run {name}")
    except BioelError as error:  # usually a corpus that was not fetched
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
