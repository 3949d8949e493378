"""Rows of a separated table, with the number of their last line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.io.skipping import one_record


def read_rows(
    path: str | os.PathLike[str], *, separator: str, quoted: bool, encoding: str = "utf8"
) -> Iterator[tuple[int, list[str]]]:
    """Stream the rows of a table; blank lines are skipped.

    separator (str): One character between cells.
    quoted (bool): Whether double quotes protect separators and line ends, as in CSV. In other
        tables quotes are part of the names, and a single one would swallow the rows after it.
    YIELDS (tuple[int, list[str]]): Line number from 1, and cells.
    RAISES BioelError: [B126] broken quoting; errors of `open_text`.
    """
    lines = numbered_lines(path, encoding=encoding)
    if not quoted:
        for number, line in lines:
            if line.strip():
                yield number, line.split(separator)
        return
    number = 0

    def numbered() -> Iterator[str]:
        nonlocal number  # the reader's own count leaves out lines that were skipped
        for place, line in lines:
            number = place
            yield f"{line}\n"

    reader = csv.reader(numbered(), delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = Errors.B126.format(path=path, line=number, error=error)
            if "expected after" not in str(error):  # a quote that nothing closes swallows rows
                raise BioelError(problem) from None
            with one_record(path, number):
                raise BioelError(problem) from None
            continue
        if row is None:
            return
        if any(row):
            yield number, row
