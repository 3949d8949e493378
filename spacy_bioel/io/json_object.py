"""Streaming of large JSON objects, entry by entry, so that they need not fit into memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, TextIO

from spacy_bioel.errors import BioelError
from spacy_bioel.io.json_values import check_value
from spacy_bioel.io.open import open_text

_CHUNK = 1 << 20
_NOT_SPACE = re.compile(r"\S")


def iter_json_object(path: str | os.PathLike[str], *, problem: str) -> Iterator[tuple[str, Any]]:
    """Stream the entries of a file that is one JSON object, with one entry in memory at a time.

    problem (str): Template of `Errors` with {path} and {found}, for files with other contents.
    YIELDS (tuple[str, Any]): Key and value.
    RAISES BioelError: Errors of `open_text`; the error of `problem`.
    """
    key = ""
    with open_text(path) as file:
        try:
            for key, value in _entries(_Reader(file)):
                yield key, value
        except (BioelError, UnicodeDecodeError):  # of the file, not of JSON
            raise
        except ValueError as error:
            message = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            found = f"{message}, after {key!r}" if key else message
            raise BioelError(problem.format(path=path, found=found)) from error


def _entries(reader: _Reader) -> Iterator[tuple[str, Any]]:
    reader.take("{")
    mark = reader.take("}") if reader.peek() == "}" else ","
    while mark == ",":
        if reader.peek() != '"':
            raise reader.error("a key in quotes")
        key = reader.value()
        reader.take(":")
        yield key, reader.value()
        mark = reader.take(",}")
    if reader.peek():
        raise reader.error("nothing more")


class _Reader:
    """Reader of JSON values and the marks between them, from a file that is read in chunks."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def peek(self) -> str:
        """Next character that is not white space, which stays; "" at the end of the file."""
        while not (found := _NOT_SPACE.search(self._text, self._at)):
            self._at = len(self._text)
            if not self._read_on():
                return ""
        self._at = found.start()
        return found[0]

    def take(self, marks: str) -> str:
        """Consume the next character, which has to be one of `marks`."""
        mark = self.peek()
        if not mark or mark not in marks:
            raise self.error(" or ".join(marks))
        self._at += 1
        return mark

    def value(self) -> Any:
        """Parse the next value."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._read_on():
                    raise
                continue
            except (RecursionError, ValueError):
                raise self.error("a value that is not so deep or long") from None
            # A number at the end of the chunk may continue in the next one.
            if end < len(self._text) or not self._read_on():
                check_value(value, self._text[self._at : end])
                self._at = end
                return value

    def error(self, expected: str) -> json.JSONDecodeError:
        found = repr(self.peek()) if self.peek() else "the end of the file"
        message = f"{found} where {expected} was expected"
        return json.JSONDecodeError(message, self._text, self._at)

    def _read_on(self) -> bool:
        """Read the next chunk and drop the consumed text; False at the end of the file."""
        # As much as there is, so that a long value is not parsed again for each chunk of it.
        piece = self._file.read(max(_CHUNK, len(self._text) - self._at))
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)
