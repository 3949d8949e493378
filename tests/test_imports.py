"""Imports go one way: the table of layers, held against the source with `ast`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "spacy_bioel"
GROUND = ["types", "errors"]

# Room -> rooms that it may import, besides itself.
ROOMS: dict[str, list[str]] = {
    "types": ["errors"],
    "errors": [],
    "processor": [],
    "storage": [*GROUND],
    "text": [*GROUND],
    "io": [*GROUND, "storage", "text"],
    "kb": [*GROUND, "storage", "text", "processor"],
    "nn": [*GROUND],
    "models": [*GROUND, "storage", "text", "kb", "nn", "processor"],
    "scoring": [*GROUND, "storage"],
    # The linker's loss is in nn/, and called where the gold ids are.
    "pipeline": [*GROUND, "storage", "text", "kb", "nn", "models", "scoring", "processor"],
    "tuning": [*GROUND, "storage", "kb", "scoring", "pipeline"],
    "corpus": [*GROUND, "text", "io", "pipeline"],
    "view": [*GROUND, "text"],
    "distributed": [*GROUND, "storage", "text", "pipeline", "processor"],
    "export": [*GROUND, "storage", "text", "pipeline", "distributed", "view"],
    # "" is the package itself, for its version.
    "service": ["", *GROUND, "kb", "pipeline", "distributed"],
    "cli": [
        *["", *GROUND, "text", "io", "kb", "models", "scoring", "pipeline", "corpus", "view"],
        *["distributed", "export", "tuning", "storage", "service"],
    ],
    "__init__": ["errors", "pipeline", "export"],
    "__main__": ["cli"],
}

# Room, or one file of it -> packages of others that it may import. A room's list holds for all
# of its files.
PACKAGES: dict[str, list[str]] = {
    "io/bioc.py": ["bioc"],
    "io/ontology.py": ["pronto"],
    "io/open.py": ["zstandard"],
    "processor.py": ["torch", "threadpoolctl"],
    "kb": ["numpy"],
    "kb/transaction.py": ["filelock"],
    "kb/vectors/ann.py": ["faiss"],
    "nn": ["torch", "transformers"],
    "nn/losses.py": ["pytorch_metric_learning"],
    "models": [
        *["numpy", "torch", "thinc", "spacy", "tokenizers", "safetensors", "scipy", "sklearn"],
        "transformers",
    ],
    "models/document_transformer.py": ["srsly"],
    "models/checkpoint.py": ["huggingface_hub"],
    "scoring": ["numpy"],
    "scoring/scorers.py": ["spacy"],
    "pipeline": ["numpy", "spacy", "thinc", "srsly"],
    "pipeline/linker/component.py": ["torch", "tokenizers"],
    "pipeline/linker/starter.py": ["safetensors"],
    "pipeline/mentions/detector.py": ["safetensors"],
    "tuning": ["numpy", "spacy", "scipy"],
    "corpus": ["spacy"],
    "distributed": ["spacy"],
    "distributed/parquet.py": ["pyarrow"],
    "distributed/spark.py": ["pyspark", "pyarrow", "pandas"],
    "export": ["spacy"],
    "export/corpora.py": ["bioc"],
    "export/docs.py": ["pandas", "IPython"],
    "service/verbs.py": ["spacy"],
    "service/schemas.py": ["pydantic"],
    "service/guards.py": ["fastapi", "starlette"],
    "service/metrics.py": ["starlette", "prometheus_client"],
    "service/app.py": ["fastapi", "prometheus_client"],
    "service/run.py": ["uvicorn"],
    "service/agents.py": ["mcp", "pydantic"],
    "cli": ["numpy", "spacy", "typer", "rich"],
    # To say that the extra is missing, before the service listens.
    "cli/serve.py": ["fastapi", "prometheus_client"],
    "view": ["jinja2", "markupsafe"],
    "__init__": ["spacy"],
}

# A pipeline is created by every user of spaCy who has this package installed, and these modules
# are imported then: nothing slow at their top. Theirs is what spaCy itself has imported.
FACTORIES = ["pipeline/factories.py", "pipeline/tokenizer.py"]
SLOW = {"torch", "transformers", "pytorch_metric_learning", "sklearn", "scipy", "bioc", "pronto"}

# Packages of extras, without which the command line starts.
EXTRAS = [
    *["torch", "transformers", "sklearn", "scipy", "pytorch_metric_learning", "faiss", "pyarrow"],
    *["pandas", "fastapi", "starlette", "uvicorn", "prometheus_client", "mcp"],
]

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def room_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def test_imports_stay_within_the_table():
    wrong = []
    for file in FILES:
        room = room_of(file)
        rooms = {room, *ROOMS[room]}
        packages = {*PACKAGES.get(room, []), *PACKAGES.get(file, []), *sys.stdlib_module_names}
        for module in imported_modules(ast.parse((ROOT / file).read_text(encoding="utf8"))):
            first, _, rest = module.partition(".")
            own = first == "spacy_bioel"
            if (rest.partition(".")[0] not in rooms) if own else (first not in packages):
                wrong.append(f"{file}: {module}")
    assert wrong == []


@pytest.mark.parametrize("file", FACTORIES)
def test_factories_import_nothing_slow(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf8"))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = {name.partition(".")[0] for node in imports for name in imported_modules(node)}
    assert found & SLOW == set()


def test_the_package_itself_imports_nothing_but_when_it_is_asked_to():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf8"))
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
    assert sorted({room_of(file) for file in FILES}) == sorted(ROOMS)


def modules_of(file: str) -> Iterator[str]:
    """Files of the package that a file imports, in functions too, but not to check types."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf8"))
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
