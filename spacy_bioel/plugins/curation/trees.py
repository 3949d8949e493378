"""Read pairs of a name and an id from objects in JSON, JSON lines and YAML, at any depth.

Both formats are read as a stream of events: brackets, and cells with keys and values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import count
from types import SimpleNamespace

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.pairs import Cell, Pair
from spacy_bioel.plugins.curation.tables import Lines, name_columns, row_pairs

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<end>"?)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)
_SCALAR = re.compile(r"true|false|null|~|[.]?nan|[+-]?[.]?inf(?:inity)?|[+-]?\d[\d.e_+-]*", re.I)
_MAX_STRING = 1 << 24  # characters of a string that is read in pieces
_MAX_LEVELS = 100
_BRACKET_OF_EVENT = {
    "MappingStart": "{",
    "MappingEnd": "}",
    "SequenceStart": "[",
    "SequenceEnd": "]",
}


def _tree_error(place: Place, found: object) -> BioelError:
    return BioelError(
        CurationErrors.B601.format(where=place, found=str(found).partition("\n")[0][:80])
    )


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
            kind, start = type(event).__name__.removesuffix("Event"), event.start_mark
            cell = Cell("", Place(where.path, start.line + 1), -1, _BRACKET_OF_EVENT.get(kind, ""))
            if kind == "Alias":
                cell = strings.get(event.anchor, cell)
            elif kind == "Scalar" and (event.style or not _SCALAR.fullmatch(event.value)):
                quotes = event.style in ("'", '"')
                length = event.end_mark.index - start.index - 2 * quotes
                is_plain = length == len(event.value) and event.style not in ("|", ">")
                cell = cell._replace(text=event.value, at=start.column + quotes if is_plain else -1)
                strings[event.anchor] = cell
            if cell.name or kind in ("Alias", "Scalar"):
                yield cell
    except BioelError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(where.path, mark.line + 1) if mark else where
        raise _tree_error(place, getattr(error, "problem", None) or error) from None


def tree_pairs(events: Iterable[Cell], ids: re.Pattern[str]) -> Iterator[Pair]:
    """Stream the pairs in objects and lists. RAISES BioelError: [B601] for what is not a tree."""
    stream = iter(events)

    def value(event: Cell, path: str = "$", level: int = 0) -> Iterator[Pair]:
        if event.name in ("}", "]"):
            raise _tree_error(event.place, repr(event.name))
        if event.name:
            return inside(event, path, level + 1)
        return row_pairs([event._replace(name=path).stripped()], {}, ids)

    def inside(opening: Cell, path: str, level: int) -> Iterator[Pair]:
        if level > _MAX_LEVELS:
            raise _tree_error(opening.place, f"more than {_MAX_LEVELS} levels")
        is_object = opening.name == "{"
        cells: list[tuple[str, Cell]] = []  # the strings in an object, by key
        for index in count():
            key = event = next(stream, None)
            if is_object and key is not None and not key.name:
                event = next(stream, None)
            if key is None or event is None:
                raise _tree_error(opening.place, "the end of the file")
            if opening.name + event.name in ("{}", "[]"):
                break
            below = f"{path}.{key.text}" if is_object else f"{path}[{index}]"
            if event.name or not is_object:
                yield from value(event, below, level)
            else:
                cells.append((key.text, event._replace(name=below).stripped()))
        columns = name_columns(tuple(key for key, _ in cells))
        for pair in row_pairs([cell for _, cell in cells], columns, ids):
            is_value = pair.id.name.endswith(".meaning") and not pair.names  # in LinkML
            yield Pair(pair.id, (Cell(path.rpartition(".")[2], at=-1),)) if is_value else pair

    for event in stream:
        yield from value(event)
