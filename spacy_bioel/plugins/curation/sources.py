"""Read the id-name pairs in a file; its suffix determines the format."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType

from spacy_bioel.errors import BioelError
from spacy_bioel.io.ontology import obo_stanzas
from spacy_bioel.io.open import WORKBOOKS, Place, open_text, read_workbook
from spacy_bioel.io.table import UNQUOTED, Column, separator_of, split_rows, table_suffix
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.ids import split_id
from spacy_bioel.plugins.curation.name_places import NameValues, no_values
from spacy_bioel.plugins.curation.pairs import Cell, Pair, named_pair
from spacy_bioel.plugins.curation.tables import Lines, table_pairs, text_pairs
from spacy_bioel.plugins.curation.trees import json_events, tree_pairs, yaml_events

_FORMAT_OF_SUFFIX = {
    **dict.fromkeys(WORKBOOKS, "workbook"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    ".obo": "obo",
}
# OBO tags for ids of other terms. Alternate ids are excluded: they are retired by definition.
_OBO_TAGS = frozenset(
    "is_a relationship intersection_of union_of disjoint_from equivalent_to xref".split()
)
_PIECE_LENGTH = 1 << 20  # number of characters of a line read at a time


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the given files, and the visible files in the given folders, sorted by name."""
    for path in paths:
        if path.is_dir():
            inside = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
            visible = (file for file in inside if not any(p[0] == "." for p in file.parts))
            yield from (path / file for file in sorted(visible))
        else:
            yield path


def format_of_file(path: Path) -> str:
    """Return the format of a file: "text", "workbook", "csv", "tsv", "json", "yaml" or "obo".

    In "tsv", quotes are part of the names.
    """
    format = _FORMAT_OF_SUFFIX.get(table_suffix(path), "text")
    return "tsv" if format == "csv" and separator_of(path) in UNQUOTED else format


def read_pairs(
    path: Path,
    ids: re.Pattern[str],
    *,
    columns: Mapping[str, Column] = MappingProxyType({}),
    prefix: str = "",
    values: NameValues = no_values,
) -> Iterator[Pair]:
    """Stream the pairs in a file; "-" is stdin, read as text. columns, prefix: See `table_pairs`.

    RAISES BioelError: [B600] if the file is not text; the errors of the readers.
    """
    match format_of_file(path):
        case "workbook":
            rows = ((place, row, "") for place, row in read_workbook(path, is_only=False))
            parts = groupby(rows, key=lambda row: row[0].sheet)
            read = (table_pairs(path, p, ids, columns, prefix, values) for _, p in parts)
            return chain.from_iterable(read)
        case "csv" | "tsv" as format:
            records = split_rows(file_lines(path), separator_of(path), quoted=format == "csv")
            return table_pairs(path, records, ids, columns, prefix, values)
        case "obo":
            return _obo_pairs(path, file_lines(path), ids)
        case "json":
            return tree_pairs(json_events(file_lines(path, _PIECE_LENGTH)), ids, values)
        case "yaml":
            pairs = list(tree_pairs(yaml_events(file_lines(path, _PIECE_LENGTH)), ids, values))
            if any(pair.names for pair in pairs):  # otherwise, names may be in comments
                return iter(pairs)
    return text_pairs(file_lines(path, _PIECE_LENGTH), ids, values)


def file_lines(path: Path, most: int = -1) -> Iterator[tuple[Place, str]]:
    """Yield a file's lines, including their line endings.

    most (int): Longer lines are read in pieces of about this size, which end after a space.
    """
    is_stdin = str(path) == "-"
    if is_stdin and isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf8", errors="replace", newline="\n")
    with nullcontext(sys.stdin) if is_stdin else open_text(path) as file:
        place, rest = Place("stdin" if is_stdin else path, 1), ""
        head = b"" if is_stdin else file.buffer.peek()  # type: ignore[union-attr]
        if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16
            raise BioelError(CurationErrors.B600.format(where=place))
        while (line := file.readline(most)) or rest:
            piece, rest = rest + line, ""
            if len(line) == most and " " in piece and line[-1] != "\n":
                piece, space, rest = piece.rpartition(" ")
                piece += space
            if "\0" in piece:
                raise BioelError(CurationErrors.B600.format(where=place))
            yield place, piece
            place = place._replace(line=place.line + piece.endswith("\n"))


def _obo_pairs(path: Path, lines: Lines, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read an OBO file's terms, and other terms' ids with their names from comments."""
    for kind, stanza in obo_stanzas(path, lines):
        fields = [(line.partition(":"), place) for place, line in stanza]
        cells = [(f[0], Cell(f[2], place, len(f[0]) + 1).stripped()) for f, place in fields]
        first = dict(reversed(cells))
        is_obsolete = first.get("is_obsolete", Cell("")).text.startswith("true")
        if kind == "Term" and not is_obsolete and split_id(first.get("id", Cell("")).text):
            yield named_pair(first["id"], first.get("name"))
        for tag, cell in cells:
            for match in ids.finditer(cell.text) if tag in _OBO_TAGS else ():
                end = cell.text.rfind("!", match.end()) + 1
                name = cell.part(cell.text[end:], end).stripped() if end else None
                yield named_pair(cell.part(match[0], match.start()), name)
