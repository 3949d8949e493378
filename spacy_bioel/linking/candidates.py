"""Candidate generation: from normalised strings to ranked candidates, for one state of a linker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import islice
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.dictionary.unambiguous import UnambiguousNames
from spacy_bioel.entities import LabelledString, RuleSet, Vocabulary
from spacy_bioel.kb.bundled import is_starter
from spacy_bioel.kb.columns import entries_of
from spacy_bioel.kb.faiss_index import choose_index
from spacy_bioel.kb.joined import JoinedKnowledgeBase, parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vectors import quantize
from spacy_bioel.linking.evidence import (
    EXACT,
    SOURCES,
    AliasTable,
    CandidateTable,
    candidate_table,
    default_fusion,
)
from spacy_bioel.linking.searches import (
    EncodedNames,
    FrozenEncoder,
    JoinedNames,
    MakeSearch,
    NamePool,
    NameSearch,
    NgramSearch,
    encoded_names,
)
from spacy_bioel.linking.starter import is_dense, string_vectors
from spacy_bioel.models.fusion import Fusion, rank
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.types import Candidate

if TYPE_CHECKING:
    from spacy_bioel.linking.rescoring import Rescorer


T = TypeVar("T")


class Cache:
    """Values that are made at first use, once for all threads, and anew from other parts."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[object, tuple[object, Any]] = {}

    def get(self, name: object, parts: object, make: Callable[[], T]) -> T:
        """The value of this name, made now if it was not made of equal parts."""
        with self._lock:
            if name not in self._values or self._values[name][0] != parts:
                self._values[name] = parts, make()
            value: T = self._values[name][1]
            return value

    def forget(self, name: object) -> None:
        with self._lock:
            self._values.pop(name, None)

    def only(self, name: object) -> Cache:
        """What is kept under one name, and nothing else."""
        one = Cache()
        with self._lock:
            one._values |= {name: self._values[name]} if name in self._values else {}
        return one


@dataclass(frozen=True)
class LinkerState:
    """All that candidates depend on, by identity, and settings by value: none of it changes.

    encoder (FrozenEncoder | None): Of names; None: no dense evidence.
    fusion, rescoring (Fusion | None): Weights of the evidence, and of what a contextual model reads;
        None: the default ones.
    rules (RuleSet): Rules for kinds of text.
    rescorer (Rescorer | None): What reads the documents; None: nothing does.
    pool (NamePool | None): The names that training searches among; None: all.
    """

    kb: KnowledgeBase
    encoder: FrozenEncoder | None
    alias_table: AliasTable
    fusion: Fusion | None
    rescoring: Fusion | None
    settings: LinkerSettings
    make_ngram_search: MakeSearch
    rules: RuleSet
    rescorer: Rescorer | None = None
    pool: NamePool | None = None

    @property
    def is_dense(self) -> bool:
        """Whether the encoder is asked."""
        return self.encoder is not None and "dense" in self.settings.evidence.names


# Strings whose candidates are kept: some 25 MB.
CACHED_STRINGS = 10_000
SEARCHED = 32  # nearest names that a search finds for a mention
_TOGETHER = 1024  # strings that are ranked together: bounds the table of their candidates


class CandidateGenerator:
    """Ranks the concepts of a knowledge base for strings; may be shared by threads.

    It remembers the candidates of recent strings and never changes otherwise: a new state takes a
    new generator. While training searches a pool of names, a joined knowledge base has no `parts`:
    labels choose among what was found in the pool.

    cache (Cache | None): What generators of earlier states made, where it is that of this state too.
    """

    def __init__(self, state: LinkerState, cache: Cache | None = None) -> None:
        self.kb: KnowledgeBase = state.kb
        self.parts: list[CandidateGenerator] = []
        self._cache = cache or Cache()
        self._part_of: dict[str, int] = {}
        if isinstance(self.kb, JoinedKnowledgeBase):
            # Which knows its labels; in bytes it has no folders.
            state = replace(state, settings=state.settings.model_copy(update={"kb": ""}))
            self._part_of = self.kb.labels
            for number, part in enumerate(self.kb.parts if state.pool is None else ()):
                of_part = self._cache.get(("part", number), part, Cache)
                self.parts.append(CandidateGenerator(replace(state, kb=part), of_part))
        elif state.pool is None and state.encoder is not None and state.is_dense:
            searched = partial(is_dense, state.kb, state.encoder, mentions=state.settings.mentions)
            if not self._cache.get("is_dense", (state.kb, state.encoder), searched):
                state = replace(state, encoder=None)
        self.state = state
        self._types = dict(state.settings.label_types)
        self._only_labels = state.settings.only_labels
        self._lock = Lock()
        self._ranked: dict[LabelledString, tuple[Candidate, ...]] = {}
        self._masks: dict[str, NDArray[np.bool_] | None] = {}

    # What is made of the state, at first use.

    @property
    def encoder(self) -> FrozenEncoder:
        encoder = self.state.encoder
        assert encoder is not None  # who asks has one
        return encoder

    @cached_property
    def names(self) -> EncodedNames | JoinedNames:
        """The names that are searched among by vectors."""
        parts = self.kb, self.encoder, self.state.pool
        return self._cache.get("names", parts, self._encoded_names)

    def _encoded_names(self) -> EncodedNames | JoinedNames:
        if self.state.pool is not None:
            return self.state.pool.encoded(self.encoder.encode)
        if isinstance(self.kb, JoinedKnowledgeBase):
            return JoinedNames(self.kb, [p.names if p.state.encoder else None for p in self.parts])
        return encoded_names(self.kb, self.encoder)

    @cached_property
    def _training_strings(self) -> NameSearch:
        """The search among `statistics.names` by vectors."""
        parts = self.state.alias_table, self.encoder
        return self._cache.get("training strings", parts, self._encoded_strings)

    def _encoded_strings(self) -> NameSearch:
        names = self.state.alias_table.names
        if self.state.pool is None and all(map(is_starter, parts_of(self.kb))):
            return choose_index(string_vectors(self.encoder, names))
        return choose_index(quantize(self.encoder.encode(names)))

    @cached_property
    def ngram_search(self) -> NgramSearch:
        """The search among the names by spelling."""
        make = self.state.make_ngram_search
        return self._cache.get("ngram_search", (self.kb, make), partial(make, self.kb))

    @cached_property
    def dictionary(self) -> DictionaryLookup:
        """Finds names of the knowledge base in texts."""
        return self._cache.get("dictionary", self.kb, partial(DictionaryLookup, self.kb))

    @cached_property
    def unambiguous_names(self) -> UnambiguousNames:
        """Finds names that mean nothing else, for the labels that have a vocabulary."""
        found, parts = self._vocabularies()
        return self._cache.get("unambiguous names", parts, partial(UnambiguousNames, found))

    @cached_property
    def rules(self) -> RuleSet:
        """The rules of the linker for kinds of text, with its knowledge bases."""
        return self.state.rules.with_knowledge(self)

    @cached_property
    def _keeps_all(self) -> bool:
        """Whether all concepts of a name stay candidates."""
        return self.rules.want_all(self.kb)

    @cached_property
    def labels(self) -> list[str]:
        """Labels that the settings name."""
        return list({**self._types, **self._part_of, **dict.fromkeys(self._only_labels)})

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Vocabulary of each label that has one of its own."""
        return self._vocabularies()[0]

    def kb_of(self, label: str) -> KnowledgeBase:
        """The knowledge base that mentions of a label are linked to."""
        return self.of(label).kb

    def linked_kbs(self, labels: Collection[str]) -> dict[str, KnowledgeBase]:
        """The same for several labels, without those whose mentions are linked to nothing."""
        return {label: self.of(label).kb for label in labels if self.types_of(label) != ()}

    def _vocabularies(self) -> tuple[dict[str, Vocabulary], object]:
        """Of each label that has one, its vocabulary; and what that depends on."""
        labels = [x for x in {**self._types, **self._part_of} if self.types_of(x) != ()]
        # By parts: their columns are mapped, and those of a joined knowledge base are made.
        own = {label: self.of(label) for label in labels}
        found = {label: Vocabulary(of.kb, of._mask(label)) for label, of in own.items()}
        found = {x: of for x, of in found.items() if of[1] is not None or own[x] is not self}
        return found, (self.kb, tuple(self._types.items()), self._only_labels)

    # Labels.

    def of(self, label: str) -> CandidateGenerator:
        """The generator of the candidates of mentions with this label."""
        number = self._part_of.get(label)
        return self if number is None or not self.parts else self.parts[number]

    def types_of(self, label: str) -> tuple[str, ...] | None:
        """Semantic types that a mention of this label may link to; None: all."""
        if self._only_labels and label and label not in self._only_labels:
            return ()
        return self._types.get(label)

    def _mask(self, label: str) -> NDArray[np.bool_] | None:
        """Concepts that a mention of this label may link to; None: all. Shape (n_concepts,)."""
        if label not in self._masks:
            types, number = self.types_of(label), self._part_of.get(label)
            mask = None
            # Of concepts without types, nothing says which labels they are for.
            if types is not None and (self.kb.type_names or not types):
                mask = self.kb.type_mask(types)
            if number is not None and isinstance(self.kb, JoinedKnowledgeBase):
                in_part = self.kb.has_concepts(number)
                mask = in_part if mask is None else mask & in_part
            self._masks[label] = mask
        return self._masks[label]

    def allowed(
        self, concepts: NDArray[np.int64], labels: Sequence[str], owners: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Concepts that the mentions which they are candidates of may link to. Shape (n,).

        labels (Sequence[str]): Of the mentions.
        owners (NDArray[int64]): Number of the mention of each concept. Shape (n,).
        """
        may = np.ones(len(concepts), dtype=bool)
        kinds, kind_of = np.unique(np.array(labels, dtype=object), return_inverse=True)
        for kind, label in enumerate(kinds):
            if (mask := self._mask(label)) is not None:
                own = np.flatnonzero(kind_of[owners] == kind)
                may[own] = mask[concepts[own]]
        return may

    # Strings.

    def candidate_table(self, queries: Sequence[str]) -> CandidateTable:
        """All evidence about different normalised strings."""
        state = self.state
        queries = self.rules.rewrite(queries, self.kb, state.alias_table.counts)
        dense = dense_aliases = None
        if state.is_dense:
            vectors = self.encoder.encode(queries)
            dense = self.names.search(vectors, SEARCHED)
            if "alias_table" in state.settings.evidence.names:
                dense_aliases = self._training_strings.search(vectors, SEARCHED)
        return candidate_table(
            queries,
            self.kb,
            alias_table=state.alias_table,
            dense_names=dense,
            dense_aliases=dense_aliases,
            ngram_search=self.ngram_search,
            k=SEARCHED,
            evidence=state.settings.evidence.names,
        )

    def rank(self, wanted: Sequence[LabelledString]) -> dict[LabelledString, tuple[Candidate, ...]]:
        """Best candidates of (normalised string, label) pairs, in one batch.

        wanted (Sequence): Different pairs.
        RETURNS (dict): Best first; empty where nothing is known or the string is "".
        """
        ranked: dict[LabelledString, tuple[Candidate, ...]] = {}
        of_parts: dict[int, list[LabelledString]] = {}
        if self.parts:
            for pair in wanted:
                of_parts.setdefault(self._part_of.get(pair[1], -1), []).append(pair)
            wanted = of_parts.pop(-1, [])
            for number, pairs in of_parts.items():
                ranked |= self.parts[number].rank(pairs)
        with self._lock:
            # Least recently used strings come first.
            known = {pair: self._ranked.pop(pair) for pair in wanted if pair in self._ranked}
            self._ranked |= known
        new = [pair for pair in wanted if pair not in known]
        for start in range(0, len(new), _TOGETHER):
            known |= self._rank(new[start : start + _TOGETHER])
        with self._lock:
            self._ranked |= {pair: known[pair] for pair in new}
            for pair in list(islice(self._ranked, max(0, len(self._ranked) - CACHED_STRINGS))):
                del self._ranked[pair]
        return ranked | known

    def _rank(
        self, wanted: Sequence[LabelledString]
    ) -> dict[LabelledString, tuple[Candidate, ...]]:
        types = {label: self.types_of(label) for label in {label for _, label in wanted}}
        asked = [pair for pair in wanted if pair[0] and types[pair[1]] != ()]
        numbers = {query: i for i, query in enumerate(dict.fromkeys(query for query, _ in asked))}
        if not numbers:
            return dict.fromkeys(wanted, ())
        table = self.candidate_table(list(numbers))
        # The rows of the table, for each label that its string has.
        first = np.searchsorted(table.query, np.arange(len(numbers) + 1))
        queries = np.array([numbers[query] for query, _ in asked])
        indptr, rows = entries_of(first[queries], np.diff(first)[queries])
        pair, concepts = np.repeat(np.arange(len(asked)), np.diff(indptr)), table.concept[rows]
        scores = (self.state.fusion or default_fusion()).scores(table.features)[rows]
        allowed = self.allowed(concepts, [label for _, label in asked], pair)
        own = np.where(allowed, scores, -np.inf)
        kept = table.sources[rows] & EXACT > 0 if self._keeps_all else None
        top = self.state.settings.max_candidates
        best, shares = rank(self.kb, concepts, own, pair, top=top, kept=kept)
        best = best[allowed[best]]
        # A concept that only a training string speaks for is called by its preferred name.
        names = table.name[rows[best]]
        if (unnamed := names < 0).any():
            names[unnamed] = self.kb.preferred_rows(concepts[best][unnamed])
        columns = (
            pair[best].tolist(),
            self.kb.ids_of(concepts[best]),
            shares[best].tolist(),
            self.kb.names.take(names),
            table.sources[rows[best]].tolist(),
        )
        found: list[list[Candidate]] = [[] for _ in asked]
        kb = self.kb.fingerprint
        for number, id, score, name, sources in zip(*columns, strict=True):
            found[number].append(Candidate(id, round(score, 4), name, _evidence(sources), kb))
        return dict.fromkeys(wanted, ()) | dict(zip(asked, map(tuple, found), strict=True))


@cache
def _evidence(sources: int) -> str:
    return "+".join(name for bit, name in SOURCES.items() if sources & bit)
