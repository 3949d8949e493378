"""Read pairs of a name and an id from objects in JSON, JSON lines and YAML, at any depth.

Both formats are read as a stream of events: brackets, and cells with keys and values.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import count, groupby, islice
from types import SimpleNamespace
from typing import NamedTuple

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.name_places import NameValues, choose_columns, no_values
from spacy_bioel.plugins.curation.pairs import Cell, Pair, named_pair
from spacy_bioel.plugins.curation.tables import Lines, name_columns, row_pairs

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<end>"?)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)
_SCALAR = re.compile(r"true|false|null|~|[.]?nan|[+-]?[.]?inf(?:inity)?|[+-]?\d[\d.e_+-]*", re.I)
_MAX_STRING = 1 << 24  # characters of a string that is read in pieces
_MAX_LEVELS = 100
_N_OBJECTS = 4000  # that are compared at a time
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


def tree_pairs(
    events: Iterable[Cell], ids: re.Pattern[str], values: NameValues = no_values
) -> Iterator[Pair]:
    """Yield the pairs in objects and lists. RAISES BioelError: [B601] for what is not a tree."""
    iterator = _objects(events)
    while batch := list(islice(iterator, _N_OBJECTS)):
        yield from _pairs_of(batch, ids, values)


def _objects(events: Iterable[Cell]) -> Iterator[_Object]:
    """Yield the objects in a tree, at their ends; a string in a list is an object without keys."""
    stream = iter(events)
    nothing = Cell("", at=-1)

    def inside(opening: Cell, path: str, level: int, own_key: Cell) -> Iterator[_Object]:
        if level > _MAX_LEVELS:
            raise _tree_error(opening.place, f"more than {_MAX_LEVELS} levels")
        is_object = opening.name == "{"
        found = _Object(level, own_key, [], [])
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
                inner = value(event, below, level, key if is_object else own_key)
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
        event: Cell, path: str = "$", level: int = 0, own_key: Cell = nothing
    ) -> Iterator[_Object]:
        if event.name in ("}", "]"):
            raise _tree_error(event.place, repr(event.name))
        if event.name:
            return inside(event, path, level + 1, own_key)
        return iter([_Object(level, own_key, [], [event._replace(name=path).stripped()])])

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
            yield _Object(columns[0].level, Cell("", at=-1), keys, list(values))


def _pairs_of(
    objects: Sequence[_Object], ids: re.Pattern[str], values: NameValues
) -> Iterator[Pair]:
    """Read objects as rows of tables. A name may also be the key of an id or of its object."""
    tables: dict[tuple[int, frozenset[str]], list[_Object]] = defaultdict(list)
    entries: tuple[list[list[Cell]], list[list[Cell]]] = [], []  # with ids as keys, and as values
    kinds = []
    for found in objects:
        pairs = list(zip(found.keys, found.values, strict=False))
        kinds.append((found.level, frozenset(k.text for k, v in pairs if ids.fullmatch(v.text))))
        tables[kinds[-1]].append(found)
        for pair in pairs:
            for place in (0, 1):
                entries[place].extend([list(pair)] * bool(ids.fullmatch(pair[place].text)))
    known = {kind: _name_keys(table, kind[1], values) for kind, table in tables.items()}
    has_entries = [choose_columns(entries[place], [place], values) for place in (0, 1)]
    for found, kind in zip(objects, kinds, strict=True):
        keys = {key.text: i for i, key in enumerate(found.keys)}
        columns = name_columns(tuple(keys))
        cells = [*found.values, found.own_key, *found.keys]
        for key, i in keys.items():
            column, prefix = columns.get(i, (-1, ""))
            name = known[kind].get(key)
            if name in keys:
                column = keys[name]
            elif name == "" or (key == "meaning" and column < 0):  # in LinkML
                column = len(found.keys)
            elif key in kind[1] and has_entries[1]:
                column = len(found.keys) + 1 + i
            if i in columns or column >= 0:
                columns[i] = column, prefix
        extra = frozenset(cells[len(found.values) :])
        yield from (pair for pair in row_pairs(cells, columns, ids) if pair.id not in extra)
        for cell, value in zip(found.keys, found.values, strict=False):
            if ids.fullmatch(cell.text):
                yield named_pair(cell, value if has_entries[0] else None)


def _name_keys(
    table: Sequence[_Object], id_keys: Collection[str], values: NameValues
) -> dict[str, str]:
    """Return the keys of the names of ids in similar objects, by key; "": the key of the object."""
    keys = list(dict.fromkeys(key.text for found in table for key in found.keys))
    rows = []
    for found in table:
        by_key = {key.text: v for key, v in zip(found.keys, found.values, strict=False)}
        rows.append([found.own_key, *(by_key.get(key, Cell("")) for key in keys)])
    places = [place for place, key in enumerate(keys, 1) if key in id_keys]
    chosen = choose_columns(rows, places, values)
    return {keys[p - 1]: keys[q - 1] if q else "" for p, q in chosen.items()}
