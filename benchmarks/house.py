"""Size of the code base, and the way of a Doc through it: `python -m benchmarks.run house`.

Lines are those of `wc -l`. The way of a Doc: `spacy_bioel.load()` links one text; then another one,
of new strings, while each call of a function of another file of the package is counted.

--root and --system measure another checkout, such as that of an earlier commit.

`python -m benchmarks.run install_size` adds up the installed files of the package and of all that
it requires, and what each extra adds. Run it where all extras are installed; an extra of which a
package is missing is left out.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement

from benchmarks.record import Row, question

ROOT = Path(__file__).parents[1]
EXTRAS = ("train", "transformers", "ann", "parquet", "serve")
WARM = "Aspirin causes gastric ulcer in rats; TP53 p.R273H is common in HeLa cells."
TEXT = (
    "Naloxone reverses the antihypertensive effect of clonidine. Twelve patients with "
    "hepatolenticular degenration were given trientine; zonisamid lowered the tremor of two women "
    "with CADASIL, and BRCA1 c.68delAG was found in mice."
)
_PROFILE = """
import sys
from pathlib import Path
import spacy_bioel
root = str(Path(spacy_bioel.__file__).parent)
nlp = spacy_bioel.load()
nlp({warm!r})
files, moves = set(), 0
def count(frame, event, argument):
    global moves
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root):
        files.add(file)
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        moves += caller.startswith(root) and caller != file
sys.setprofile(count)
nlp({text!r})
sys.setprofile(None)
print(len(files), moves)
"""


def n_lines(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def sources(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def inner_imports(path: Path) -> Iterator[int]:
    """Lines of the imports of this package inside functions."""
    for function in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("spacy_bioel"):
                    yield node.lineno


def printed_by(arguments: list[str], root: Path) -> str:
    """What Python prints with the package of a checkout."""
    run = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(run, cwd=root, env=env, capture_output=True, text=True, check=True).stdout


def way_of_a_doc(root: Path) -> tuple[int, int]:
    """Files of the package that a Doc enters, and moves between them."""
    files, moves = printed_by(["-c", _PROFILE.format(warm=WARM, text=TEXT)], root).split()[-2:]
    return int(files), int(moves)


def count(root: Path) -> dict[str, int]:
    package = sources(root / "spacy_bioel")
    options = ["--select", "ANN401", "--exit-zero", "--output-format", "json", "spacy_bioel"]
    found = printed_by(["-m", "ruff", "check", *options], root)
    files, moves = way_of_a_doc(root)
    pages = [*root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    return {
        "lines": n_lines(package),
        "files": len(package),
        "tests": n_lines(sources(root / "tests")),
        "benchmarks_and_training": n_lines(sources(root / "benchmarks", root / "training")),
        "words_of_pages": sum(len(page.read_text("utf8").split()) for page in pages),
        "doc_files": files,
        "doc_moves": moves,
        "any": len(json.loads(found)),
        "imports_in_functions": sum(len(set(inner_imports(path))) for path in package),
    }


@question("house", key=("question", "system"))
def house(
    root: Annotated[Path, typer.Option(help="A checkout of the repository.")] = ROOT,
    system: Annotated[str, typer.Option(help="Name of its state.")] = "now",
) -> Iterator[Row]:
    for asked, value in count(root.resolve()).items():
        yield {"question": asked, "system": system, "metric": "count", "value": value}


def required(name: str, extra: str = "") -> Iterator[str]:
    """Names of the packages that a package, or one of its extras, asks for on this machine."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield re.sub(r"[-_.]+", "-", requirement.name).lower()


def closure(name: str, extra: str = "") -> set[str]:
    """All packages that are installed with one.

    RAISES PackageNotFoundError: If one of them is not installed here.
    """
    found: set[str] = set()
    waiting = list(required(name, extra))
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting.extend(required(package))
    return found


@question("install_size")
def install_size() -> Iterator[Row]:
    package = closure("spacy-bioel")
    own = sum(f.stat().st_size for f in (ROOT / "spacy_bioel").rglob("*") if f.is_file())
    parts = {"package": (own, package)}
    for extra in EXTRAS:
        try:
            parts[extra] = (0, closure("spacy-bioel", extra) - package)
        except PackageNotFoundError as missing:
            typer.echo(f"{extra}: {missing} is not installed, left out")
    for system, (size, names) in parts.items():
        size += sum(file.size or 0 for name in names for file in distribution(name).files or [])
        yield {"system": system, "metric": "megabytes", "value": round(size / 1e6)}
    for name in sorted(package):
        size = sum(file.size or 0 for file in distribution(name).files or [])
        about = {"question": "packages", "system": f"{name} {distribution(name).version}"}
        yield {**about, "metric": "megabytes", "value": round(size / 1e6, 1)}
