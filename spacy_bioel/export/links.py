"""Links as flat rows, and the parts that formats of one text file have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, TextIO

from spacy_bioel.export.rows import LinkedText
from spacy_bioel.types import Candidate, Link, preferred_name

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


# Facts of the rules that come with the package, which tables have in any case.
FACTS = ("hgvs", "component", "gene")


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link with its document; the parts of a composite are joined by "|".

    document (str | int): Id of the document, or its number.
    start, end (int): Offsets in characters; text is what the document has there.
    label (str): Label of the mention.
    id, preferred_name (str | None): The concept, and the first of its names; None for NIL. The name
        is also None where the knowledge base is not open.
    name, score, evidence: Of the candidate that was linked, see `Candidate`; None for NIL. A
        composite has the lowest score of its parts.
    facts (Mapping): What else the text says, such as "hgvs" of a variant, see `entities`.
    context (str | None): What the text says of it, such as "negated", by `bioel_context`; None:
        nothing, or the pipe did not run.
    """

    document: str | int
    start: int
    end: int
    text: str
    label: str
    id: str | None
    preferred_name: str | None
    name: str | None
    score: float | None
    evidence: str | None
    facts: Mapping[str, Any]
    context: str | None

    def cells(self, facts: Sequence[str]) -> list[Any]:
        """Values in the order of `columns_of`."""
        own = [getattr(self, name) for name in _COLUMNS]
        return [*own, *(self.facts.get(name) for name in facts), self.context]


_COLUMNS = tuple(f.name for f in fields(LinkRow) if f.name not in ("facts", "context"))


def columns_of(facts: Sequence[str]) -> list[str]:
    """Names of the columns of a table of links."""
    return [*_COLUMNS, *facts, "context"]


def link_rows(document: str | int, text: str, links: Sequence[Link]) -> Iterator[LinkRow]:
    """Yield a row a link."""
    for link in links:
        chosen = linked_candidates(link)
        yield LinkRow(
            *(document, link.start, link.end, text[link.start : link.end], link.label),
            "|".join(link.ids) or None,
            _joined([preferred_name(c.kb, c.id) for c in chosen]),
            _joined([c.name for c in chosen]),
            min((c.score for c in chosen), default=None),
            _joined([c.evidence for c in chosen]),
            link.facts,
            _joined(sorted({says for *_, says in link.context.cues})) if link.context else None,
        )


def linked_candidates(link: Link) -> list[Candidate]:
    """Candidates of the ids of a link, in their order; none for NIL."""
    found = {candidate.id: candidate for candidate in link.candidates}
    return [found[id] for id in link.ids if id in found]


def _joined(parts: Sequence[str]) -> str | None:
    return "|".join(parts) if any(parts) else None
