"""Records of a check: pairs of a name and an id, as read from a file, and the verdict on each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spacy_bioel.io.open import Place


class IdVerdict(StrEnum):
    """What a check found about a pair."""

    AGREES = "agrees"
    SYNONYM = "synonym"
    CLOSE = "close"
    OTHER = "other concept"
    RETIRED = "retired"
    UNKNOWN = "unknown id"
    MALFORMED = "malformed"
    NOT_CHECKED = "not checked"

    @property
    def is_wrong(self) -> bool:
        """Whether an id with this verdict should not be used."""
        return self in (IdVerdict.OTHER, IdVerdict.RETIRED, IdVerdict.UNKNOWN, IdVerdict.MALFORMED)


class Cell(NamedTuple):
    """A string in a file: a line, a cell of a table, or a value in JSON, YAML or OBO.

    at (int): Offset of the string in the record that begins at `place`; -1 if it cannot be
        replaced.
    name (str): Such as "B7", or "$.type.id"; "" for a line.
    """

    text: str
    place: Place
    at: int = 0
    name: str = ""

    def stripped(self, marks: str | None = None) -> Cell:
        """Return the cell without white space, or the given characters, around its text."""
        text = self.text.lstrip(marks)
        at = self.at + len(self.text) - len(text) if self.at >= 0 else -1
        return Cell(text.rstrip(marks), self.place, at, self.name)


class Name(NamedTuple):
    """A string that may be the name of a pair, with the line of its record and its offset there."""

    text: str
    line: int = 0
    at: int = -1


@dataclass(frozen=True, slots=True)
class Pair:
    """An id and its name, as written.

    place (Place): File, and the line where the record begins.
    at (int): Offset of the id in the record; -1 if it cannot be replaced.
    names (tuple[Name, ...]): Strings that may be the name, the likeliest first; empty for an id
        without a name.
    has_name (bool): Whether one of them must be the name. Otherwise, the id may stand alone.
    cell (str): Cell of a table, such as "B7", or path in JSON or YAML, such as "$.type.id".
    """

    id: str
    place: Place
    at: int = -1
    names: tuple[Name, ...] = ()
    has_name: bool = False
    cell: str = ""

    @property
    def where(self) -> str:
        """The place, as in a message."""
        column = f", column {self.at + 1}" if self.at >= 0 and not self.cell else ""
        return f"{self.place}{column}{f', {self.cell}' if self.cell else ''}"


def cell_pair(cell: Cell, name: Cell | None) -> Pair:
    """Return the pair of an id and the name in another cell, if that has letters."""
    names: tuple[Name, ...] = ()
    if name and any(map(str.isalpha, name.text)):
        names = (Name(name.text, name.place.line, name.at),)
    return Pair(cell.text, cell.place, cell.at, names, bool(names), cell.name)


class Meaning(NamedTuple):
    """A concept that an id or a name refers to.

    score (float): Similarity of its best name to the name in the pair, up to 1.
    """

    id: str
    name: str
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class CheckedId:
    """A pair with its verdict.

    id (str): The id in the spelling of the knowledge base.
    name (str): The name; "" if the id stands alone.
    found (Meaning | None): The concept with this id, or the concept that replaced it.
    proposals (tuple[Meaning, ...]): Concepts that the name may refer to, best first; for an id that
        was retired without a replacement, the concepts to consider.
    is_certain (bool): Whether the id can be replaced by that of `found` without asking a person.
    is_accepted (bool): Whether the pair has the same verdict in the baseline.
    """

    pair: Pair
    verdict: IdVerdict
    id: str
    name: str = ""
    found: Meaning | None = None
    proposals: tuple[Meaning, ...] = ()
    is_certain: bool = False
    is_accepted: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether a person or `--fix` has to do something."""
        return self.verdict.is_wrong and not self.is_accepted

    @property
    def score(self) -> float | None:
        """Similarity of the name to the closest name of the concept; None without a name."""
        return self.found.score if self.found and self.name else None
