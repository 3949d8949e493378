"""Measure the size and the coupling of the code: `python -m benchmarks.run house`.

Lines are those of `wc -l`. The core is the package without its sealed rooms. A room is a folder of
the package, or a file at its top. The way of a Doc: `spacy_bioel.load()` links a text to warm up,
then a text of new strings, while calls from one file of the package into another are counted.

--root and --system measure another checkout, such as an earlier commit. --show NAME lists the items
that a measure counts, and records nothing.

`python -m benchmarks.run install_size` adds up the installed files of the package, of its
dependencies and of each extra. Run it where all extras are installed; extras with a missing package
are left out.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
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
    "hepatolenticular degenrtion were given trientine; zonisamid lowered the tremor of two women "
    "with CADASIL, and BRCA1 c.68delAG was found in mice."
)
_PROFILE = """
import json, sys
from collections import Counter
from pathlib import Path
import spacy_bioel
root = str(Path(spacy_bioel.__file__).parent)
nlp = spacy_bioel.load()
nlp({warm!r})
calls = Counter()
def count(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root):
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        calls[caller[len(root) + 1:] * caller.startswith(root), file[len(root) + 1:]] += 1
sys.setprofile(count)
nlp({text!r})
sys.setprofile(None)
print(json.dumps([[*files, n] for files, n in calls.items()]))
"""
SEALED = {"contextual", "service"}
# Rooms that may name kinds of text: their rules, and the export of their facts.
_MAY_NAME = SEALED | {"entities", "export"}
# Kind of text -> its names in code.
KINDS = {
    "variants": r"variant|hgvs",
    "organisms": r"organism|species|homolog",
    "composites": "composite",
    "notes": r"\bnote|shorthand|measurement",
    "abbreviations": "abbreviat|short_form",
    "genes": r"\bgene\b|genes",
}
_MAX_LINES = 500  # of a file
# Blocks that benchmarks.reference writes from the code, so that their words are not counted.
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.S)
TO_REACH = {
    "core_lines": 23_500,
    "lines": 28_000,
    "files": 115,
    "doc_files": 24,
    "doc_moves": 190,
    "rooms_both_ways": 0,
    "into_sealed_rooms": 0,
    **dict.fromkeys(KINDS, 4),
    "abbreviations": 6,
    "named_twice": 40,
    "long_files": 1,
    "tests": 19_000,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A file of the package: its path in the package, its text and its syntax tree."""

    def __init__(self, path: Path, package: Path) -> None:
        self.file = path.relative_to(package).as_posix()
        self.text = path.read_text("utf8")
        self.tree = ast.parse(self.text)

    @property
    def room(self) -> str:
        folder, _, name = self.file.rpartition("/")
        return folder or name.removesuffix(".py")

    @property
    def module(self) -> str:
        """Dotted name within the package; "" for the package itself."""
        dotted = self.file.removesuffix(".py").replace("/", ".")
        return dotted.removesuffix("__init__").removesuffix(".")

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def is_in(self, folders: set[str]) -> bool:
        return not folders.isdisjoint(self.file.split("/")[:-1])


def read_package(root: Path) -> list[Source]:
    package = root / "spacy_bioel"
    return [Source(path, package) for path in python_files(package)]


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def n_lines(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def imported(statement: ast.AST) -> list[str]:
    """Return the dotted names within the package that a statement imports; [] if it does not."""
    names: list[str] = []
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom):
        names = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return [name.removeprefix("spacy_bioel.") for name in names if name.startswith("spacy_bioel.")]


def rooms_both_ways(sources: list[Source]) -> list[str]:
    """Return the pairs of rooms that import each other."""
    rooms = {source.module: source.room for source in sources}
    arrows: set[tuple[str, str]] = set()
    for source in sources:
        for name in chain.from_iterable(map(imported, ast.walk(source.tree))):
            module = name if name in rooms else name.rpartition(".")[0]
            arrows.add((source.room, rooms[module]))
    return sorted(f"{a}, {b}" for a, b in arrows if a < b and (b, a) in arrows)


def into_sealed_rooms(sources: list[Source]) -> list[str]:
    """Return the places outside sealed rooms that import from them."""
    return [
        f"{source.file}:{node.lineno}"
        for source in sources
        if not source.is_in(SEALED)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.stmt)
        and any(not SEALED.isdisjoint(name.split(".")) for name in imported(node))
    ]


def inner_imports(sources: list[Source]) -> list[str]:
    """Return the places of imports from the package inside functions."""
    return [
        f"{source.file}:{line}"
        for source in sources
        for line in sorted(
            {
                node.lineno
                for function in ast.walk(source.tree)
                if isinstance(function, Function)
                for node in ast.walk(function)
                if isinstance(node, ast.stmt) and imported(node)
            }
        )
    ]


def names_in_code(source: Source) -> str:
    """Return all names in the code of a file: no strings, comments or docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    return " ".join(token.string for token in tokens if token.type == tokenize.NAME)


def files_that_name(kind: str, sources: list[Source]) -> list[str]:
    """Return the files outside the rooms for it whose code names a kind of text."""
    pattern = re.compile(KINDS[kind], re.IGNORECASE)
    outside = [source for source in sources if not source.is_in(_MAY_NAME)]
    return [source.file for source in outside if pattern.search(names_in_code(source))]


def top_level_names(tree: ast.Module) -> Iterator[str]:
    """Yield the classes, functions and variables at the top of a module."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                yield target.id


def named_twice(sources: list[Source]) -> list[str]:
    """Return the module-level names that two or more modules define, with the modules."""
    files: dict[str, list[str]] = {}
    for source in sources:
        for name in set(top_level_names(source.tree)):
            files.setdefault(name, []).append(source.file)
    shared = {name: places for name, places in files.items() if places[1:] and name[:2] != "__"}
    return [f"{name}: {', '.join(places)}" for name, places in sorted(shared.items())]


def one_caller(sources: list[Source]) -> list[str]:
    """Return the private functions and methods with a unique name that are used once."""
    nodes = [(source.file, node) for source in sources for node in ast.walk(source.tree)]
    uses = Counter(used_name(node) for _, node in nodes)
    private = [
        (node.name, file)
        for file, node in nodes
        if isinstance(node, Function) and re.match("_[^_]", node.name)
    ]
    defined = Counter(name for name, _ in private)
    return [f"{file}: {name}" for name, file in private if defined[name] == uses[name] == 1]


def used_name(node: ast.AST) -> str:
    """Return the variable or attribute that an expression reads; "" for any other node."""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.id if isinstance(node, ast.Name) else node.attr
    return ""


def long_files(sources: list[Source]) -> list[str]:
    return [f"{source.file}: {source.lines}" for source in sources if source.lines > _MAX_LINES]


def run_python(arguments: list[str], root: Path) -> str:
    """Return what Python prints with the package of a checkout."""
    run = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(run, cwd=root, env=env, capture_output=True, text=True, check=True).stdout


def calls_of_a_doc(root: Path) -> list[tuple[str, str, int]]:
    """Return calls of functions of the package for one Doc: calling file, called file, number.

    The calling file is "" if it is not in the package.
    """
    printed = run_python(["-c", _PROFILE.format(warm=WARM, text=TEXT)], root)
    return [tuple(call) for call in json.loads(printed.splitlines()[-1])]


def doc_files(root: Path) -> Counter[str]:
    """Return the files whose functions one Doc calls, with the calls from other files."""
    moves = Counter[str]()
    for caller, file, n in calls_of_a_doc(root):
        moves[file] += n if caller and caller != file else 0
    return moves


def doc_moves(root: Path) -> Counter[str]:
    return Counter({f"{a} > {b}": n for a, b, n in calls_of_a_doc(root) if a and a != b})


# Measure -> function that lists the items that it counts.
LISTS: dict[str, Callable[[list[Source]], list[str]]] = {
    "rooms_both_ways": rooms_both_ways,
    "into_sealed_rooms": into_sealed_rooms,
    **{kind: partial(files_that_name, kind) for kind in KINDS},
    "named_twice": named_twice,
    "one_caller": one_caller,
    "long_files": long_files,
    "imports_in_functions": inner_imports,
}
WAYS = {"doc_files": doc_files, "doc_moves": doc_moves}


def count(root: Path) -> dict[str, int]:
    sources = read_package(root)
    core = [source for source in sources if not source.is_in(SEALED)]
    options = ["--select", "ANN401", "--exit-zero", "--output-format", "json", "spacy_bioel"]
    any_types = json.loads(run_python(["-m", "ruff", "check", *options], root))
    moves = doc_files(root)
    pages = [*root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    texts = [_GENERATED.sub("", page.read_text("utf8")) for page in pages]
    return {
        "core_lines": sum(source.lines for source in core),
        "core_files": len(core),
        "lines": sum(source.lines for source in sources),
        "files": len(sources),
        "doc_files": len(moves),
        "doc_moves": sum(moves.values()),
        **{name: len(list_items(sources)) for name, list_items in LISTS.items()},
        "any": len(any_types),
        "tests": n_lines(python_files(root / "tests")),
        "benchmarks_and_training": n_lines(python_files(root / "benchmarks", root / "training")),
        "words_of_pages": sum(len(text.split()) for text in texts),
    }


def listed(measure: str, root: Path) -> list[str]:
    """Return the items that a measure counts, for files and moves of a Doc with their calls.

    RAISES typer.BadParameter: If the measure cannot be listed.
    """
    if measure in LISTS:
        return LISTS[measure](read_package(root))
    if measure in WAYS:
        return [f"{name}: {n}" for name, n in WAYS[measure](root).most_common()]
    raise typer.BadParameter(f"--show is one of: {', '.join([*WAYS, *LISTS])}")


@question("house", key=("question", "system"))
def house(
    root: Annotated[Path, typer.Option(help="A checkout of the repository.")] = ROOT,
    system: Annotated[str, typer.Option(help="Name of its state.")] = "now",
    show: Annotated[str, typer.Option(help="List the items that this measure counts.")] = "",
) -> Iterator[Row]:
    root = root.resolve()
    if show:
        typer.echo("\n".join(listed(show, root)))
        return
    for name, figures in {system: count(root), "to reach": TO_REACH}.items():
        for asked, value in figures.items():
            yield {"question": asked, "system": name, "metric": "count", "value": value}


def required(name: str, extra: str = "") -> Iterator[str]:
    """Yield the packages that a package, or one of its extras, requires on this machine."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield re.sub(r"[-_.]+", "-", requirement.name).lower()


def closure(name: str, extra: str = "") -> set[str]:
    """Return all packages that a package requires, directly or not.

    RAISES PackageNotFoundError: If one of them is not installed here.
    """
    packages: set[str] = set()
    waiting = list(required(name, extra))
    while waiting:
        package = waiting.pop()
        if package not in packages:
            packages.add(package)
            waiting.extend(required(package))
    return packages


@question("install_size")
def install_size() -> Iterator[Row]:
    dependencies = closure("spacy-bioel")
    package_size = sum(f.stat().st_size for f in (ROOT / "spacy_bioel").rglob("*") if f.is_file())
    parts = {"package": (package_size, dependencies)}
    for extra in EXTRAS:
        try:
            parts[extra] = (0, closure("spacy-bioel", extra) - dependencies)
        except PackageNotFoundError as missing:
            typer.echo(f"{extra}: {missing} is not installed, left out")
    for system, (size, names) in parts.items():
        size += sum(file.size or 0 for name in names for file in distribution(name).files or [])
        yield {"system": system, "metric": "megabytes", "value": round(size / 1e6)}
    for name in sorted(dependencies):
        size = sum(file.size or 0 for file in distribution(name).files or [])
        about = {"question": "packages", "system": f"{name} {distribution(name).version}"}
        yield {**about, "metric": "megabytes", "value": round(size / 1e6, 1)}
