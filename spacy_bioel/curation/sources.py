"""Read the pairs in a file, in the format of its suffix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from spacy_bioel.curation.ids import split_id
from spacy_bioel.curation.lines import line_pairs
from spacy_bioel.curation.pairs import Anchor, Pair, Reading, Style
from spacy_bioel.curation.tables import (
    UNQUOTED,
    Lines,
    TableOptions,
    delimited_rows,
    table_pairs,
    text_pairs,
    workbook_rows,
)
from spacy_bioel.curation.trees import json_pairs, yaml_pairs
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import WORKBOOKS, StrPath, numbered_lines
from spacy_bioel.io.table import separator_of, table_suffix

_FORMAT_OF_SUFFIX = {
    **dict.fromkeys((".csv", ".tsv", ".tab", *WORKBOOKS), "table"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    ".obo": "obo",
}
DEFAULTS = TableOptions()
FORMATS = ("text", *dict.fromkeys(_FORMAT_OF_SUFFIX.values()))
# Lines of OBO with the ids of other terms. Alternate ids are retired by definition.
_OBO_TAGS = frozenset(
    "is_a relationship intersection_of union_of disjoint_from equivalent_to xref".split()
)


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files, and the files in folders, sorted by name; hidden ones are left out."""
    for path in paths:
        if path.is_dir():
            found = (file for file in path.rglob("*") if file.is_file())
            yield from sorted(
                file
                for file in found
                if not any(p.startswith(".") for p in file.relative_to(path).parts)
            )
        else:
            yield path


def read_pairs(
    path: StrPath,
    ids: re.Pattern[str],
    *,
    format: str = "",
    options: TableOptions = DEFAULTS,
    lines: Lines | None = None,
) -> Iterator[Pair]:
    """Stream the pairs in a file.

    format (str): One of FORMATS; "": by suffix, or text.
    lines (Lines | None): Contents of the file, if they are not read from `path`.
    RAISES BioelError: [B600] if the file is not text, [B603] for an unknown format; the errors of
        the readers.
    """
    format = format or _FORMAT_OF_SUFFIX.get(table_suffix(path), "text")
    if format not in FORMATS:
        raise BioelError(Errors.B603.format(found=format, known=", ".join(FORMATS)))
    if format == "table" and table_suffix(path) in WORKBOOKS:
        return table_pairs(path, workbook_rows(path), ids, options)
    checked = _text_lines(numbered_lines(path, ends=True) if lines is None else lines)
    if format == "table":
        separator = separator_of(path) if lines is None else ","
        style = Style.TEXT if separator in UNQUOTED else Style.CSV
        return table_pairs(path, delimited_rows(checked, separator), ids, options, style)
    if format == "yaml":
        return yaml_pairs(path, "".join(line for _, line in checked), ids)
    return {"json": json_pairs, "obo": _obo_pairs, "text": text_pairs}[format](checked, ids)


def _text_lines(lines: Lines) -> Lines:
    for place, line in lines:
        if "\0" in line:
            raise BioelError(Errors.B600.format(where=place))
        yield place, line


def _obo_pairs(lines: Lines, ids: re.Pattern[str]) -> Iterator[Pair]:
    """Read the terms in an OBO file, and the ids of other terms, which a comment may name."""
    term: Pair | None = None
    is_obsolete = is_term = False
    for place, line in lines:
        tag, _, value = line.partition(":")
        if line.startswith("["):
            if term and not is_obsolete:
                yield term
            term, is_obsolete, is_term = None, False, line.startswith("[Term]")
        start = len(tag) + 1 + len(value) - len(value.lstrip())
        if tag == "id" and is_term and split_id(value.split("!")[0]):
            term = Pair(value.split()[0], place, start)
        elif tag == "name" and term:
            term = replace(term, readings=(Reading(value.strip(), start, line=place.line),))
        elif tag == "is_obsolete":
            is_obsolete = "true" in value
        elif tag in _OBO_TAGS:
            for pair in line_pairs(line.rstrip("\r\n"), place, ids):
                readings = tuple(r for r in pair.readings if r.anchor is Anchor.WHOLE and r.is_firm)
                yield replace(pair, readings=readings)
    if term and not is_obsolete:
        yield term
