"""Records of a check: pairs of a name and an id, as read from a file, and the verdict on each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


class Anchor(StrEnum):
    """Where in a stretch of words the name is."""

    WHOLE = "whole"
    END = "end"
    START = "start"


class Style(StrEnum):
    """How strings are written in a file."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Reading:
    """Words next to an id that are or contain its name.

    at (int): Offset of the words in the record; -1 if they cannot be replaced.
    line (int): Line of the record of the words, if it is not that of the pair; else 0.
    is_firm (bool): Whether the words must contain a name. Otherwise, the id may stand alone.
    """

    words: str
    at: int = -1
    anchor: Anchor = Anchor.WHOLE
    is_firm: bool = True
    line: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """An id and its name, as written.

    place (Place): File, and the line where the record begins.
    at (int): Offset of the id in the record; -1 if it cannot be replaced.
    readings (tuple[Reading, ...]): Words that may contain the name, the likeliest first; empty for
        an id without a name.
    cell (str): Cell of a table, such as "B7", or path in JSON or YAML, such as "$.type.id".
    """

    id: str
    place: Place
    at: int = -1
    readings: tuple[Reading, ...] = ()
    cell: str = ""
    style: Style = Style.TEXT

    @property
    def where(self) -> str:
        """The place, as in a message."""
        column = f", column {self.at + 1}" if self.at >= 0 and not self.cell else ""
        return f"{self.place}{column}{f', {self.cell}' if self.cell else ''}"


@dataclass(frozen=True, slots=True)
class Meaning:
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

    def name_place(self) -> tuple[int, int]:
        """Return the line and offset of the name; -1 if it cannot be replaced."""
        for reading in self.pair.readings:
            if self.name and self.name in reading.words and reading.at >= 0:
                is_last = reading.anchor is Anchor.END
                offset = len(reading.words) - len(self.name) if is_last else 0
                return reading.line or self.pair.place.line, reading.at + offset
        return self.pair.place.line, -1

    @property
    def score(self) -> float | None:
        """Similarity of the name to the closest name of the concept; None without a name."""
        return self.found.score if self.found and self.name else None
