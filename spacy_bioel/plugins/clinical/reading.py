"""Read patients' notes from folders, tables and JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from spacy_bioel.cli.inputs import is_text, read_folder
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.rows import Document
from spacy_bioel.io.jsonl import read_documents_jsonl
from spacy_bioel.io.table import is_text_table, read_text_table
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.patients import Note

_DATE = re.compile(
    r"(?<!\d)(?:(?:19|20)\d\d([-_.]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])"
    r"|\d\d?([-_.])\d\d?\2(?:19|20)\d\d)(?!\d)"  # rejected as ambiguous: 03-04-2024
)


def stream_notes(sources: list[str], patient_column: str, date_column: str) -> Iterator[Note]:
    """Stream patients' notes from folders or, with `patient_column`, from tables and JSON lines.

    RAISES BioelError: [B101] for a missing file, [B513] for two folders with one name, [B594] for
        notes beside folders of notes, [B595] for other input; later [B596] for a missing patient,
        [B598] for a wrong date, and the errors of `stream_documents`.
    """
    folders: dict[str, Path] = {}
    rows: list[Iterator[tuple[Any, ...]]] = []
    for source in sources:
        path = Path(source)
        if not path.exists():
            raise BioelError(Errors.B101.format(path=path))
        if path.is_dir() and not (patient_column or date_column):
            below = [folder for folder in sorted(path.glob("[!.]*")) if folder.is_dir()]
            note = next(filter(is_text, path.iterdir()), None)
            if note and (inner := next(filter(is_text, path.glob("[!.]*/*")), None)):
                raise BioelError(
                    ClinicalErrors.B594.format(path=path, note=note.name, folder=inner.parent)
                )
            is_patient = not below or note is not None
            for folder in [path] if is_patient else below:
                name = folder.resolve().name
                if (first := folders.setdefault(name, folder)) is not folder:
                    raise BioelError(Errors.B513.format(first=first, second=folder, id=name))
                rows.append(_with_dates(read_folder(folder), name))
        elif patient_column and is_text_table(path):
            rows.append(read_text_table(path, patient_column, date_column))
        elif patient_column and {".jsonl", ".ndjson"} & {*path.suffixes}:
            rows.append(read_documents_jsonl(path, patient_column, date_column))
        else:
            raise BioelError(ClinicalErrors.B595.format(source=source))
    return (_to_note(row, patient_column) for row in chain.from_iterable(rows))


def _with_dates(documents: Iterable[Document], patient: str) -> Iterator[tuple[Any, ...]]:
    """Yield (text, id, patient, dates) for each document, with the dates found in its id."""
    for text, id in documents:
        found = _DATE.finditer(id or "")
        dates = {match[0] if match[2] else re.sub(r"\D", "", match[0]) for match in found}
        yield text, id, patient, " and ".join(sorted(dates))


def _to_note(row: tuple[Any, ...], column: str) -> Note:
    text, id, patient, when = row
    if patient is None or not (patient := str(patient).strip()):
        raise BioelError(ClinicalErrors.B596.format(id=id, column=column))
    return Note(text, id, patient, iso_date(when, f"{id} of {patient:.40}"))


def iso_date(value: Any, where: str) -> str:
    """Return a date or time as an ISO date; "" if empty. RAISES BioelError: [B598] if malformed."""
    try:
        return datetime.fromisoformat(str(value).strip()).date().isoformat() if value else ""
    except ValueError:
        raise BioelError(ClinicalErrors.B598.format(where=where, found=str(value))) from None
