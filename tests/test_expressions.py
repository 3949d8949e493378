"""No regular expression of the package takes more than linear time, whatever the text.

Python's `re` tries an expression again at each position. If an unbounded repetition starts again
inside the text that it has just read, and fails at its end, the time is quadratic. Patterns that
are only used with `match` and `fullmatch` start once, so they are tried once.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from backtracking import is_slow_on

import spacy_bioel
from spacy_bioel.entities import patterns

PACKAGE = Path(spacy_bioel.__file__).parent
# Imports the package, links a text, and prints the expressions that were compiled, with the file
# and line that asked for them.
COMPILED = """
import importlib, json, pkgutil, re, sys
compiled, compile = {}, re._compile
def record(pattern, flags):
    frame = sys._getframe(1)
    for _ in range(6):
        if frame is not None and "spacy_bioel" in frame.f_code.co_filename:
            if isinstance(pattern, str):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                compiled.setdefault((pattern, int(flags)), place)
            break
        frame = frame and frame.f_back
    return compile(pattern, flags)
re._compile = record
import spacy_bioel
for module in pkgutil.walk_packages(spacy_bioel.__path__, "spacy_bioel."):
    try:
        importlib.import_module(module.name)
    except ImportError:  # an extra that is not installed
        continue
    except SystemExit:  # __main__
        continue
from spacy_bioel.loading import load_model
nlp = load_model("starter", preset="clinical")
nlp("Fever: no. (-) rash. acute kidney injury (AKI). BRCA1 V600E rs113488022 in mice. Hb 9.1 g/dL")
print(json.dumps([[*key, place] for key, place in compiled.items()]))
"""


def compiled_expressions() -> list[tuple[str, int, str]]:
    python = [sys.executable, "-c", COMPILED]
    output = subprocess.run(python, check=True, capture_output=True, text=True).stdout
    return [tuple(row) for row in json.loads(output.splitlines()[-1])]


def written_expressions(source: str, file: str) -> list[tuple[str, int, str, bool]]:
    """Return the expressions that calls contain, also of functions that nothing has called.

    RETURNS (list): Expression, flags, file and line, and whether it is tried once.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                args=[ast.Constant(value=str(pattern)), *_],
            ) if method not in ("compile", "escape"):
                is_once = method in ("match", "fullmatch")
                found.append((pattern, 0, f"{file}:{node.lineno}", is_once))
    return found


# Tried once too: these are used with `match` and `fullmatch`, from dicts, in other files, for names
# of files, or for measurements (`_measurement_pattern`), at the words that their names begin with.
ALSO_TRIED_ONCE = (
    r"[\w-]+\.[0-9a-f]{16}", r"[^\S\n]+(?:(?:is|are", r"\s*(?:(?:is|was)\s)?(?:non",
    r"[^\S\n]*(?:\.(?! of", r"\.journal", r"\.kb", r"(?s:strings\-", r"(?:(?i:",
    r"(?s:\..*\.new",
)  # fmt: skip


def rows_tried_once() -> set[str]:
    """Return the joined patterns of the uses that `find_words` matches at one place."""
    uses = patterns.patterns().items()
    return {p.pattern for use, p in uses if use in patterns._WHOLE or use.startswith("after ")}


def names_tried_once() -> set[tuple[str, str]]:
    """Return the files and names of patterns whose only methods in use are match and fullmatch."""
    methods: dict[tuple[str, str], set[str]] = {}
    constants = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=method):
                    methods.setdefault((str(path), name), set()).add(method)
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile")),
                ):
                    constants.add((str(path), name, node.lineno, node.end_lineno))
    return {
        (path, line)
        for path, name, first, last in constants
        if name.startswith("_") and methods.get((path, name), {""}) <= {"match", "fullmatch"}
        for line in range(first, last + 1)
    }


@pytest.mark.slow
def test_expressions_of_the_package():
    tried_once, of_rows = names_tried_once(), rows_tried_once()
    expressions = compiled_expressions()
    assert len(expressions) > 150
    slow, tried = {}, []
    for path in PACKAGE.rglob("*.py"):
        tried += written_expressions(path.read_text(encoding="utf8"), str(path))
    assert len(tried) > 5
    for pattern, flags, place in expressions:
        path, _, line = place.rpartition(":")
        once = (path, int(line)) in tried_once or pattern in of_rows
        once = once or pattern.startswith(ALSO_TRIED_ONCE)
        tried.append((pattern, flags, place, once))
    for pattern, flags, place, once in tried:
        if text := is_slow_on(pattern, flags, once=once):
            slow[f"{place} {pattern[:80]}"] = text[:20]
    assert slow == {}


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<stop>[.!?]+[\"')\]]*)\s+",
        r"\s+$",
        r"a+b",
        r"(?:a|b)*c",
        r"(a+)+b",
        r"\w+\s?\w+x",
        r"(?<=[\w)])[^\S\n]*(?:[:(\t]|[^\S\n]-)[^\S\n]*yes",
        "|".join([*"bcdefghijklmnopqrstuvw", r"\s?(?:-*>)", "."]),
    ],
)
def test_a_planted_expression_is_noticed(pattern):
    assert is_slow_on(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(?<![.!?])[.!?]++[\"')\]]*+\s+", r"(?<!\s)\s+$", r"\w+", r"<[^<>]{1,40}>", r"(?<!\w)\w+x"],
)
def test_an_expression_in_linear_time_is_not(pattern):
    assert not is_slow_on(pattern)


def test_an_expression_in_a_function_is_read():
    source = 'def never_called(text):\n    return re.sub(r"\\s+$", "", text)\n'
    ((pattern, flags, place, once),) = written_expressions(source, "planted.py")
    assert (pattern, place, once) == (r"\s+$", "planted.py:2", False)
    assert is_slow_on(pattern, flags)


def test_match_starts_once():
    assert not is_slow_on(r"a+b", once=True)
