"""Read the pairs in a file, in the format of its suffix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from spacy_bioel.curation.ids import split_id
from spacy_bioel.curation.lines import line_pairs
from spacy_bioel.curation.pairs import Cell, Pair, named_pair
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
    """Return the format of a file; for tables, also "tsv", whose quotes belong to the names.

    RAISES BioelError: [B603] for an unknown format.
    """
    suffix = table_suffix(path)
    format = format or _FORMAT_OF_SUFFIX.get(suffix, "text")
    if format not in _FORMATS:
        raise BioelError(Errors.B603.format(found=format, known=", ".join(_FORMATS)))
    if format == "table" and str(path) != "-" and suffix not in WORKBOOKS:
        return "tsv" if separator_of(path) in UNQUOTED else format
    return format


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
    if table_suffix(path) in WORKBOOKS and format == "table":
        rows = ((place, row, "") for place, row in read_workbook(path))
        return table_pairs(path, rows, ids, options)
    is_whole = format in ("table", "tsv", "obo")
    lines = lines or (numbered_lines(path, ends=True) if is_whole else _pieces(path))
    lines = _text_lines(lines)
    if format == "obo":
        return _obo_pairs(path, lines, ids)
    if is_whole:
        separator = "," if str(path) == "-" else separator_of(path)
        return table_pairs(
            path, split_rows(lines, separator, quoted=format == "table"), ids, options
        )
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
        fields = [(line.partition(":"), place) for place, line in stanza]
        cells = [(f[0], Cell(f[2], place, len(f[0]) + 1).stripped()) for f, place in fields]
        first = dict(reversed(cells))
        is_current = kind == "Term" and not first.get("is_obsolete", Cell("")).text.startswith(
            "true"
        )
        if is_current and "id" in first and split_id(first["id"].text):
            yield named_pair(first["id"], first.get("name"))
        for tag, cell in cells:
            for pair in line_pairs(cell, ids) if tag in _OBO_TAGS else ():
                comment = re.match(r"\s*!", cell.text.partition(pair.id.text)[2])
                yield pair if comment else Pair(pair.id)
