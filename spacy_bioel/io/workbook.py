"""Reader for Excel workbooks (.xlsx)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.io.open import Place, StrPath, check_size

WORKBOOKS = (".xlsx", ".xlsm")
# Types of cells, as in openpyxl, whose text may not be what was typed.
_CHANGED = {
    "b": "a truth value",
    "d": "a date (Excel turns names such as MARCH1 and SEPT2 into dates)",
    "e": "an error",
    "f": "a formula",
    "long": "a number with more than 15 digits, of which Excel keeps 15",
}
_ZEROS = re.compile("0{2,}")  # a number format that shows leading zeros


class ChangedCell(str):
    """Message on a cell whose text may not be what was typed, an error if the cell is used."""


def read_workbook(path: StrPath) -> Iterator[tuple[Place, list[str]]]:
    """Stream the rows of the only sheet with contents, as Excel shows them.

    RAISES BioelError: [B101] if the file does not exist, [B104] if it is not a workbook, [B192]
        without openpyxl, [B478] if it unpacks to too many bytes, [B515] if not one sheet has
        contents.
    """
    with needing("xlsx", "Excel workbooks"):
        from openpyxl import load_workbook
    try:
        with zipfile.ZipFile(path) as archive:
            check_size(sum(part.file_size for part in archive.infolist()), Path(path))
        sheets, width = [], 0
        for sheet in load_workbook(path, read_only=True).worksheets:
            sheet.reset_dimensions()  # some programs write a wrong size
            if any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row):
                sheets.append(sheet)
        if len(sheets) != 1:
            names = ", ".join(sheet.title for sheet in sheets) or "none"
            raise BioelError(Errors.B515.format(path=path, names=names))
        for number, cells in enumerate(sheets[0].iter_rows(), start=1):
            row = [_text_of(cell) for cell in cells]
            width = max(width, len(row))  # rows end at their last cell
            yield Place(path, number), row + [""] * (width - len(row))
    except BioelError:
        raise
    except FileNotFoundError:
        raise BioelError(Errors.B101.format(path=path)) from None
    except Exception as error:  # damaged: openpyxl raises many exception types
        raise BioelError(Errors.B104.format(path=path, error=error)) from error


def _text_of(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    is_float = isinstance(value, float)
    text = f"{value:.15g}" if is_float else str(value).removesuffix(" 00:00:00")
    if changed := _CHANGED.get("long" if is_float and abs(value) >= 1e15 else cell.data_type):
        return ChangedCell(f"{text!r:.80} is {changed}")
    return text.zfill(len(cell.number_format)) if _ZEROS.fullmatch(cell.number_format) else text
