"""Parsing of untrusted JSON, whole or, so that it need not fit into memory, entry by entry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import open_text
from spacy_bioel.io.records import StrPath

_MAX_DEPTH = 100
_TOO_DEEP = f"lists and objects more than {_MAX_DEPTH} deep"
_HALF_A_PAIR = re.compile(r"\\ud[89a-f]", re.I)
_CHUNK = 1 << 20
_NOT_SPACE = re.compile(r"\S")


def parse_json(text: str, *, lone_surrogates: bool = False) -> Any:
    """Parse a JSON text.

    lone_surrogates (bool): Accept halves of surrogate pairs. UTF-8 cannot encode them, so the
        caller has to handle them.
    RAISES ValueError: Invalid JSON, lists and objects nested more than 100 deep, a number of
        thousands of digits, or half of a surrogate pair.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError:  # Python reads integers of up to 4,300 digits
        raise ValueError("a number of thousands of digits") from None
    _check_value(value, text, lone_surrogates=lone_surrogates)
    return value


def _check_value(value: object, text: str, *, lone_surrogates: bool = False) -> None:
    """Check the depth and the surrogates of a value with this text."""
    if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if not lone_surrogates and _HALF_A_PAIR.search(text):
        written = json.dumps(value, ensure_ascii=False)
        try:
            written.encode("utf8")
        except UnicodeEncodeError as error:
            found = f"\\u{ord(written[error.start]):x}"
            raise ValueError(f"{found}, which is half of a character") from None


def _depth(value: object, above: int = 0) -> int:
    """Depth of lists and objects in each other; those below the first that is too deep are left."""
    if above > _MAX_DEPTH or not isinstance(value, dict | list):
        return above
    values = value.values() if isinstance(value, dict) else value
    return max((_depth(nested, above + 1) for nested in values), default=above + 1)


def iter_json_object(path: StrPath, *, problem: str) -> Iterator[tuple[str, Any]]:
    """Stream the entries of a file that is one JSON object, with one entry in memory at a time.

    problem (str): Template of `Errors` with {path} and {found}, for files with other contents.
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
        """Return the next character that is not white space, which stays; "" at the end."""
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
                _check_value(value, self._text[self._at : end])
                self._at = end
                return value

    def error(self, expected: str) -> ValueError:
        found = repr(self.peek()) if self.peek() else "the end of the file"
        return ValueError(f"{found} where {expected} was expected")

    def _read_on(self) -> bool:
        """Read the next chunk and drop the consumed text; False at the end of the file."""
        # As much as there is, so that a long value is not parsed again for each chunk of it.
        piece = self._file.read(max(_CHUNK, len(self._text) - self._at))
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)
