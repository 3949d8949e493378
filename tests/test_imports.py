"""Imports go one way, as the tables say, and nothing slow or missing is imported at the start."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import srsly

from spacy_bioel.registered import SPACY, known_plugins

ROOT = Path(__file__).parents[1] / "spacy_bioel"
TABLES: dict[str, dict[str, list[str]]] = srsly.read_yaml(Path(__file__).with_name("rooms.yml"))


def rooms_in(row: list[str]) -> list[str]:
    """Return the rooms of a row, with those of the groups that it names."""
    return [room for name in row for room in rooms_in(TABLES["groups"].get(name, [])) or [name]]


ROOMS = {room: rooms_in(row) for room, row in TABLES["rooms"].items()}
PACKAGES = TABLES["packages"]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/__init__.py"))
ENGINE = [room for room in ROOMS if room != "plugins"]
ROOMS |= {f"plugins/{name}": ENGINE for name in PLUGINS}

# A pipeline is created by every user of spaCy who has this package installed, and `factories` is
# imported then: nothing slow at its top. It may import what spaCy itself has imported.
SLOW = {"torch", "transformers", "pytorch_metric_learning", "sklearn", "scipy", "pronto"}

# Packages of extras, without which the command line starts.
EXTRAS = [
    *["torch", "transformers", "sklearn", "scipy", "pytorch_metric_learning", "faiss", "pyarrow"],
    *["pandas", "fastapi", "starlette", "uvicorn", "prometheus_client", "mcp"],
]

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
CONFIGS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("assets/**/*.cfg"))
# Names for configs -> plugin that registers them.
OF_PLUGINS = {
    name: plugin for plugin, offers in known_plugins().items() for name in offers.get(SPACY, ())
}


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def named_plugins(tree: ast.AST) -> Iterator[str]:
    """Modules of plugins in strings, as for `import_module`, and plugins whose registered names are
    values in a dict or of an argument, as in a default config."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(spacy_bioel)?\.plugins\.[\w.]+", node.value):
                yield f"spacy_bioel.{node.value.removeprefix('spacy_bioel').lstrip('.')}"
        values = node.values if isinstance(node, ast.Dict) else []
        values += [node.value] if isinstance(node, ast.keyword) else []
        for value in values:
            if isinstance(value, ast.Constant) and value.value in OF_PLUGINS:
                yield f"spacy_bioel.plugins.{OF_PLUGINS[value.value]}"


def room_of(file: str) -> str:
    return file.rpartition("/")[0] or file.removesuffix(".py")


def room_of_module(module: str) -> str:
    """Room that a module of the package lies in, or that it is."""
    path = module.replace(".", "/").removeprefix("spacy_bioel").lstrip("/")
    if not path:
        return "__init__"
    return path if (ROOT / path).is_dir() else path.rpartition("/")[0] or path


@cache
def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def modules_and_plugins(text: str) -> list[str]:
    return [*imported_modules(tree_of(text)), *named_plugins(tree_of(text))]


def read(file: str) -> str:
    return (ROOT / file).read_text("utf8")


def arrows(planted: str = "", line: str = "") -> dict[tuple[str, str], list[str]]:
    """Pairs of rooms of which the first imports the second, with the files that do.

    planted, line: A file, and a line that is added to it.
    """
    found: dict[tuple[str, str], list[str]] = {}
    texts = {file: read(file) + f"\n\n{line}\n" * (file == planted) for file in (*FILES, *CONFIGS)}
    for file in FILES:
        for module in modules_and_plugins(texts[file]):
            if module.partition(".")[0] == "spacy_bioel":
                pair = room_of(file), room_of_module(module)
                found.setdefault(pair, []).append(file)
    for file in CONFIGS:
        for name in re.findall(r'^\S+ = "(.+)"$', texts[file], re.M):
            if name in OF_PLUGINS:
                pair = file.partition("/assets/")[0], f"plugins/{OF_PLUGINS[name]}"
                found.setdefault(pair, []).append(file)
    return {pair: files for pair, files in found.items() if pair[0] != pair[1]}


def against_the_table(found: dict[tuple[str, str], list[str]]) -> list[str]:
    return [
        f"{', '.join(files)}: {second}"
        for (first, second), files in found.items()
        if second not in ROOMS.get(first, ())
    ]


def test_imports_stay_within_the_table():
    found = arrows()
    assert against_the_table(found) == []
    assert [pair for pair in found if pair[::-1] in found] == []


def test_packages_stay_within_the_table():
    wrong = []
    for file in FILES:
        allowed = {*PACKAGES.get(room_of(file), []), *PACKAGES.get(file, [])}
        allowed |= {*sys.stdlib_module_names, "spacy_bioel"}
        for module in imported_modules(tree_of(read(file))):
            if module.partition(".")[0] not in allowed:
                wrong.append(f"{file}: {module}")
    assert wrong == []


def test_others_know_the_contract_of_entities_and_no_kind_of_text():
    wrong = []
    for file in FILES:
        if (
            room_of(file).partition("/")[0] not in ("entities", "plugins")
            and file != "factories.py"
        ):
            modules = imported_modules(tree_of(read(file)))
            kinds = (m for m in modules if m.startswith("spacy_bioel.entities."))
            wrong += [f"{file}: {m}" for m in kinds if m != "spacy_bioel.entities.rule_set"]
    assert wrong == []


PLANTED = [
    ("text/normalize.py", "from spacy_bioel.kb.knowledge_base import search_names", "kb"),
    ("report.py", "from spacy_bioel.plugins.service import Limits", "plugins/service"),
    ("linking/link.py", "def f(): import spacy_bioel.plugins.contextual", "plugins/contextual"),
    ("doc.py", "if TYPE_CHECKING: import spacy_bioel.plugins.spark.spark", "plugins/spark"),
    ("loading.py", 'import_module("spacy_bioel.plugins.curation.check")', "plugins/curation"),
    ("export/rows.py", 'import_module(".plugins.service", "spacy_bioel")', "plugins/service"),
    ("factories.py", 'RULES = {"notes": {"@misc": "spacy-bioel.Notes.v1"}}', "plugins/clinical"),
    ("settings.py", 'PIPE = dict(factory="bioel_context")', "plugins/clinical"),
    (
        "plugins/evaluation/assets/fine_tune.cfg",
        '@architectures = "spacy-bioel.DualEncoder.v1"',
        "plugins/contextual",
    ),
    (
        "plugins/service/app.py",
        "from spacy_bioel.plugins.clinical import layout",
        "plugins/clinical",
    ),
]


@pytest.mark.parametrize("file, line, wrong", PLANTED)
def test_a_planted_import_is_refused(file, line, wrong):
    for plugin in re.findall(r"plugins/(\w+)", f"{file} {wrong}"):
        if plugin not in PLUGINS:
            pytest.skip(f"needs the plugin {plugin}")
    assert against_the_table(arrows(file, line)) == [f"{file}: {wrong}"]


def test_factories_import_nothing_slow():
    tree = tree_of(read("factories.py"))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = {name.partition(".")[0] for node in imports for name in imported_modules(node)}
    assert found & SLOW == set()


@pytest.mark.parametrize(
    "plugin", [name for name in PLUGINS if f"plugins/{name}/factories.py" in FILES]
)
def test_factories_of_a_plugin_import_little(plugin):
    """spaCy imports them with every pipeline, so nothing that is slow or may be missing."""
    code = f"""
import sys, spacy, spacy_bioel.settings, spacy_bioel.types
before = set(sys.modules)
import spacy_bioel.plugins.{plugin}.factories
print(*sorted(sys.modules.keys() - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name.startswith("spacy_bioel.plugins") for name in done.stdout.split())


def test_the_package_itself_imports_nothing_but_when_it_is_asked_to():
    tree = tree_of(read("__init__.py"))
    at_once = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert at_once == ["__future__", "typing"]
    assert not [node for node in tree.body if isinstance(node, ast.Import)]


def test_the_command_line_needs_no_extra():
    code = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))
from spacy_bioel.cli import main
main(["serve", "--help"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_names_only_rooms_that_exist():
    rooms = {room_of(file) for file in FILES}
    assert sorted(rooms) == sorted(room for room in ROOMS if PLUGINS or room != "plugins")


def modules_of(file: str) -> Iterator[str]:
    """Files of the package that a file imports, in functions too, but not to check types."""
    tree = ast.parse(read(file))  # not that of others, as it is changed
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("spacy_bioel"):
            path = str(node.module).replace(".", "/").removeprefix("spacy_bioel").lstrip("/")
            files = {f"{path}/{alias.name}.py".lstrip("/") for alias in node.names} & set(FILES)
            yield from files or {f"{path}.py", f"{path}/__init__.py".lstrip("/")} & set(FILES)


def test_no_files_import_each_other_in_a_circle():
    imports = {file: set(modules_of(file)) for file in FILES}
    while leaves := [file for file, others in imports.items() if not others & imports.keys()]:
        for file in leaves:
            del imports[file]
    assert sorted(imports) == []
