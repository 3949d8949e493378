"""Records of an id check: id-name pairs as read from a file, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spacy_bioel.io.open import ChangedCell, Place


class IdVerdict(StrEnum):
    """The verdict on an id-name pair."""

    AGREES = "agrees"
    EXISTS = "exists"  # the id has no name to compare
    SYNONYM = "synonym"
    CLOSE = "close"
    OTHER = "other concept"
    RETIRED = "retired"
    UNKNOWN = "unknown id"
    MALFORMED = "malformed"
    NOT_CHECKED = "not checked"


_WRONG = frozenset((IdVerdict.OTHER, IdVerdict.RETIRED, IdVerdict.UNKNOWN, IdVerdict.MALFORMED))


class Cell(NamedTuple):
    """A string in a file: a line, a table cell, a value in a tree, or part of one of these.

    at (int): Offset in the record that begins at `place`; -1 if the string cannot be replaced.
    name (str): Name of the cell or value, such as "B7" or "$.type.id"; "" for a line.
    """

    text: str
    place: Place = Place("")
    at: int = 0
    name: str = ""

    def __str__(self) -> str:
        where = self.name or (f"column {self.at + 1}" if self.at >= 0 else "")
        return f"{self.place}, {where}" if where else str(self.place)

    def part(self, text: str, start: int) -> Cell:
        """Return part of the text as a cell with its own offset."""
        return Cell(text, self.place, self.at + start if self.at >= 0 else -1, self.name)

    def stripped(self, marks: str | None = None) -> Cell:
        """Return the cell with white space, or the given characters, stripped from its text."""
        text = self.text.lstrip(marks)
        return self.part(text.rstrip(marks), len(self.text) - len(text))


class Pair(NamedTuple):
    """An id and its name, as written.

    names (tuple[Cell, ...]): Strings that may be the name, most likely first.
    has_name (bool): Whether one of `names` must be the name. Otherwise, the id may stand alone.
    """

    id: Cell
    names: tuple[Cell, ...] = ()
    has_name: bool = False


def named_pair(id: Cell, name: Cell | None) -> Pair:
    """Return an id paired with the name in another cell, or alone if that cell has no letters."""
    is_name = name and not isinstance(name.text, ChangedCell) and any(map(str.isalpha, name.text))
    return Pair(id, (name,), True) if name and is_name else Pair(id)


class Meaning(NamedTuple):
    """A concept, and how similar (up to 1) its closest name is to the name in a pair."""

    id: str
    name: str
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class CheckedId:
    """An id-name pair with its verdict.

    id (str): The id as the knowledge base spells it.
    name (str): The name; "" if the id stands alone.
    found (Meaning | None): The concept with this id, or the concept that replaced it.
    proposals (tuple[Meaning, ...]): Concepts that the name may refer to, best first; for an id that
        was retired without a replacement, the concepts to consider.
    is_certain (bool): Whether the id of `found` can replace the id without asking a person.
    reason (str): Why the id was not checked, although a knowledge base has ids with its prefix.
    """

    pair: Pair
    verdict: IdVerdict
    id: str
    name: str = ""
    found: Meaning | None = None
    proposals: tuple[Meaning, ...] = ()
    is_certain: bool = False
    reason: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether an id with this verdict should not be used."""
        return self.verdict in _WRONG

    @property
    def line(self) -> int:
        """Line of the id or, if that is unknown, the first line of its record."""
        return self.pair.id.place.line
