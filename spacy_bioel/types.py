"""Records shared by the whole package; this module imports only `errors` from the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from html import escape
from threading import Lock
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
DoubleArray = NDArray[np.float64]

NIL = "NIL"  # the `span.kb_id_` of a mention that is not linked
DOC_ENTS = "doc.ents"  # used instead of a span group key for the Doc's entities.
# Span group attribute with the labels that annotators looked for (see `AnnotatedText`).
ANNOTATES = "annotates"
# Labels that have their own entity rules.
CELL_LINE = "CellLine"
CHEMICAL = "Chemical"
GENE = "Gene"
SPECIES = "Species"
VARIANT = "Variant"
# Prefix of organism ids. A type with this prefix is a gene's species.
ORGANISM = "NCBITaxon:"
HUMAN = f"{ORGANISM}9606"
# Types of organisms that live in a host; texts that mention their genes also name the organism.
MICROBES = frozenset((VIRUS := "Virus", PROKARYOTE := "Prokaryote"))
# Prefix of variant ids, which come from the text instead of a knowledge base.
DBSNP = "dbSNP:"
# Prefix of concept ids in OMOP, and the type of OMOP's standard concepts.
OMOP = "OMOP:"
STANDARD = "Standard"


@dataclass(frozen=True, slots=True)
class Concept:
    """A concept in a knowledge base.

    id (str): A CURIE such as "MESH:D003920" or "HP:0001250"; for UMLS, the bare CUI: "C0011849".
    names (tuple[str, ...]): All names, the preferred one first.
    types (tuple[str, ...]): Semantic types, the most specific first.
    parents (tuple[str, ...]): Ids of broader concepts.
    definition (str): Free text; may be empty.
    replaced_by (str): The current id if this id is retired or an alternative id; otherwise empty.
    xrefs (tuple[str, ...]): Cross-references to other vocabularies, as written in the source.
    consider (tuple[str, ...] | None): For an id that was retired without a replacement, the ids
        that a person may choose from; otherwise None.
    """

    id: str
    names: tuple[str, ...]
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    definition: str = ""
    replaced_by: str = ""
    xrefs: tuple[str, ...] = ()
    consider: tuple[str, ...] | None = None

    def _repr_html_(self) -> str:
        """Render the concept as an HTML table, for notebooks."""
        values = [(column.name, getattr(self, column.name)) for column in fields(self)]
        rows = [
            f"<tr><th>{name}</th><td>{escape(x if isinstance(x, str) else '; '.join(x))}</td></tr>"
            for name, x in values
            if x
        ]
        return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True, slots=True)
class KbRelease:
    """The name, source and release of a knowledge base.

    name (str): Name of its folder or its first source.
    source, release, licence (str): As specified for `bioel kb build`; may be empty.
    fingerprint (str): Digest of its contents.
    concepts (int): Number of concepts.
    """

    name: str
    source: str
    release: str
    licence: str
    fingerprint: str
    concepts: int

    def __str__(self) -> str:
        parts = [self.source or self.name]
        parts += [f"release {self.release}"] if self.release else []
        parts += [f"{self.concepts:,} concepts", f"fingerprint {self.fingerprint}"]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Mention:
    """A span of text that refers to one concept, several (a composite), or none in the KB (NIL).

    start, end (int): Character offsets into AnnotatedText.text; text[start:end] is the mention.
    label (str): The mention's semantic type, e.g. "Disease".
    ids (tuple[str, ...]): Gold concept ids: several for a composite mention, empty for NIL.
    fragments (tuple[tuple[int, int], ...]): The pieces of a discontinuous mention, all between
        start and end; empty for other mentions.
    probability (float): Below 1 for training mentions that were predicted by another detector (see
        `training/scripts/teach.py`). Only .spacy files store it.
    """

    start: int
    end: int
    label: str
    ids: tuple[str, ...] = ()
    fragments: tuple[tuple[int, int], ...] = ()
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A corpus document with its gold mentions, which may overlap.

    annotates (tuple[str, ...]): Labels that annotators looked for; empty if they looked for all.
        Mentions with other labels may be missing.
    entities (tuple[Mention, ...] | None): Entities in a .spacy file, for other pipes; None if the
        document was not annotated with entities.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...] = ()
    annotates: tuple[str, ...] = ()
    entities: tuple[Mention, ...] | None = field(default=None, compare=False)


DECIMALS = 4  # candidate scores are rounded to this many decimals


@dataclass(frozen=True, slots=True)
class Candidate:
    """A concept that a mention can be linked to.

    id (str): Id of the concept.
    score (float): Decision score in [0, 1], comparable across mentions.
    name (str): The concept name that matched.
    evidence (str): Sources of its evidence, e.g. "exact+dense".
    kb (str): Fingerprint of the knowledge base that contains the concept.
    """

    id: str
    score: float
    name: str = ""
    evidence: str = ""
    kb: str = field(default="", repr=False, compare=False)

    @property
    def concept(self) -> Concept:
        """The concept with its names and definition, read from the knowledge base on each access.

        For a concept that is not in the knowledge base, such as a pig gene added by rules, the
        result has only the id and the name that matched.

        RAISES BioelError: [B320] if the knowledge base is not open in this process.
        """
        source = opened(self.kb)
        return source[self.id] if self.id in source else Concept(self.id, (self.name or self.id,))

    @property
    def preferred_name(self) -> str:
        """The concept's preferred name, or the name that matched if the knowledge base lacks the
        concept; "" if the knowledge base is not open in this process."""
        try:
            return _name_and_types(self.kb, self.id)[0] or self.name
        except BioelError:
            return ""

    @property
    def xrefs(self) -> tuple[str, ...]:
        """The concept's cross-references, as written in its source.

        RAISES BioelError: [B320] if the knowledge base is not open in this process.
        """
        return self.concept.xrefs


def is_tied(candidates: Sequence[Candidate]) -> bool:
    """Return whether the two best candidates have the same score.

    Concepts from different vocabularies that share a name ("glaucoma" in HPO and MONDO) do not
    compete, nor do two with equal scores above 0.5, which come from different knowledge bases.
    """
    two = candidates[:2]
    is_equal = len({(c.score, c.id.rpartition(":")[0]) for c in two}) == 1
    return len(two) == 2 and is_equal and two[0].score <= 0.5


@dataclass(frozen=True)
class DeclaredFact:
    """How a fact that is a JSON object appears in outputs; registered as an entry point in the
    group `spacy_bioel_facts`, under the fact's name.

    columns (Mapping): For each column of tables, a function from the value to the cell; None is an
        empty cell.
    extensions (Mapping): For each Span extension, a function from the value and the text of the
        document.
    moved (Callable): Adds a number of characters to the offsets in a value. A Doc stores offsets
        relative to the mention, because `Doc.from_docs` shifts mentions.
    described (Callable): Describes a value in a text, for explanations; "" if there is nothing to
        say. The offsets in the value refer to the text.
    noted (Callable): Describes everything that the value contains, for HTML pages.
    css_class (Callable): The CSS class of the mention on pages, one of `css_classes`, or "".
    css_classes (tuple[str, ...]): All CSS classes; if mentions overlap, the first is used.
    legend (str): What these classes mean.
    """

    columns: Mapping[str, Callable[[Any], Any]]
    extensions: Mapping[str, Callable[[Any, str], Any]]
    moved: Callable[[Any, int], Any]
    described: Callable[[Any, str], str]
    noted: Callable[[Any, str], str]
    css_class: Callable[[Any], str]
    css_classes: tuple[str, ...]
    legend: str


@dataclass(frozen=True, slots=True)
class Link:
    """The linker's decision for a mention.

    start, end, label: As in `Mention`.
    ids (tuple[str, ...]): The linked concept ids: one, several for a composite, none for NIL.
    candidates (tuple[Candidate, ...]): The candidates, best first; a NIL link may also have some.
    facts (Mapping): Further facts, from entity rules or later pipes: JSON values by name.
    """

    start: int
    end: int
    label: str
    ids: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Opened(Protocol):
    """The part of an open knowledge base's interface that records use."""

    fingerprint: str

    def __contains__(self, id: object) -> bool: ...
    def __getitem__(self, id: str) -> Concept: ...
    def find(self, id: str) -> int: ...
    def preferred_name(self, concept: int) -> str: ...
    def types_of(self, concept: int) -> tuple[str, ...]: ...
    @property
    def releases(self) -> tuple[KbRelease, ...]: ...


class Opener(Protocol):
    """A pipe that can open its knowledge base once it has been built."""

    def kb_if_built(self) -> Opened: ...


# To be picklable, candidates store only the fingerprint of their knowledge base and look up the
# open knowledge base here. Several open knowledge bases can have the same fingerprint.
_OPENED: WeakSet[Opened] = WeakSet()
_OPENERS: WeakSet[Opener] = WeakSet()
_OPENED_LOCK = Lock()


def remember(kb: Opened) -> None:
    """Register an open knowledge base so that records can find it."""
    with _OPENED_LOCK:
        _OPENED.add(kb)


def remember_opener(opener: Opener) -> None:
    """Register a pipe whose knowledge base is opened if records from other processes need it."""
    with _OPENED_LOCK:
        _OPENERS.add(opener)


def opened(fingerprint: str) -> Opened:
    """Find an open knowledge base by its fingerprint. RAISES BioelError: [B320] if not open."""
    if (kb := _find_opened(fingerprint)) is not None:
        return kb
    with _OPENED_LOCK:
        openers = list(_OPENERS)
    for opener in openers:
        with suppress(BioelError):
            opener.kb_if_built()
        if (kb := _find_opened(fingerprint)) is not None:
            return kb
    raise BioelError(Errors.B320.format(found=fingerprint or "unknown"))


def _find_opened(fingerprint: str) -> Opened | None:
    with _OPENED_LOCK:
        return next((kb for kb in _OPENED if kb.fingerprint == fingerprint), None)


@lru_cache(maxsize=1 << 16)  # texts mention the same few concepts again and again
def _name_and_types(fingerprint: str, id: str) -> tuple[str, tuple[str, ...]]:
    """Return a concept's preferred name and its types. RAISES BioelError: [B320]"""
    kb = opened(fingerprint)
    row = kb.find(id)
    return (kb.preferred_name(row), kb.types_of(row)) if row >= 0 else ("", ())


def type_name(candidate: Candidate) -> str:
    """Return the preferred name of a concept's type, such as a gene's species, if the type is
    itself a concept in an open KB; else ""."""
    types: list[str] = []
    with suppress(BioelError):
        types = [type for type in _name_and_types(candidate.kb, candidate.id)[1] if ":" in type]
    with _OPENED_LOCK:
        kbs = [kb.fingerprint for kb in _OPENED] if types else []
    in_kbs = (Candidate(type, 0.0, kb=kb) for type in types for kb in kbs)
    return next(filter(None, (one.preferred_name for one in in_kbs)), "")


def releases_of(fingerprint: str) -> tuple[str, ...]:
    """Describe a knowledge base's releases; return () if it is not open."""
    try:
        return tuple(map(str, opened(fingerprint).releases))
    except BioelError:
        return ()


# A span that may be a mention: start token, end token (exclusive), label, and probability (1 for
# words in the user's `include` setting).
ScoredSpan = tuple[int, int, str, float]
SpanKey = tuple[int, int, str]  # start token, end token (exclusive), label


def candidates_of(n: int, kb: str, *columns: Iterable[Any]) -> list[tuple[Candidate, ...]]:
    """Build the candidates of n mentions from columns, keeping their order.

    kb (str): Fingerprint of the candidates' knowledge base.
    columns (Iterable): The mention number, id, score, name and evidence of each candidate.
    """
    candidates: list[list[Candidate]] = [[] for _ in range(n)]
    for mention, id, score, name, evidence in zip(*columns, strict=True):
        candidates[mention].append(Candidate(id, round(score, DECIMALS), name, evidence, kb))
    return list(map(tuple, candidates))


def best_first(candidates: Iterable[Iterable[Candidate]]) -> list[tuple[Candidate, ...]]:
    """Sort each mention's candidates by score, then by id, so that batching has no effect."""
    return [tuple(sorted(mention, key=lambda c: (-c.score, c.id))) for mention in candidates]
