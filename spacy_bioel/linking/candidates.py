"""Candidate generation: rank a knowledge base's concepts for normalised strings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import islice
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from spacy_bioel.batch import AS_NAME, LabelledString, Ranked
from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.dictionary.unambiguous import UnambiguousNames, correct_spelling
from spacy_bioel.entities import Vocabulary
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.kb.bundled import bundled_name
from spacy_bioel.kb.columns import entries_of
from spacy_bioel.kb.faiss_index import choose_index
from spacy_bioel.kb.joined import JoinedKnowledgeBase, SearchResult, parts_of
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
from spacy_bioel.models.fusion import Fusion, have_likelier_equivalents, rank
from spacy_bioel.settings import GENERAL_LABELS, LinkerSettings
from spacy_bioel.text.normalize import respellings
from spacy_bioel.types import BoolArray, Candidate, IntArray, best_first, candidates_of

if TYPE_CHECKING:
    from spacy_bioel.linking.rescoring import Rescorer


CachedValue = TypeVar("CachedValue")


class Cache:
    """Thread-safe cache that computes values on first use and again when their inputs change."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[object, tuple[object, Any]] = {}

    def get(self, name: object, parts: object, make: Callable[[], CachedValue]) -> CachedValue:
        """Return the named value, computing it unless it is cached for the same `parts`."""
        with self._lock:
            if name not in self._values or self._values[name][0] != parts:
                self._values[name] = parts, make()
            value: CachedValue = self._values[name][1]
            return value

    def forget(self, name: object) -> None:
        with self._lock:
            self._values.pop(name, None)

    def only(self, name: object) -> Cache:
        """Return a new cache that contains only the named value, if present."""
        cache = Cache()
        with self._lock:
            cache._values = {key: x for key, x in self._values.items() if key == name}
        return cache


@dataclass(frozen=True)
class LinkerState:
    """All inputs to candidate generation. Parts are compared by identity, settings by value.

    encoder (FrozenEncoder | None): Name encoder; None: no dense evidence.
    fusion, rescoring (Fusion | None): Weights of the string evidence and of the contextual scores;
        None: the default weights.
    rules (RuleSet): The entity rules.
    rescorer (Rescorer | None): Contextual model; None: candidates are ranked by string only.
    pool (NamePool | None): The names to search during training; None: all names.
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
        """Whether dense evidence is available and enabled."""
        return self.encoder is not None and "dense" in self.settings.evidence.names


CACHED_STRINGS = 10_000  # max. strings with cached candidates (about 25 MB)
SEARCHED = 32  # number of names that each search returns per string
_STRINGS_PER_BATCH = 1024  # max. strings ranked at once; limits the candidate table


class CandidateGenerator:
    """Ranks a knowledge base's concepts as candidates for strings. Thread-safe.

    A generator caches candidates for recent strings but is otherwise immutable, so a new state
    needs a new generator. A joined knowledge base has one generator per part, except during
    training with a pool of names.

    cache (Cache | None): Cache shared with the generators for earlier states.
    """

    def __init__(self, state: LinkerState, cache: Cache | None = None) -> None:
        self.kb: KnowledgeBase = state.kb
        self.parts: list[CandidateGenerator] = []
        self._cache = cache or Cache()
        self._part_of: dict[str, int] = {}
        if isinstance(self.kb, JoinedKnowledgeBase):
            # Use `kb.labels`: after loading from bytes, the `kb` setting has no folders.
            state = replace(state, settings=state.settings.model_copy(update={"kb": ""}))
            self._part_of = self.kb.labels
            for number, part in enumerate(self.kb.parts if state.pool is None else ()):
                part_cache = self._cache.get(("part", number), part, Cache)
                self.parts.append(CandidateGenerator(replace(state, kb=part), part_cache))
        elif state.pool is None and state.encoder is not None and state.is_dense:
            check = partial(is_dense, state.kb, state.encoder, mentions=state.settings.mentions)
            if not self._cache.get("is_dense", (state.kb, state.encoder), check):
                state = replace(state, encoder=None)
        self.state = state
        self._types = dict(state.settings.label_types)
        self._only_labels = state.settings.only_labels
        # If labels have their own knowledge bases, rules may supply the ids for other labels.
        rules = state.rules.rules.values() if self._part_of else ()
        by_rules = {label for one in rules if one.outside_ids for label in one.labels}
        self._excluded_labels = GENERAL_LABELS | by_rules
        self._lock = Lock()
        self._ranked: dict[LabelledString, tuple[Candidate, ...]] = {}
        self._masks: dict[str, BoolArray | None] = {}

    # Everything below is built lazily from the state.

    @property
    def encoder(self) -> FrozenEncoder:
        encoder = self.state.encoder
        assert encoder is not None  # callers check `state.is_dense` first
        return encoder

    @cached_property
    def names(self) -> EncodedNames | JoinedNames:
        """Dense search over the knowledge base names or, during training, the name pool."""
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
        """Dense search over the alias-table strings."""
        parts = self.state.alias_table, self.encoder
        return self._cache.get("training strings", parts, self._encoded_strings)

    def _encoded_strings(self) -> NameSearch:
        names = self.state.alias_table.names
        if self.state.pool is None and all(map(bundled_name, parts_of(self.kb))):
            return choose_index(string_vectors(self.encoder, names))
        return choose_index(quantize(self.encoder.encode(names)))

    @property
    def ngram_search(self) -> NgramSearch:
        """N-gram search over the knowledge base names."""
        make = self.state.make_ngram_search
        return self._cache.get("ngram_search", (self.kb, make), partial(make, self.kb))

    @property
    def dictionary(self) -> DictionaryLookup:
        """Dictionary that finds knowledge base names in text."""
        return self._cache.get("dictionary", self.kb, partial(DictionaryLookup, self.kb))

    @cached_property
    def unambiguous_names(self) -> UnambiguousNames:
        """Lookup of unambiguous names, for labels that have their own vocabulary."""
        parts = self.kb, tuple(self._types.items()), self._only_labels
        make = partial(UnambiguousNames, self.vocabularies)
        return self._cache.get("unambiguous names", parts, make)

    @cached_property
    def rules(self) -> RuleSet:
        """The entity rules, bound to the linker's knowledge bases."""
        return self.state.rules.with_knowledge(self)

    @cached_property
    def labels(self) -> list[str]:
        """All labels named in the settings."""
        return list({**self._types, **self._part_of, **dict.fromkeys(self._only_labels)})

    @cached_property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Vocabularies by label, for labels that have their own vocabulary."""
        vocabularies = {}
        for label in {**self._types, **self._part_of}:
            if self.types_of(label) != ():
                # Use a joined knowledge base's parts, because their columns are memory-mapped.
                generator = self.for_label(label)
                mask = generator._mask(label)
                if mask is not None or generator is not self:
                    vocabularies[label] = Vocabulary(generator.kb, mask)
        return vocabularies

    @property
    def seen(self) -> Container[str]:
        """The strings in the alias table."""
        return self.state.alias_table.counts

    def kb_of(self, label: str) -> KnowledgeBase:
        """Return the knowledge base that a label's mentions are linked to."""
        return self.for_label(label).kb

    def linked_kbs(self, labels: Collection[str]) -> dict[str, KnowledgeBase]:
        """Return the knowledge base for each label that the settings do not exclude."""
        return {label: self.kb_of(label) for label in labels if self.types_of(label) != ()}

    # Labels.

    def for_label(self, label: str) -> CandidateGenerator:
        """Return the generator for a label's knowledge base."""
        number = self._part_of.get(label)
        return self if number is None or not self.parts else self.parts[number]

    def types_of(self, label: str) -> tuple[str, ...] | None:
        """Return the semantic types allowed for a label, or None if all are allowed."""
        if self._only_labels and label and label not in self._only_labels:
            return ()
        is_listed = label in {*self._part_of, *self._only_labels}
        is_excluded = not is_listed and label in self._excluded_labels
        return self._types.get(label, () if is_excluded else None)

    def _mask(self, label: str) -> BoolArray | None:
        """Return a mask of the concepts a label allows, or None for all. Shape (n_concepts,)."""
        if label not in self._masks:
            types, number = self.types_of(label), self._part_of.get(label)
            mask = None
            # If the knowledge base has no types, only () has an effect: it excludes the label.
            if types is not None and (self.kb.type_names or not types):
                mask = self.kb.type_mask(types)
            if number is not None and isinstance(self.kb, JoinedKnowledgeBase):
                in_part = self.kb.has_concepts(number)
                mask = in_part if mask is None else mask & in_part
            self._masks[label] = mask
        return self._masks[label]

    def allowed(self, concepts: IntArray, labels: Sequence[str], owners: IntArray) -> BoolArray:
        """Return a mask of the candidates allowed by their mention's label. Shape (n,).

        concepts (IntArray): Concept row of each candidate. Shape (n,).
        labels (Sequence[str]): Label of each mention.
        owners (IntArray): Mention number of each candidate. Shape (n,).
        """
        is_allowed = np.ones(len(concepts), dtype=bool)
        different, label_number = np.unique(np.array(labels, dtype=object), return_inverse=True)
        for number, label in enumerate(different):
            if (mask := self._mask(label)) is not None:
                rows = np.flatnonzero(label_number[owners] == number)
                is_allowed[rows] = mask[concepts[rows]]
        return is_allowed

    # Strings.

    def candidate_table(
        self, queries: Sequence[str], *, also_names: Sequence[str] = ()
    ) -> CandidateTable:
        """Return the candidates for distinct normalised strings, with all their evidence.

        also_names (Sequence[str]): Searches ("ngram", "dense") to run even for KB names.
        """
        state = self.state
        if state.rescorer is not None:  # give the contextual model more candidates
            also_names = [*also_names, "dense"]
        return candidate_table(
            list(map(self._corrected, queries)),
            self.kb,
            alias_table=state.alias_table,
            # Access `self.names` even if nothing is searched, so that bad vectors raise errors.
            dense_search=partial(self._search_dense, self.names) if state.is_dense else None,
            ngram_search=self.ngram_search,
            k=SEARCHED,
            evidence=state.settings.evidence.names,
            also_names=also_names,
        )

    def _search_dense(
        self, names: NameSearch, strings: Sequence[str]
    ) -> tuple[SearchResult, SearchResult | None]:
        vectors = self.encoder.encode(strings)
        found = names.search(vectors, SEARCHED)
        if "alias_table" not in self.state.settings.evidence.names:
            return found, None
        return found, self._training_strings.search(vectors, SEARCHED)

    def _corrected(self, query: str) -> str:
        """Correct a string's spelling if only the corrected form is a name or an alias."""
        other, aliases = correct_spelling(query), self.state.alias_table.counts
        if other == query or query in aliases:
            return query
        *known, corrected = self.kb.lookup_names([query, *respellings(query), other]) >= 0
        return other if not any(known) and (corrected or other in aliases) else query

    def rank(self, wanted: Sequence[LabelledString]) -> dict[LabelledString, tuple[Candidate, ...]]:
        """Return the best candidates for (normalised string, label) pairs, in one batch.

        wanted (Sequence): Distinct pairs.
        RETURNS (dict): Candidates of each pair, best first; empty if no name is similar.
        """
        ranked: dict[LabelledString, tuple[Candidate, ...]] = {}
        if self.parts:
            pairs_of_parts: dict[int, list[LabelledString]] = {}
            for pair in wanted:
                pairs_of_parts.setdefault(self._part_of.get(pair[1], -1), []).append(pair)
            wanted = pairs_of_parts.pop(-1, [])
            for number, pairs in pairs_of_parts.items():
                ranked |= self.parts[number].rank(pairs)
        with self._lock:
            # Move known strings to the end, so that the least recently used ones come first.
            known = {pair: self._ranked.pop(pair) for pair in wanted if pair in self._ranked}
            self._ranked |= known
        new = [pair for pair in wanted if pair not in known]
        for start in range(0, len(new), _STRINGS_PER_BATCH):
            known |= self._rank(new[start : start + _STRINGS_PER_BATCH])
        with self._lock:
            self._ranked |= {pair: known[pair] for pair in new}
            for pair in list(islice(self._ranked, max(0, len(self._ranked) - CACHED_STRINGS))):
                del self._ranked[pair]
        return ranked | known

    def rank_names(self, names: Sequence[str]) -> Ranked:
        """Return the concepts with these normalised names as candidates, without searching.

        A name's concepts share its score; a concept with this preferred name counts twice. Concepts
        in different knowledge bases do not compete, because all may be correct.

        RETURNS (Mapping): Candidates of each (name, `AS_NAME`) pair.
        """
        if not names:
            return {}
        kb, different = self.kb, list(dict.fromkeys(names))
        rows = kb.lookup_names(different)
        indptr, concepts, is_preferred = kb.concepts_of_names(rows)
        owners = np.repeat(np.arange(len(rows)), np.diff(indptr))
        weights, scores = 1.0 + is_preferred.astype(np.float64), np.zeros(len(concepts))
        for is_member in kb.memberships():
            weight = weights * is_member[concepts]
            # Count equivalent concepts only once.
            is_first = ~have_likelier_equivalents(kb, concepts, weight, owners)
            total = np.bincount(owners, weight * is_first, len(rows))[owners]
            share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
            scores = np.maximum(scores, share)
        columns = owners.tolist(), kb.ids_of(concepts), scores.tolist()
        described = kb.names.take(rows[owners]), ["exact"] * len(concepts)
        candidates = candidates_of(len(different), kb.fingerprint, *columns, *described)
        return dict(
            zip([(name, AS_NAME) for name in different], best_first(candidates), strict=True)
        )

    def _rank(
        self, wanted: Sequence[LabelledString], *, also_names: Sequence[str] = ()
    ) -> dict[LabelledString, tuple[Candidate, ...]]:
        ranked: dict[LabelledString, tuple[Candidate, ...]] = dict.fromkeys(wanted, ())
        types = {label: self.types_of(label) for label in {label for _, label in wanted}}
        pairs = [pair for pair in wanted if pair[0] and types[pair[1]] != ()]
        numbers = {query: i for i, query in enumerate(dict.fromkeys(query for query, _ in pairs))}
        if not numbers:
            return ranked
        table = self.candidate_table(list(numbers), also_names=also_names)
        # Repeat a string's rows for each of its labels.
        first = np.searchsorted(table.query, np.arange(len(numbers) + 1))
        queries = np.array([numbers[query] for query, _ in pairs])
        indptr, rows = entries_of(first[queries], np.diff(first)[queries])
        owners, concepts = np.repeat(np.arange(len(pairs)), np.diff(indptr)), table.concept[rows]
        scores = (self.state.fusion or default_fusion()).scores(table.features)[rows]
        is_allowed = self.allowed(concepts, [label for _, label in pairs], owners)
        scores = np.where(is_allowed, scores, -np.inf)
        kept = table.sources[rows] & EXACT > 0  # rules choose between concepts that share a name
        top = self.state.settings.max_candidates
        best, probabilities = rank(self.kb, concepts, scores, owners, top=top, kept=kept)
        best = best[is_allowed[best]]
        # Concepts proposed only by the alias table have no matching name: use the preferred name.
        names = table.name[rows[best]]
        names = np.where(names < 0, self.kb.preferred_rows(concepts[best]), names)
        ids, taken = self.kb.ids_of(concepts[best]), self.kb.names.take(names)
        evidence = map(_evidence, table.sources[rows[best]].tolist())
        columns = owners[best].tolist(), ids, probabilities[best].tolist(), taken, evidence
        candidates = candidates_of(len(pairs), self.kb.fingerprint, *columns)
        ranked |= dict(zip(pairs, candidates, strict=True))
        # Names skipped the search. Search for those whose label excludes all of their concepts.
        excluded = [pair for pair in pairs if not (also_names or ranked[pair])]
        return ranked | (self._rank(excluded, also_names=("ngram", "dense")) if excluded else {})


@cache
def _evidence(sources: int) -> str:
    """Format a candidate's evidence sources as a string, such as "exact+dense"."""
    return "+".join(name for bit, name in SOURCES.items() if sources & bit)
