"""Read pairs of a name and an id from objects in JSON, JSON lines and YAML, at any depth.

Both formats are read as a stream of events: brackets, and cells with keys and values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace

from spacy_bioel.curation.pairs import Cell, Pair
from spacy_bioel.curation.tables import Lines, name_columns, row_pairs
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import Place

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<end>"?)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)
_SCALAR = re.compile(r"true|false|null|~|[.]?nan|[+-]?[.]?inf(?:inity)?|[+-]?\d[\d.e_+-]*", re.I)
_MAX_STRING = 1 << 24  # characters of a string that is read in pieces
_MAX_LEVELS = 100


def _tree_error(place: Place, found: object) -> BioelError:
    return BioelError(Errors.B601.format(where=place, found=f"{found!s:.80}"))


def json_events(lines: Lines) -> Iterator[Cell]:
    """Yield the events in JSON or JSON lines, whose lines may come in pieces."""
    place, rest = Place(""), ""
    for place, line in lines:
        text, shift, rest = rest + line, len(rest), ""
        for match in _TOKEN.finditer(text):
            token, at = match[0], match.start() - shift
            if token in "{}[]":
                yield Cell("", place, at, token)
            elif token in ":,":
                continue
            elif match.end() == len(text) and not match["end"] and text[-1] != "\n":
                rest = token  # which the next piece may continue
            elif token[0] == '"':
                try:
                    string = json.loads(token)
                except ValueError as error:
                    raise _tree_error(place, error) from None
                yield Cell(string, place, at + 1 if at >= 0 and token[1:-1] == string else -1)
            elif _SCALAR.fullmatch(token):
                yield Cell("", place)
            else:
                raise _tree_error(place, repr(token))
        if len(rest) > _MAX_STRING:
            raise _tree_error(place, f"a string of more than {_MAX_STRING:,} characters")
    if rest and not _SCALAR.fullmatch(rest):
        raise _tree_error(place, "the end of the file in a string")


def yaml_events(lines: Lines) -> Iterator[Cell]:
    """Yield the events in YAML. Aliases are not followed, except of strings."""
    yaml, where = import_module("srsly.ruamel_yaml"), Place("")
    strings: dict[str, Cell] = {}  # by anchor

    def read(_: int) -> str:
        nonlocal where
        where, line = next(iterator, (where, ""))
        return line

    iterator = iter(lines)
    try:
        for event in yaml.parse(SimpleNamespace(read=read), Loader=yaml.SafeLoader):
            kind, start, end = type(event).__name__, event.start_mark, event.end_mark
            cell = Cell("", Place(where.path, start.line + 1), -1, _BRACKET_OF_EVENT.get(kind, ""))
            if kind == "AliasEvent":
                cell = strings.get(event.anchor, cell)
            elif kind == "ScalarEvent" and (event.style or not _SCALAR.fullmatch(event.value)):
                quotes = event.style in ("'", '"')
                is_plain = end.index - start.index == len(event.value) + 2 * quotes
                is_plain &= event.style not in ("|", ">")
                cell = cell._replace(text=event.value, at=start.column + quotes if is_plain else -1)
                if event.anchor:
                    strings[event.anchor] = cell
            if cell.name or kind in ("AliasEvent", "ScalarEvent"):
                yield cell
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(where.path, mark.line + 1) if mark else where
        raise _tree_error(place, getattr(error, "problem", None) or error) from None


_BRACKET_OF_EVENT = {
    **{"MappingStartEvent": "{", "MappingEndEvent": "}"},
    **{"SequenceStartEvent": "[", "SequenceEndEvent": "]"},
}


@dataclass(slots=True)
class _Level:
    """An open object or list, with its last key or index, and the strings in an object by key."""

    bracket: str
    path: str
    key: str | None = None
    index: int = 0
    cells: list[tuple[str, Cell]] = field(default_factory=list)

    def next_path(self) -> str:
        """Return the path of the next value."""
        below = {"{": f".{self.key}", "[": f"[{self.index}]"}.get(self.bracket, "")
        self.key, self.index = None, self.index + 1
        return self.path + below


def tree_pairs(events: Iterable[Cell], ids: re.Pattern[str]) -> Iterator[Pair]:
    """Stream the pairs in objects and lists. RAISES BioelError: [B601] for what is not a tree."""
    levels, event = [_Level("", "$")], Cell("")
    for event in events:
        level = levels[-1]
        if event.name and event.name in "}]":
            if level.bracket + event.name not in ("{}", "[]"):
                raise _tree_error(event.place, repr(event.name))
            yield from _object_pairs(levels.pop(), ids)
        elif level.bracket == "{" and level.key is None and not event.name:
            level.key = event.text
        elif event.name:
            if len(levels) > _MAX_LEVELS:
                raise _tree_error(event.place, f"more than {_MAX_LEVELS} levels")
            levels.append(_Level(event.name, level.next_path()))
        elif level.bracket == "{":
            level.cells.append((str(level.key), event._replace(name=level.next_path()).stripped()))
        else:
            yield from row_pairs([event._replace(name=level.next_path()).stripped()], {}, ids)
    if len(levels) > 1:
        raise _tree_error(event.place, "the end of the file")


def _object_pairs(level: _Level, ids: re.Pattern[str]) -> Iterator[Pair]:
    keys, value = tuple(key for key, _ in level.cells), level.path.rpartition(".")[2]
    for pair in row_pairs([cell for _, cell in level.cells], name_columns(keys), ids):
        is_value = pair.id.name.endswith(".meaning") and not pair.names  # permissible, in LinkML
        yield Pair(pair.id, (Cell(value, at=-1),)) if is_value else pair
