"""Read id-name pairs from objects at any depth in JSON, JSON lines and YAML.

Both formats are read as a stream of events: brackets, and cells with keys and values.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, count, islice
from types import SimpleNamespace
from typing import NamedTuple

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.name_places import (
    N_RECORDS,
    Entry,
    IdRecord,
    NamePlace,
    NamePlaces,
    NameValues,
    no_values,
)
from spacy_bioel.plugins.curation.pairs import Cell, Pair
from spacy_bioel.plugins.curation.tables import IdColumns, Lines, name_columns, rows_records

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<end>"?)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)
_SCALAR = re.compile(r"true|false|null|~|[.]?nan|[+-]?[.]?inf(?:inity)?|[+-]?\d[\d.e_+-]*", re.I)
_MAX_STRING = 1 << 24  # maximum length of a string read in pieces
_MAX_LEVELS = 100
_N_FIELDS = 30  # number of fields read in a neighbouring object
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
    """Yield the events in JSON or JSON lines; a long line may come in pieces."""
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
                rest = token  # the next piece may continue this token
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
    """Yield the events in YAML. Aliases are followed only if they refer to strings."""
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
    """The strings in an object or list, and the objects around and inside it.

    own_key (Cell): Key of the object or, in a list, key of the list.
    keys (list[Cell]): Keys of the strings; in a list, their numbers.
    parent (_Object | None): The object around this object.
    children (list[_Object]): Objects and lists that are values in this object.
    """

    level: int
    own_key: Cell
    parent: _Object | None
    keys: list[Cell]
    values: list[Cell]
    children: list[_Object]

    @property
    def fields(self) -> Iterator[tuple[Cell, Cell]]:
        return zip(self.keys, self.values, strict=True)


def tree_pairs(
    events: Iterable[Cell], ids: re.Pattern[str], values: NameValues = no_values
) -> Iterator[Pair]:
    """Yield the pairs in objects and lists. RAISES BioelError: [B601] for a malformed tree."""
    stream = iter(events)
    objects = (
        _objects_in(stream, event, "$", _Object(0, _NOTHING, None, [], [], [])) for event in stream
    )
    iterator = chain.from_iterable(objects)
    while batch := list(islice(iterator, N_RECORDS)):
        yield from NamePlaces(list(_records_of(batch, ids)), values).pairs()


def _objects_in(
    stream: Iterator[Cell], first: Cell, path: str, found: _Object
) -> Iterator[_Object]:
    """Fill the object that begins with event `first`; yield its inner objects, then the object."""
    if not first.name:  # a string alone
        found.keys.append(_NOTHING)
        found.values.append(first._replace(name=path).stripped())
        yield found
        return
    if found.level >= _MAX_LEVELS or first.name in "}]":
        what = f"more than {_MAX_LEVELS} levels" if found.level >= _MAX_LEVELS else repr(first.name)
        raise _tree_error(first.place, what)
    is_object = first.name == "{"
    for index in count():
        key = event = next(stream, None)
        if is_object and key is not None and not key.name:
            event = next(stream, None)
        if key is None or event is None:
            raise _tree_error(first.place, "the end of the file")
        if first.name + event.name in ("{}", "[]"):
            break
        below = f"{path}.{key.text}" if is_object else f"{path}[{index}]"
        if event.name:
            around = (key, found) if is_object else (found.own_key, found.parent)
            inner = _Object(found.level + 1, *around, [], [], [])
            found.children.extend([inner] * is_object)
            yield from _objects_in(stream, event, below, inner)
        elif event.text:
            found.keys.append(key if is_object else Cell(str(index), at=-1))
            found.values.append(event._replace(name=below).stripped())
    yield found


def _records_of(objects: Sequence[_Object], ids: re.Pattern[str]) -> Iterator[IdRecord]:
    """Read objects with ids at the same keys as if they were rows of one table."""
    tables: dict[tuple[int, frozenset[str]], list[_Object]] = defaultdict(list)
    for found in objects:
        with_ids = frozenset(key.text for key, value in found.fields if ids.fullmatch(value.text))
        tables[found.level, with_ids].append(found)
    records: dict[int, list[IdRecord]] = {}
    for kind, table in tables.items():
        keys = list(dict.fromkeys(key.text for found in table for key in found.keys))
        columns = name_columns(tuple(keys))
        layout = "map" if len(table) == 1 and not columns else kind  # names are keys
        for found in table:
            records[id(found)] = list(_read_object(found, keys, layout, columns, ids))
    for found in objects:
        yield from records[id(found)]


def _read_object(
    found: _Object,
    keys: Sequence[str],
    layout: Hashable,
    columns: IdColumns,
    ids: re.Pattern[str],
) -> Iterator[IdRecord]:
    """Read the ids in an object, and the strings that may be their names. A name may also be the
    key of the id or the object, or a value in a neighbouring object or list. An id may be the key
    of a name, or of the object that contains the name."""
    pairs = {key.text: (key, value) for key, value in found.fields}
    row = [pairs.get(key, (_NOTHING, _NOTHING)) for key in keys]
    near, lists = {"own key": found.own_key}, dict[str, list[Cell]]()
    beside = found.parent.children if found.parent else []
    for other in filter(None, (found.parent, *beside, *found.children)):
        where = f"{other.level - found.level} {other.own_key.text}"
        if other is not found and [k.text for k in other.keys[:1]] != ["0"]:
            near |= {f"{where} {k.text}": v for k, v in islice(other.fields, _N_FIELDS)}
        elif other is not found and [k.text for k in other.keys] == keys:
            lists[where] = other.values
    for record in rows_records([[value for _, value in row]], columns, ids):
        entries = record.entries
        for entry in entries if record.layout == "row" else ():
            key = row[entry.position][0]
            same = {where: values[entry.position] for where, values in lists.items()}
            texts = entry.texts | _texts_at({"key": key, **near, **same}, ids)
            marked = ("own key", 0, "") if key.text == "meaning" else None  # as in LinkML
            entry = entry._replace(texts=texts, marked=entry.marked or marked)
            if layout == "map" or lists:
                yield IdRecord((found.level, "map"), [entry._replace(position=0)])
            else:
                yield IdRecord(layout, [entry])
        if record.layout != "row":
            yield record
    with_name = [(key, {"value": value}) for key, value in row]
    with_name.append((found.own_key, {f"field {key}": value for key, (_, value) in pairs.items()}))
    for id, cells in with_name:
        if ids.fullmatch(id.text):
            yield IdRecord(("key", found.level, *cells), [Entry(0, id, _texts_at(cells, ids))])


def _texts_at(cells: Mapping[str, Cell], ids: re.Pattern[str]) -> dict[NamePlace, tuple[Cell, ...]]:
    """Return texts keyed by place, excluding ids and texts without letters."""
    return {
        (kind, 0, ""): (cell,)
        for kind, cell in cells.items()
        if any(map(str.isalpha, cell.text)) and not ids.search(cell.text)
    }
