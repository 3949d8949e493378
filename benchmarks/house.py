"""Measure the size and the coupling of the code: `python -m benchmarks.run house`.

Lines are those of `wc -l`. The engine is the package without `plugins/`. A room is a folder of the
package, or a file at its top.

The way of a Doc: `spacy_bioel.load()` links a text to warm up, then a text of new strings, and
calls of functions of the package are counted. An edge is a function with a file, other than its
own, that calls it. Rules are the files of `entities/` without the contract, `__init__.py` and
`rule_set.py`. A function that runs counts with all of its lines, from its first decorator.

--root and --system measure another checkout, such as an earlier commit. --show NAME lists the items
that a measure counts, and records nothing. --ratchet writes tests/house.toml, whose numbers may
only fall: raise one by hand, with the reason.

`python -m benchmarks.run install_size` adds up the installed files of the package, of its
dependencies and of each extra. Run it where all extras are installed; extras with a missing package
are left out.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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
from pathlib import Path
import spacy_bioel
root = f"{{Path(spacy_bioel.__file__).parent}}/"
nlp = spacy_bioel.load()
nlp({warm!r})
calls = set()
def count(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root):
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        caller = caller.removeprefix(root) if caller.startswith(root) else ""
        place = code.co_filename.removeprefix(root), code.co_qualname, code.co_firstlineno
        calls.add((caller, *place))
sys.setprofile(count)
nlp({text!r})
sys.setprofile(None)
print(json.dumps(sorted(calls)))
"""
PLUGINS = {"plugins"}
_CONTRACT = {"entities/__init__.py", "entities/rule_set.py"}
_CACHES = {"cache", "lru_cache", "cached_property"}
RATCHET = ROOT / "tests" / "house.toml"
_MAX_LINES = 500  # of a file
# Blocks that benchmarks.reference writes from the code, so that their words are not counted.
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.S)
# Figures of the design; CONTRIBUTING.md shows them next to today's.
TO_REACH = {
    "engine_lines": 27_000,
    "engine_statements": 16_000,
    "lines": 37_000,
    "files": 165,
    "doc_lines": 2_200,
    "doc_files": 24,
    "doc_edges": 110,
    "doc_pairs": 55,
    "rooms_both_ways": 0,
    "into_plugins": 0,
    "caches": 65,
    "imports_in_functions": 6,
    "string_imports": 1,
    "long_files": 1,
    "tests": 30_000,
    "benchmarks_and_training": 9_500,
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
    def plugin(self) -> str:
        """Name of the plugin that contains the file, or ""."""
        top, _, inside = self.file.partition("/")
        return inside.partition("/")[0] if top == "plugins" else ""

    @property
    def n_statements(self) -> int:
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.tree))

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


def into_plugins(sources: list[Source]) -> list[str]:
    """Return the imports of a plugin from the engine or from another plugin."""
    return [
        f"{source.file}:{node.lineno}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.stmt)
        for name in imported(node)
        if name.startswith("plugins.") and name.split(".")[1] != source.plugin
    ]


def imports_in_functions(sources: list[Source]) -> list[str]:
    """Return the places of imports from the package inside functions of the engine, without those
    of `cli/`, which starts fast because of them."""
    return [
        f"{source.file}:{line}"
        for source in sources
        if not source.is_in(PLUGINS | {"cli"})
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


def string_imports(sources: list[Source]) -> list[str]:
    """Return the calls of `import_module` in the engine."""
    return [
        f"{source.file}:{node.lineno}"
        for source in sources
        if not source.is_in(PLUGINS)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and used_name(node.func) == "import_module"
    ]


def caches(sources: list[Source]) -> list[str]:
    """Return the decorators and calls of functools' caches in the engine."""
    return [
        f"{source.file}:{made.lineno}"
        for source in sources
        if not source.is_in(PLUGINS)
        for node in ast.walk(source.tree)
        for made in (node.decorator_list if isinstance(node, Function) else [node])
        if isinstance(node, Function | ast.Call)
        and used_name(made.func if isinstance(made, ast.Call) else made) in _CACHES
    ]


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


Call = tuple[str, str, str, int]  # calling file, or ""; file, function and its first line


def calls_of_a_doc(root: Path) -> list[Call]:
    """Return the calls of functions of the package for one Doc."""
    printed = run_python(["-c", _PROFILE.format(warm=WARM, text=TEXT)], root)
    return [tuple(call) for call in json.loads(printed.splitlines()[-1])]


def is_rule(file: str) -> bool:
    return file.startswith("entities/") and file not in _CONTRACT


def doc_lines(calls: list[Call], root: Path) -> dict[str, int]:
    """Return the lines of the functions that run for one Doc, by file, without rules."""
    lines: Counter[str] = Counter()
    trees = {
        file: ast.parse((root / "spacy_bioel" / file).read_text("utf8")) for _, file, *_ in calls
    }
    for file, line in {(file, line) for _, file, _, line in calls if not is_rule(file)}:
        lines[file] += 0
        for node in ast.walk(trees[file]):
            if isinstance(node, Function):
                first = min([node.lineno, *(made.lineno for made in node.decorator_list)])
                lines[file] += (node.end_lineno or line) - first + 1 if first == line else 0
    return dict(lines)


def doc_edges(calls: list[Call]) -> list[str]:
    """Return the functions that one Doc calls from another file, with that file."""
    return sorted({f"{a} > {file}: {name}" for a, file, name, _ in calls if a and a != file})


def doc_pairs(calls: list[Call]) -> list[str]:
    return sorted({f"{a} > {file}" for a, file, *_ in calls if a and a != file})


# Measure -> function that lists the items that it counts.
LISTS: dict[str, Callable[[list[Source]], list[str]]] = {
    "rooms_both_ways": rooms_both_ways,
    "into_plugins": into_plugins,
    "named_twice": named_twice,
    "long_files": long_files,
    "caches": caches,
    "imports_in_functions": imports_in_functions,
    "string_imports": string_imports,
}
WAYS: dict[str, Callable[[list[Call]], list[str]]] = {
    "doc_edges": doc_edges,
    "doc_pairs": doc_pairs,
}


def count(root: Path) -> dict[str, int]:
    options = ["--select", "ANN401", "--exit-zero", "--output-format", "json", "spacy_bioel"]
    any_types = json.loads(run_python(["-m", "ruff", "check", *options], root))
    calls = calls_of_a_doc(root)
    lines = doc_lines(calls, root)
    pages = [*root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    texts = [_GENERATED.sub("", page.read_text("utf8")) for page in pages]
    return {
        **counts_of_source(root),
        "doc_lines": sum(lines.values()),
        "doc_files": len(lines),
        **{name: len(list_items(calls)) for name, list_items in WAYS.items()},
        "any": len(any_types),
        "words_of_pages": sum(len(text.split()) for text in texts),
    }


def listed(measure: str, root: Path) -> list[str]:
    """Return the items that a measure counts.

    RAISES typer.BadParameter: If the measure cannot be listed.
    """
    if measure in LISTS:
        return LISTS[measure](read_package(root))
    if measure in WAYS:
        return WAYS[measure](calls_of_a_doc(root))
    raise typer.BadParameter(f"--show is one of: {', '.join([*WAYS, *LISTS])}")


def counts_of_source(root: Path) -> dict[str, int]:
    """Return the counts that need no run of the package, which tests compare with the ratchet."""
    sources = read_package(root)
    engine = [source for source in sources if not source.is_in(PLUGINS)]
    return {
        "engine_lines": sum(source.lines for source in engine),
        "engine_statements": sum(source.n_statements for source in engine),
        "lines": sum(source.lines for source in sources),
        "files": len(sources),
        **{name: len(list_items(sources)) for name, list_items in LISTS.items()},
        "tests": n_lines(python_files(root / "tests")),
        "benchmarks_and_training": n_lines(python_files(root / "benchmarks", root / "training")),
    }


def lower(path: Path, counted: dict[str, int]) -> None:
    """Lower the numbers in a file to those counted; its lines and comments stay."""
    lines = path.read_text("utf8").splitlines(keepends=True)
    for number, line in enumerate(lines):
        name, equals, limit = line.partition(" = ")
        if equals and name in counted and counted[name] < int(limit.partition("#")[0]):
            lines[number] = line.replace(limit.partition("#")[0].strip(), str(counted[name]), 1)
    path.write_text("".join(lines), "utf8")


@question("house", key=("question", "system"))
def house(
    root: Annotated[Path, typer.Option(help="A checkout of the repository.")] = ROOT,
    system: Annotated[str, typer.Option(help="Name of its state.")] = "now",
    show: Annotated[str, typer.Option(help="List the items that this measure counts.")] = "",
    ratchet: Annotated[bool, typer.Option("--ratchet", help="Lower tests/house.toml.")] = False,
) -> Iterator[Row]:
    root = root.resolve()
    if show:
        typer.echo("\n".join(listed(show, root)))
        return
    counted = count(root)
    if ratchet:
        lower(RATCHET, counted)
    for name, figures in {system: counted, "to reach": TO_REACH}.items():
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
