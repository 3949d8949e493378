"""Read pairs of a name and an id from objects in JSON, JSON lines and YAML, at any depth.

Both formats are read as a stream of events: brackets, and cells with keys and values.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count, groupby, islice
from types import SimpleNamespace
from typing import NamedTuple

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.name_places import (
    N_RECORDS,
    Entry,
    NamePlace,
    NamePlaces,
    NameValues,
    Record,
    no_values,
)
from spacy_bioel.plugins.curation.pairs import Cell, Pair
from spacy_bioel.plugins.curation.tables import Lines, name_columns, rows_records

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<end>"?)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)
_SCALAR = re.compile(r"true|false|null|~|[.]?nan|[+-]?[.]?inf(?:inity)?|[+-]?\d[\d.e_+-]*", re.I)
_MAX_STRING = 1 << 24  # characters of a string that is read in pieces
_MAX_LEVELS = 100
_N_FIELDS = 30  # of the object around an object
_NOTHING = Cell("", at=-1)
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


class _Object(NamedTuple):
    """The strings in an object: the key that it is the value of, its keys, and their values."""

    level: int
    own_key: Cell
    keys: list[Cell]
    values: list[Cell]
    parent: _Object | None
    children: list[_Object]  # that are values of its keys


def tree_pairs(
    events: Iterable[Cell], ids: re.Pattern[str], values: NameValues = no_values
) -> Iterator[Pair]:
    """Yield the pairs in objects and lists. RAISES BioelError: [B601] for what is not a tree."""
    iterator = _objects(events)
    while batch := list(islice(iterator, N_RECORDS)):
        yield from NamePlaces(list(_object_records(batch, ids)), values).pairs()


def _objects(events: Iterable[Cell]) -> Iterator[_Object]:
    """Yield the objects in a tree, at their ends; a string in a list is an object without keys."""
    stream = iter(events)

    def inside(
        opening: Cell, path: str, level: int, own_key: Cell, parent: _Object | None
    ) -> Iterator[_Object]:
        if level > _MAX_LEVELS:
            raise _tree_error(opening.place, f"more than {_MAX_LEVELS} levels")
        is_object = opening.name == "{"
        found = _Object(level, own_key, [], [], parent, [])
        if parent and is_object and parent.level + 1 == level:
            parent.children.append(found)
        lists = list[_Object]()  # lists of strings, in an object
        for index in count():
            key = event = next(stream, None)
            if is_object and key is not None and not key.name:
                event = next(stream, None)
            if key is None or event is None:
                raise _tree_error(opening.place, "the end of the file")
            if opening.name + event.name in ("{}", "[]"):
                break
            below = f"{path}.{key.text}" if is_object else f"{path}[{index}]"
            if event.name:
                around = found if is_object else parent
                inner = value(event, below, level, key if is_object else own_key, around)
                first, second = next(inner, None), next(inner, None)
                if is_object and event.name == "[" and first and not second:
                    lists.append(first)
                else:
                    yield from filter(None, (first, second))
                    yield from inner
            elif event.text:
                found.keys.append(key if is_object else Cell(str(index), at=-1))
                found.values.append(event._replace(name=below).stripped())
        yield from _columns_of_lists(lists)
        yield found

    def value(
        event: Cell,
        path: str = "$",
        level: int = 0,
        own_key: Cell = _NOTHING,
        parent: _Object | None = None,
    ) -> Iterator[_Object]:
        if event.name in ("}", "]"):
            raise _tree_error(event.place, repr(event.name))
        if event.name:
            return inside(event, path, level + 1, own_key, parent)
        return iter(
            [_Object(level, own_key, [], [event._replace(name=path).stripped()], parent, [])]
        )

    for event in stream:
        yield from value(event)


def _columns_of_lists(lists: Sequence[_Object]) -> Iterator[_Object]:
    """Yield lists of strings in one object; lists of equal length, such as of ids and names, are
    the columns of a table."""
    for _, same in groupby(sorted(lists, key=lambda x: len(x.values)), lambda x: len(x.values)):
        columns = list(same)
        if len(columns) == 1:
            yield columns[0]
            continue
        keys = [column.own_key for column in columns]
        for values in zip(*(column.values for column in columns), strict=True):
            yield _Object(columns[0].level, _NOTHING, keys, list(values), None, [])


def _object_records(objects: Sequence[_Object], ids: re.Pattern[str]) -> Iterator[Record]:
    """Read objects as rows of tables. A name may also be the key of an id or of its object, and an
    id the key of a name or of the object with its name."""
    tables: dict[tuple[int, frozenset[str]], list[_Object]] = defaultdict(list)
    for found in objects:
        fields = zip(found.keys, found.values, strict=False)
        with_ids = frozenset(key.text for key, value in fields if ids.fullmatch(value.text))
        tables[found.level, with_ids].append(found)
    order: dict[int, list[Record]] = {}
    for kind, table in tables.items():
        keys = list(dict.fromkeys(key.text for found in table for key in found.keys))
        columns = name_columns(tuple(keys))
        is_map = len(table) == 1 and not columns  # of names to ids
        for found in table:
            by_key = {k.text: (k, v) for k, v in zip(found.keys, found.values, strict=False)}
            pairs = [by_key.get(key, (_NOTHING, _NOTHING)) for key in keys]
            records = order[id(found)] = []
            for record in rows_records([[v for _, v in pairs] or found.values], columns, ids):
                if record.layout != "row":  # a line of text
                    records.append(record)
                    continue
                entries = list[Entry]()
                for entry in record.entries:
                    key = pairs[entry.position][0] if pairs else _NOTHING
                    near = {"key": key, "own key": found.own_key}
                    for other in (found.parent, *(found.parent or found).children, *found.children):
                        if other and other is not found:
                            inside = zip(other.keys, other.values, strict=False)
                            where = f"{other.level - found.level} {other.own_key.text}"
                            near |= {f"{where} {k.text}": v for k, v in islice(inside, _N_FIELDS)}
                    texts = _texts_at(near, ids)
                    marked = ("own key", 0, "") if key.text == "meaning" else None  # of LinkML
                    marked = entry.marked or marked
                    entries.append(entry._replace(texts=entry.texts | texts, marked=marked))
                if is_map:
                    records += (Record("map", [entry._replace(position=0)]) for entry in entries)
                else:
                    records.append(Record(kind, entries))
            if ids.fullmatch(found.own_key.text):
                below = {f"field {key.text}": value for key, value in pairs}
                entry = Entry(0, found.own_key, _texts_at(below, ids))
                records.append(Record(("own key", kind), [entry]))
            for key, value in pairs:
                if ids.fullmatch(key.text):
                    entry = Entry(0, key, _texts_at({"value": value}, ids))
                    records.append(Record(("key", found.level), [entry]))
    for found in objects:
        yield from order[id(found)]


def _texts_at(cells: Mapping[str, Cell], ids: re.Pattern[str]) -> dict[NamePlace, tuple[Cell, ...]]:
    """Return texts by their place, leaving out those without letters, and ids."""
    return {
        (kind, 0, ""): (cell,)
        for kind, cell in cells.items()
        if any(map(str.isalpha, cell.text)) and not ids.search(cell.text)
    }
