"""Formats that are one text file: a start, the documents, an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TextIO

from spacy_bioel.distributed.rows import LinkedText

Write = Callable[[LinkedText], None]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A format that is written document by document.

    document (Callable): From a document to its text.
    start, between, end (str): Text around the documents.
    has_failures (bool): Whether documents that failed are written too, with their error, and
        those without an id have none. Otherwise the former are left out, and the latter numbered.
    """

    document: Callable[[LinkedText], str]
    start: str = ""
    between: str = ""
    end: str = ""
    has_failures: bool = False

    @contextmanager
    def writing(self, file: TextIO) -> Iterator[Write]:
        """Write a file. YIELDS (Callable[[LinkedText], None]): Writes one document."""
        numbers, between = count(1), ""

        def write(one: LinkedText) -> None:
            nonlocal between
            number = next(numbers)
            if not self.has_failures:
                if one.error is not None:
                    return
                one = numbered(one, number)
            file.write(between + self.document(one))
            between = self.between

        file.write(self.start)
        yield write
        file.write(self.end)


def numbered(one: LinkedText, number: int) -> LinkedText:
    """The document, with its number as its id if it has none."""
    return one if one.id and not one.id.isspace() else replace(one, id=str(number))
