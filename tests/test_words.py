"""The words of the glossary are used, and those that they replaced are not."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import srsly
from spacy.util import load_config

pytestmark = pytest.mark.pages
ROOT = Path(__file__).parents[1]
BANNED: dict[str, dict[str, str]] = srsly.read_yaml(Path(__file__).with_name("banned_words.yml"))
CODE = ("spacy_bioel", "benchmarks", "training", "tests")
THIS = ("tests/banned_words.yml", "tests/test_words.py")
# Pages whose words are those of others, or of the past.
NOT_OURS = ("CHANGELOG.md",)


def files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Files of the project below a folder, without what it makes itself (such as kb/)."""
    folders = [root / name for name in (*CODE, "docs") if (root / name).is_dir()]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path
    yield from sorted(path for path in root.glob("*") if path.suffix in suffixes)


def identifiers(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf8")).readline):
        if token.type == tokenize.NAME:
            yield token.string


def prose(path: Path) -> Iterator[str]:
    """Comments and strings of code, which include docstrings and messages; whole pages."""
    text = path.read_text("utf8")
    if path.suffix != ".py":
        yield text
        return
    block = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            block += " " + token.string.lstrip("# ")
        elif token.type not in (tokenize.NL, tokenize.NEWLINE) and block:
            yield block
            block = ""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def settings(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from settings(inner)


def used(root: Path) -> Iterator[tuple[str, str, str]]:
    """Scope, file and text of all that the words are looked for in."""
    for path in files(root, ".py", ".md", ".cfg", ".yml", ".html"):
        place = path.relative_to(root).as_posix()
        if place in THIS:
            continue
        if place not in NOT_OURS and "assets/corpus" not in place:
            yield "file", place, " ".join(re.split(r"[/.]", place))
        if path.suffix == ".py":
            for name in set(identifiers(path)):
                yield "identifier", place, name
        if path.suffix in (".py", ".md", ".html") and place not in NOT_OURS:
            for text in prose(path):
                yield "prose", place, " ".join(text.split())
        if path.suffix == ".cfg" and path.parent.name != root.name and path.name != "setup.cfg":
            for name in set(settings(load_config(path))):
                yield "setting", place, name


def banned_words(root: Path) -> list[str]:
    whole = {
        scope: {re.compile(rf"(?:{p})", re.I if scope == "prose" else 0): p for p in patterns}
        for scope, patterns in BANNED.items()
    }
    found = []
    for scope, place, text in used(root):
        for pattern, words in whole[scope].items():
            if scope == "prose":
                hit = pattern.search(text)
            elif scope == "file":
                parts = [p for part in text.split() for p in (part, *part.split("_"))]
                hit = next((m for part in parts if (m := pattern.fullmatch(part))), None)
            else:
                hit = pattern.fullmatch(text.strip("_"))
            if hit:
                found.append(f"{place}: {scope} {hit[0]!r}, write {BANNED[scope][words]}")
    return sorted(set(found))


def test_no_banned_word_is_used():
    assert banned_words(ROOT) == []
