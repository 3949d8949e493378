"""UMLS Rich Release Format: MRCONSO with MRSTY, MRDEF and MRCUI, merged by CUI while reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.io.records import one_record, unique_names
from spacy_bioel.types import Concept

# The columns of MRCONSO that are read, of 18.
_LAT, _TS, _STT, _ISPREF, _AUI, _SAB, _CODE, _STR, _SUPPRESS = 1, 2, 4, 6, 7, 11, 13, 14, 16
_NO_CODE = ("", "NOCODE")
_SUPPRESSED = ("O", "E", "Y")  # obsolete, or suppressible
_N_COLUMNS = {"MRCONSO": 18, "MRSTY": 6, "MRDEF": 8, "MRCUI": 7}

_Row = list[str]


def read_umls(meta_dir: str | os.PathLike[str]) -> Iterator[Concept]:
    """Stream the concepts of a UMLS release.

    The files are sorted by CUI and read in parallel, with one concept in memory at a time. Atoms
    that are suppressed or not English are dropped; a concept without a remaining name is skipped.
    Retired CUIs come last, if MRCUI has one successor (a synonym, else the only related
    CUI).

    meta_dir (str | PathLike): Folder with MRCONSO.RRF and MRSTY.RRF; MRDEF.RRF and MRCUI.RRF are
        optional. Each may be compressed: MRCONSO.RRF.gz, MRCONSO.RRF.zst.
    YIELDS (Concept): The id is the bare CUI, types are TUIs, the UMLS preferred name is first.
    RAISES BioelError: [B123] missing file, [B124] not sorted by CUI, [B125] row too short;
        errors of `numbered_lines`.
    """
    folder = Path(meta_dir)
    types = _InStep(_groups(_file(folder, "MRSTY"), "MRSTY"))
    definitions = _InStep(_optional_groups(folder, "MRDEF"))
    for cui, rows in _groups(_file(folder, "MRCONSO"), "MRCONSO"):
        atoms = [row for row in rows if row[_LAT] == "ENG" and row[_SUPPRESS] not in _SUPPRESSED]
        if not atoms:
            continue
        yield Concept(
            cui,
            unique_names([row[_STR] for row in sorted(atoms, key=_rank)]),
            types=tuple(dict.fromkeys(row[1] for row in types.rows(cui))),
            definition=_definition(definitions.rows(cui), {row[_AUI] for row in atoms}),
            xrefs=tuple(dict.fromkeys(_code(row) for row in atoms if row[_CODE] not in _NO_CODE)),
        )
    for cui, rows in _optional_groups(folder, "MRCUI"):
        successor = _successor(rows)
        if successor:
            yield Concept(cui, (), replaced_by=successor)


class _InStep:
    """Rows of another file sorted by CUI, for CUIs in ascending order."""

    def __init__(self, groups: Iterator[tuple[str, list[_Row]]]) -> None:
        self._groups = groups
        self._next = next(groups, None)

    def rows(self, cui: str) -> list[_Row]:
        while self._next is not None and self._next[0] < cui:
            self._next = next(self._groups, None)
        return self._next[1] if self._next is not None and self._next[0] == cui else []


def _code(row: _Row) -> str:
    """Code of an atom in its vocabulary: "MSH:D003924". Codes as "HP:0001250" are whole ids."""
    return row[_CODE] if ":" in row[_CODE] else f"{row[_SAB]}:{row[_CODE]}"


def _rank(row: _Row) -> tuple[bool, bool, bool]:
    """Sort key with the preferred name of the concept first."""
    return row[_TS] != "P", row[_STT] != "PF", row[_ISPREF] != "Y"


def _definition(rows: list[_Row], atoms: set[str]) -> str:
    """First definition of one of the atoms that is in force; "" for none."""
    for row in rows:
        if row[1] in atoms and row[6] == "N":
            return row[5].strip()
    return ""


def _successor(rows: list[_Row]) -> str:
    for relation in ("SY", "RO"):
        successors = {row[5] for row in rows if row[2] == relation and row[5]}
        if len(successors) == 1:
            return successors.pop()
    return ""


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}.RRF{packed}" for packed in ("", ".gz", ".zst"))
    return next((path for path in candidates if path.is_file()), None)


def _file(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise BioelError(Errors.B123.format(folder=folder, name=name))
    return path


def _optional_groups(folder: Path, name: str) -> Iterator[tuple[str, list[_Row]]]:
    path = _find(folder, name)
    return iter(()) if path is None else _groups(path, name)


def _groups(path: Path, name: str) -> Iterator[tuple[str, list[_Row]]]:
    """Rows grouped by CUI. RAISES BioelError: [B124] when the CUIs do not ascend."""
    previous = ""
    for cui, rows in groupby(_rows(path, _N_COLUMNS[name]), key=lambda numbered: numbered[1][0]):
        group = list(rows)
        if cui < previous:
            raise BioelError(
                Errors.B124.format(path=path, line=group[0][0], cui=cui, previous=previous)
            )
        previous = cui
        yield cui, [row for _, row in group]


def _rows(path: Path, n_columns: int) -> Iterator[tuple[int, _Row]]:
    for number, line in numbered_lines(path):
        row = line.split("|")
        with one_record(path, number):
            if len(row) < n_columns:
                raise BioelError(
                    Errors.B125.format(path=path, line=number, n=len(row), expected=n_columns)
                )
            yield number, row
