"""Errors of a pipeline as rows, with the names of concepts and the text around each mention."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import writing
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.scoring.linking_errors import LinkingError
from spacy_bioel.types import Candidate, Link, Mention

NameOf = Callable[[str], str]  # from an id to its preferred name; "": unknown


# Columns of the file of errors, with their meaning for users.
COLUMNS = {
    "document": "id of the document",
    "kind": "the kind of the error",
    "marks": "its marks",
    "start": "where the gold mention begins, in characters; empty for a spurious prediction",
    "end": "where it ends",
    "string": "the gold mention as it stands in the text",
    "label": "its label",
    "gold_ids": "its ids, the current ones of retired ids; empty for NIL",
    "gold_names": "their preferred names; empty for an id that the knowledge base does not know",
    "predicted_start": "where the prediction begins; empty for a missed mention",
    "predicted_end": "where it ends",
    "predicted_string": "the prediction as it stands in the text",
    "predicted_label": "its label",
    "predicted_ids": "its ids; empty for NIL",
    "predicted_names": "their preferred names",
    "rank": "rank of the first gold id among the candidates, from 1; empty: not among them",
    "candidates": "id, matched name, score and evidence of each, the best first",
    "context": "the text around the gold mention, which is between [[ and ]]; around the "
    "prediction, if that is spurious",
}


_FORMATS = (".tsv", ".csv", ".jsonl")


_AROUND = 80  # characters of context on each side


_BETWEEN = " | "  # the entries of a list


def check_errors_file(path: Path) -> None:
    """RAISES BioelError: [B360] on another suffix than .tsv, .csv, .jsonl."""
    if path.suffix.lower() not in _FORMATS:
        raise BioelError(Errors.B360.format(path=path))


def write_errors(path: Path, errors: Iterable[LinkingError], name_of: NameOf) -> None:
    """Write all errors, a row each, in the format of the suffix."""
    rows = (row_of(error, name_of) for error in errors)
    with writing(path) as file:
        if path.suffix.lower() == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            return
        separator = "," if path.suffix.lower() == ".csv" else "\t"
        table = csv.writer(file, delimiter=separator, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows([_cell(row[column]) for column in COLUMNS] for row in rows)


def row_of(error: LinkingError, name_of: NameOf) -> dict[str, Any]:
    """An error by the names of `COLUMNS`; None where there is nothing to say."""
    before, mention, after = context_of(error)
    gold = _side(error, error.gold, name_of)
    link = _side(error, error.link, name_of)
    values = [
        *(error.text.id, error.kind, list(error.marks)),
        *gold,
        *link,
        error.rank or None,
        [_candidate(c) for c in error.link.candidates] if error.link else [],
        f"{before}[[{mention}]]{after}",
    ]
    return dict(zip(COLUMNS, values, strict=True))


def context_of(error: LinkingError) -> tuple[str, str, str]:
    """The text before a mention, the mention, and the text after it, each as one line."""
    text, place = error.text.text, error.place
    start, end = max(0, place.start - _AROUND), min(len(text), place.end + _AROUND)
    before, after = text[start : place.start], text[place.end : end]
    return (
        ("…" if start else "") + _one_line(before),
        _one_line(text[place.start : place.end]),
        _one_line(after) + ("…" if end < len(text) else ""),
    )


def _side(error: LinkingError, one: Mention | Link | None, name_of: NameOf) -> Sequence[Any]:
    """Start, end, string, label, ids and names of the gold mention or the prediction."""
    if one is None:
        return (None, None, None, None, [], [])
    string = _one_line(error.text.text[one.start : one.end])
    return one.start, one.end, string, one.label, list(one.ids), [name_of(id) for id in one.ids]


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {key: getattr(candidate, key) for key in ("id", "name", "score", "evidence")}


def describe_candidate(candidate: dict[str, Any]) -> str:
    """A candidate of a row in one line, "MESH:D003920 Diabetes (0.91, exact+dense)"."""
    return "{id} {name} ({score:.2f}, {evidence})".format(**candidate)


def _one_line(text: str) -> str:
    """White space and control characters as spaces; none is lost, as it may divide mention and
    context."""
    return "".join(" " if c.isspace() or c < " " else c for c in text)


def _cell(value: object) -> str:
    if isinstance(value, list):
        shown = (describe_candidate(v) if isinstance(v, dict) else v for v in value)
        return _BETWEEN.join(shown)
    return "" if value is None else str(value)
