"""Cells and lines that the tables of the README have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

Row = dict[str, Any]
MISSING = "–"
CORPORA = {
    "ncbi_disease": "NCBI Disease",
    "bc5cdr_disease": "BC5CDR, diseases",
    "bc5cdr_chemical": "BC5CDR, chemicals",
    "bc5cdr": "BC5CDR",
    "medmentions_st21pv": "MedMentions ST21pv",
    "medmentions": "MedMentions",
    "cometa": "COMETA",
    "askapatient": "AskAPatient",
    "twadrl": "TwADR-L",
}


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    texts = [f"| {' | '.join(row)} |" for row in rows]
    texts[1] = f"|{'---|' * len(columns)}"
    return "\n".join(texts)


def in_order(names: dict[str, str], rows: Iterable[Row], key: str) -> list[str]:
    """The values of a key that occur, in the order of `names`; others after them."""
    found = {row[key] for row in rows}
    return [name for name in names if name in found] + sorted(found - set(names))


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def mean_of(rows: Sequence[Row]) -> str:
    """Mean value of some results, and how many things each of them was measured on."""
    if not rows:
        return MISSING
    return f"{fmean(row['value'] for row in rows):.1f} ({rows[0]['n']:,})"


def commands_note(rows: Sequence[Row], file: str) -> str:
    """The command of the first of some results, and where the others are."""
    return f"First line: `{rows[0]['command']}`; the others: `benchmarks/results/{file}.json`."


def seeds_of(rows: Iterable[Row]) -> str:
    return ", ".join(map(str, sorted({row["seed"] for row in rows if row.get("seed") is not None})))
