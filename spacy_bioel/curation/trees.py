"""Read pairs of a name and an id from objects in JSON, JSON lines and YAML, at any depth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from spacy_bioel.curation.pairs import Pair, Reading, Style
from spacy_bioel.curation.tables import Cell, name_columns, row_pairs
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import Place, StrPath

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_SCALAR = re.compile(r"true|false|null|NaN|-?Infinity|-?\d[\d.eE+-]*")
_MAX_YAML = 1 << 24  # characters; nodes take hundreds of times as much memory
_MAX_LEVELS = 100


def json_pairs(lines: Iterable[tuple[Place, str]], ids: re.Pattern[str]) -> Iterator[Pair]:
    """Stream pairs from JSON or JSON lines, whatever its size.

    RAISES BioelError: [B601] if it is not JSON.
    """
    # For each open object or list: its bracket, its path, its cells, and the key or the index.
    stack: list[tuple[str, str, list[Cell], list[str | int]]] = []
    place, token = Place(""), ""
    for place, line in lines:
        for match in _TOKEN.finditer(line):
            token = match[0]
            bracket, path, cells, keys = stack[-1] if stack else ("", "$", [], [0])
            if token in "{[":
                if len(stack) >= _MAX_LEVELS:
                    raise BioelError(Errors.B601.format(where=place, found=f"{_MAX_LEVELS} levels"))
                stack.append((token, _below(bracket, path, keys), [], [0] if token == "[" else []))
            elif token in "}]":
                if bracket + token not in ("{}", "[]"):
                    raise BioelError(Errors.B601.format(where=place, found=repr(token)))
                stack.pop()
                yield from _pairs_of(cells, ids, Style.JSON)
            elif token == "," and stack:
                keys[:] = [int(keys[0]) + 1] if bracket == "[" else []
            elif token[0] == '"':
                try:
                    text = json.loads(token)
                except ValueError as error:
                    raise BioelError(Errors.B601.format(where=place, found=error)) from None
                if bracket == "{" and not keys:
                    keys.append(text)
                elif stack:
                    is_plain = token[1:-1] == text
                    at = match.start() + 1 if is_plain else -1
                    cell = Cell(text, place, at, _below(bracket, path, keys))
                    if bracket == "{":
                        cells.append(cell)
                    else:
                        yield from row_pairs([cell], {}, ids, Style.JSON)
            elif token not in ",:" and not _SCALAR.fullmatch(token):
                raise BioelError(Errors.B601.format(where=place, found=f"{token!r:.80}"))
    if stack:
        raise BioelError(Errors.B601.format(where=place, found="the end of the file"))


def _below(bracket: str, path: str, keys: list[str | int]) -> str:
    key = keys[-1] if keys else ""
    return path if not bracket else f"{path}[{key}]" if bracket == "[" else f"{path}.{key}"


def _pairs_of(cells: list[Cell], ids: re.Pattern[str], style: Style) -> Iterator[Pair]:
    """Read pairs from the strings in an object."""
    keys = tuple(cell.name.rpartition(".")[2] for cell in cells)
    for pair in row_pairs(cells, name_columns(keys), ids, style):
        *_, value, key = ["", *pair.cell.split(".")]
        if key == "meaning" and not pair.readings:  # in LinkML, of a permissible value
            pair = replace(pair, readings=(Reading(value, is_firm=False),))
        yield pair


def yaml_pairs(path: StrPath, text: str, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read pairs from YAML. Nodes with several aliases are read once.

    RAISES BioelError: [B602] if it is not YAML, or has more than 16 million characters.
    """
    yaml, nodes = map(import_module, ("srsly.ruamel_yaml", "srsly.ruamel_yaml.nodes"))
    if len(text) > _MAX_YAML:
        raise BioelError(Errors.B602.format(where=path, found=f"{len(text):,} characters"))
    try:
        roots = [root for root in yaml.compose_all(text, Loader=yaml.SafeLoader) if root]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(path, mark.line + 1 if mark else 0)
        found = getattr(error, "problem", None) or "too many levels"
        raise BioelError(Errors.B602.format(where=place, found=found)) from None
    lines = text.split("\n")
    seen: set[int] = set()
    waiting = [("$", root) for root in reversed(roots)]
    while waiting:
        where, node = waiting.pop()
        if id(node) in seen or isinstance(node, nodes.ScalarNode):
            continue
        seen.add(id(node))
        is_object = isinstance(node, nodes.MappingNode)
        if is_object:
            children = [(f"{where}.{key.value}", value) for key, value in node.value]
        else:
            children = [(f"{where}[{i}]", value) for i, value in enumerate(node.value)]
        scalars = [(name, child) for name, child in children if isinstance(child, nodes.ScalarNode)]
        cells = [_scalar_cell(path, lines, name, child) for name, child in scalars]
        if is_object:
            yield from _pairs_of(cells, ids, Style.YAML)
        else:
            for cell in cells:
                yield from row_pairs([cell], {}, ids, Style.YAML)
        waiting += reversed(children)


def _scalar_cell(path: StrPath, lines: list[str], name: str, node: Any) -> Cell:
    row, at = node.start_mark.line, node.start_mark.column + (node.style in ("'", '"'))
    is_plain = node.style not in ("|", ">") and lines[row].startswith(node.value, at)
    return Cell(node.value, Place(path, row + 1), at if is_plain else -1, name)
