"""Read the pairs in a file, in the format of its suffix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from spacy_bioel.curation.ids import split_id
from spacy_bioel.curation.lines import line_pairs
from spacy_bioel.curation.pairs import Cell, Pair, cell_pair
from spacy_bioel.curation.tables import Lines, TableOptions, table_pairs, text_pairs
from spacy_bioel.curation.trees import json_events, tree_pairs, yaml_events
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.ontology import obo_stanzas
from spacy_bioel.io.open import WORKBOOKS, Place, numbered_lines, open_text, read_workbook
from spacy_bioel.io.table import UNQUOTED, separator_of, split_rows, table_suffix

_FORMAT_OF_SUFFIX = {
    **dict.fromkeys((".csv", ".tsv", ".tab", *WORKBOOKS), "table"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    ".obo": "obo",
}
_DEFAULTS = TableOptions()
_FORMATS = ("text", *dict.fromkeys(_FORMAT_OF_SUFFIX.values()))
# Lines of OBO with the ids of other terms. Alternate ids are retired by definition.
_OBO_TAGS = frozenset(
    "is_a relationship intersection_of union_of disjoint_from equivalent_to xref".split()
)
_PIECE = 1 << 20  # characters of a line that are read at a time


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files, and the files in folders, sorted by name; hidden ones are left out."""
    for path in paths:
        if path.is_dir():
            inside = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
            visible = (file for file in inside if not any(p[0] == "." for p in file.parts))
            yield from (path / file for file in sorted(visible))
        else:
            yield path


def format_of_file(path: Path, format: str = "") -> str:
    """Return the format of a file. RAISES BioelError: [B603] for an unknown format."""
    format = format or _FORMAT_OF_SUFFIX.get(table_suffix(path), "text")
    if format not in _FORMATS:
        raise BioelError(Errors.B603.format(found=format, known=", ".join(_FORMATS)))
    return format


def style_of_file(path: Path, format: str = "") -> str:
    """Return how strings are escaped in a file: as in "csv", or in its format."""
    format = format_of_file(path, format)
    is_csv = format == "table" and separator_of(path) not in UNQUOTED
    return "csv" if is_csv else format


def read_pairs(
    path: Path,
    ids: re.Pattern[str],
    *,
    format: str = "",
    options: TableOptions = _DEFAULTS,
    lines: Lines | None = None,
) -> Iterator[Pair]:
    """Stream the pairs in a file.

    format (str): One of "text", "table", "json", "yaml" and "obo"; "": by suffix.
    lines (Lines | None): Contents of the file, if they are not read from `path`.
    RAISES BioelError: [B600] if the file is not text, [B603] for an unknown format; the errors of
        the readers.
    """
    format = format_of_file(path, format)
    if format == "table" and table_suffix(path) in WORKBOOKS:
        rows = ((place, row, "") for place, row in read_workbook(path))
        return table_pairs(path, rows, ids, options)
    if format in ("table", "obo"):
        lines = _text_lines(lines or numbered_lines(path, ends=True))
        if format == "obo":
            return _obo_pairs(path, lines, ids)
        separator = "," if str(path) == "-" else separator_of(path)
        quoted = separator not in UNQUOTED
        return table_pairs(path, split_rows(lines, separator, quoted=quoted), ids, options)
    lines = _text_lines(lines or _pieces(path))
    if format == "text":
        return text_pairs(lines, ids)
    return tree_pairs((json_events if format == "json" else yaml_events)(lines), ids)


def _pieces(path: Path) -> Iterator[tuple[Place, str]]:
    """Stream lines; long ones in pieces that end after a space, so that memory stays small."""
    with open_text(path) as file:
        number, rest = 1, ""
        while line := file.readline(_PIECE):
            line, rest = rest + line, ""
            if len(line) >= _PIECE and " " in line and not line.endswith("\n"):
                line, space, rest = line.rpartition(" ")
                line += space
            yield Place(path, number), line
            number += line.endswith("\n")
        if rest:
            yield Place(path, number), rest


def _text_lines(lines: Lines) -> Lines:
    for place, line in lines:
        if "\0" in line:
            raise BioelError(Errors.B600.format(where=place))
        yield place, line


def _obo_pairs(path: Path, lines: Lines, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the terms in an OBO file, and the ids of other terms, which a comment may name."""
    for kind, stanza in obo_stanzas(path, lines):
        values: list[tuple[str, Cell]] = []
        for place, line in stanza:
            tag, _, value = line.partition(":")
            values.append((tag, Cell(value, place, len(tag) + 1).stripped()))
        first = dict(reversed(values))
        is_obsolete = "is_obsolete" in first and first["is_obsolete"].text.startswith("true")
        if kind == "Term" and not is_obsolete and "id" in first and split_id(first["id"].text):
            yield cell_pair(first["id"], first.get("name"))
        for tag, cell in values:
            if tag in _OBO_TAGS:
                for pair in line_pairs(cell, ids):
                    is_named = re.match(r"\s*!", cell.text.partition(pair.id)[2])
                    yield pair if is_named else replace(pair, names=(), has_name=False)
