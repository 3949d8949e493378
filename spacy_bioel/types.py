"""Records passed between the layers: frozen, plain, importable by each layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
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

# Attribute of a span group: the labels that were looked for, see `AnnotatedText`.
ANNOTATES = "annotates"
# Labels of mentions that mean more than others: of cell lines, genes and sequence variants.
CELL_LINE = "CellLine"
GENE = "Gene"
VARIANT = "Variant"
# Vocabulary of organisms. A type with it says which organism a concept is of.
ORGANISM = "NCBITaxon:"
# Types of organisms that live in others, and are named beside the genes of these.
MICROBES = frozenset((VIRUS := "Virus", PROKARYOTE := "Prokaryote"))
# Vocabulary of variants, whose ids texts say themselves.
DBSNP = "dbSNP:"


@dataclass(frozen=True, slots=True)
class Concept:
    """Entry of a knowledge base.

    id (str): A CURIE such as "MESH:D003920" or "HP:0001250"; for UMLS the bare CUI, "C0011849".
    names (tuple[str, ...]): All names, the preferred one first.
    types (tuple[str, ...]): Semantic types, the most specific first.
    parents (tuple[str, ...]): Ids of broader concepts.
    definition (str): Free text, may be empty.
    replaced_by (str): The current id, when this one is retired or an alternate id; else empty.
    xrefs (tuple[str, ...]): Cross-references to other vocabularies, as the source writes them.
    """

    id: str
    names: tuple[str, ...]
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    definition: str = ""
    replaced_by: str = ""
    xrefs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KbRelease:
    """Knowledge base, and which release of which source it is.

    name (str): Short name: of its folder, or of its first source.
    source, release, licence (str): As given to `bioel kb build`; may be empty.
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
    """Stretch of text that names one concept, several (composite), or none of the KB (NIL).

    start, end (int): Character offsets into AnnotatedText.text; text[start:end] is the mention.
    label (str): The mention's semantic type, e.g. "Disease".
    ids (tuple[str, ...]): Gold concept ids. Several: a composite mention. None: NIL.
    fragments (tuple[tuple[int, int], ...]): The pieces of a discontinuous mention, else empty;
        start and end then span all of them.
    probability (float): Below 1: what another detector says of the span, for one that learns from
        it; see `training/scripts/teach.py`. Kept by .spacy files alone.
    """

    start: int
    end: int
    label: str
    ids: tuple[str, ...] = ()
    fragments: tuple[tuple[int, int], ...] = ()
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """Document of a corpus with its gold mentions, which may overlap.

    annotates (tuple[str, ...]): Labels that were looked for in it: of any other label, nothing is
        known. Empty: all there are.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...] = ()
    annotates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Concept that a mention may be linked to.

    id (str): Id of the concept.
    score (float): Decision score in [0, 1], comparable across mentions.
    name (str): The name of the concept that matched.
    evidence (str): Sources of its evidence, the strongest first, e.g. "exact+dense".
    kb (str): Fingerprint of the knowledge base that has the concept.
    """

    id: str
    score: float
    name: str = ""
    evidence: str = ""
    kb: str = field(default="", repr=False, compare=False)

    @property
    def concept(self) -> Concept:
        """The concept, with all its names, its definition and so on, read when asked for.

        RAISES BioelError: [B320] when the knowledge base is not open in this process, [B337] when
            it has no such concept.
        """
        return opened(self.kb)[self.id]

    @property
    def xrefs(self) -> tuple[str, ...]:
        """Cross-references of the concept, as its source writes them, read when asked for.

        RAISES BioelError: [B320] when the knowledge base is not open in this process.
        """
        source = opened(self.kb)
        return source[self.id].xrefs if self.id in source else ()


def ties_of(candidates: Iterable[Sequence[Candidate]]) -> list[bool]:
    """Tell of which mentions the best candidates are tied."""
    return list(map(is_tied, candidates))


def is_tied(candidates: Sequence[Candidate]) -> bool:
    """Tell whether two candidates of one knowledge base are equally likely, and none more.

    Two knowledge bases may both be right: probabilities above a half do not compete.
    """
    scores = [c.score for c in candidates[:2]]
    return len(scores) == 2 and scores[0] == scores[1] <= 0.5


@dataclass(frozen=True, slots=True)
class Context:
    """What the text says of a mention, see `entities.notes.context`.

    negated, uncertain, historical, hypothetical (bool): Whether it says so.
    experiencer (str): Whose it is: "patient", "family" or "other".
    cues (tuple): Words that say so: start, end, and what they say.
    """

    negated: bool = False
    uncertain: bool = False
    historical: bool = False
    hypothetical: bool = False
    experiencer: str = "patient"
    cues: tuple[tuple[int, int, str], ...] = ()

    @property
    def is_affirmed(self) -> bool:
        """Whether the patient has it, or had it: neither negated nor conditional nor another's."""
        return not (self.negated or self.hypothetical) and self.experiencer == "patient"


@dataclass(frozen=True, slots=True)
class Link:
    """Decision of the linker about a mention.

    start, end, label: As in `Mention`.
    ids (tuple[str, ...]): The linked concept ids: one, several for a composite, none for NIL.
    candidates (tuple[Candidate, ...]): Best first; kept for NIL too.
    context (Context | None): What the pipe `bioel_context` found; None: it did not run.
    facts (Mapping): What else the text says, by the rules of `entities`: JSON values by name.
    """

    start: int
    end: int
    label: str
    ids: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    context: Context | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class Opened(Protocol):
    """A knowledge base, as records know it."""

    fingerprint: str

    def __contains__(self, id: object) -> bool: ...
    def __getitem__(self, id: str) -> Concept: ...
    def find(self, id: str) -> int: ...
    def preferred_name(self, concept: int) -> str: ...
    @property
    def releases(self) -> tuple[KbRelease, ...]: ...


class Opener(Protocol):
    """A pipe, which opens its knowledge base when it is asked for, if it has been built."""

    def kb_if_built(self) -> Opened: ...


# A candidate has only the fingerprint of its knowledge base, so that it can be pickled and stored,
# and reads here what it does not carry. Several that are open may have the same contents.
_OPENED: WeakSet[Opened] = WeakSet()
_OPENERS: WeakSet[Opener] = WeakSet()
_LOCK = Lock()


def remember(kb: Opened) -> None:
    """Let records find a knowledge base for as long as it is open."""
    with _LOCK:
        _OPENED.add(kb)


def remember_opener(opener: Opener) -> None:
    """Let records find the knowledge base of a pipe whose documents other processes have made."""
    with _LOCK:
        _OPENERS.add(opener)


def opened(fingerprint: str) -> Opened:
    """The knowledge base of this fingerprint. RAISES BioelError: [B320] when there is none."""
    if (found := _find(fingerprint)) is not None:
        return found
    with _LOCK:
        openers = list(_OPENERS)
    for opener in openers:
        with suppress(BioelError):
            opener.kb_if_built()
        if (found := _find(fingerprint)) is not None:  # it, or a part of it
            return found
    raise BioelError(Errors.B320.format(found=fingerprint or "unknown"))


def _find(fingerprint: str) -> Opened | None:
    with _LOCK:
        return next((kb for kb in _OPENED if kb.fingerprint == fingerprint), None)


def preferred_name(fingerprint: str, id: str) -> str:
    """Preferred name of a concept, read where it is open; "" where it is not, or is unknown."""
    try:
        return _read_preferred_name(fingerprint, id)
    except BioelError:
        return ""


@lru_cache(maxsize=1 << 16)  # the same few concepts are asked for again and again
def _read_preferred_name(fingerprint: str, id: str) -> str:
    kb = opened(fingerprint)
    row = kb.find(id)
    return kb.preferred_name(row) if row >= 0 else ""


def releases_of(fingerprint: str) -> tuple[str, ...]:
    """Releases of a knowledge base, in words; none where it is not open."""
    try:
        return tuple(map(str, opened(fingerprint).releases))
    except BioelError:
        return ()


# A span that may be a mention: start token, end token (exclusive), label, and probability, which is
# 1 for what a user has forced.
ScoredSpan = tuple[int, int, str, float]


def best_first(candidates: Iterable[Iterable[Candidate]]) -> list[tuple[Candidate, ...]]:
    """Sort the candidates of each mention by score: ties go to the lower id, in whatever batch."""
    return [tuple(sorted(found, key=lambda c: (-c.score, c.id))) for found in candidates]
