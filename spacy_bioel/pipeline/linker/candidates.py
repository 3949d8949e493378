"""Candidate generation: from normalised strings to ranked candidates, for one state of a linker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import islice
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.evidence import SOURCES, Candidates, gather_candidates
from spacy_bioel.pipeline.linker.fusion import default_fusion, rank, share_of_equivalents
from spacy_bioel.pipeline.linker.names import (
    NamePool,
)
from spacy_bioel.pipeline.linker.searches import Found, SpellingSearch
from spacy_bioel.pipeline.linker.starter import is_dense
from spacy_bioel.pipeline.linker.state import DenseSearch, LinkerState, NameTries
from spacy_bioel.pipeline.mentions.finder import NameFinder
from spacy_bioel.pipeline.short_forms import shorthand_beside
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Candidate

# Strings whose candidates are kept: some 25 MB.
KEPT = 10_000
_TOGETHER = 1024  # strings that are ranked together: bounds the table of their candidates

String = tuple[str, str]  # normalised, and the label of the mention


class CandidateGenerator:
    """Ranks the concepts of a knowledge base for strings; may be shared by threads.

    It keeps the candidates of recent strings and never changes otherwise: a new state takes a new
    generator.

    state (LinkerState): Everything that the candidates depend on.
    before (CandidateGenerator | None): Of an earlier state; its vectors and tries are reused if
        they are those of this state.
    pool (NamePool | None): See `DenseSearch`; for training, which searches among few names.
    """

    def __init__(
        self,
        state: LinkerState,
        *,
        before: CandidateGenerator | None = None,
        pool: NamePool | None = None,
    ) -> None:
        self.state = state
        self.kb: KnowledgeBase = state.kb
        # Of the parts of a joined knowledge base.
        self.parts = self._make_parts(before) if pool is None else []
        self._lock = Lock()
        self._kept: dict[String, tuple[Candidate, ...]] = {}
        self._masks: dict[str, NDArray[np.bool_]] = {}  # of labels: concepts of their types
        is_same_kb = before is not None and before.kb is state.kb
        # Made at first use: a joined knowledge base may never need its own.
        self._spelling: Callable[[], SpellingSearch] = cache(partial(state.make_spelling, state.kb))
        if before and is_same_kb and before.state.make_spelling is state.make_spelling:
            self._spelling = before._spelling
        tries = before.tries if before is not None else None
        if tries is None or not tries.serves(state.kb, pool):
            tries = NameTries(state.kb, pool=pool)
        self.tries: NameTries = tries
        self._finder: NameFinder | None = before._finder if before and is_same_kb else None
        self._dense: DenseSearch | None = None
        if state.encoder is not None:
            dense = before._dense if before is not None else None
            is_same = dense is not None and dense.serves(state, pool)
            parts = [part._dense for part in self.parts]
            self._dense = dense if is_same else DenseSearch(state, pool=pool, parts=parts)

    def _make_parts(self, before: CandidateGenerator | None) -> list[CandidateGenerator]:
        return []

    @property
    def dense(self) -> DenseSearch:
        """The search by the encoder. RAISES ValueError: Without an encoder."""
        if self._dense is None:
            raise ValueError("this state has no encoder")
        return self._dense

    @property
    def finder(self) -> NameFinder:
        """Finds names of the knowledge base in texts; made at first use."""
        with self._lock:
            if self._finder is None:
                self._finder = NameFinder(self.kb)
            return self._finder

    def of(self, label: str) -> CandidateGenerator:
        """The generator of the candidates of mentions with this label."""
        return self

    @cached_property
    def _prior(self) -> NDArray[np.float32]:
        return self.state.statistics.prior(self.kb)

    @cached_property
    def _shorthand(self) -> dict[str, str]:
        """From short form to long form, normalised; no short form is a known name."""
        if not self.state.settings.shorthand:
            return {}
        counts = self.state.statistics.counts
        forms = {normalize_name(short): long for short, long in shorthand_beside(self.kb).items()}
        return {short: normalize_name(long) for short, long in forms.items() if short not in counts}

    def _written_out(self, queries: Sequence[str]) -> list[str]:
        """Queries with shorthand written out, except those that are known as they are."""
        forms = self._shorthand
        written = [
            forms.get(query) or " ".join([forms.get(word, word) for word in query.split(" ")])
            for query in queries
        ]
        changed = [i for i, query in enumerate(queries) if written[i] != query]
        rows = self.kb.lookup_names([queries[i] for i in changed])
        for i, row in zip(changed, rows.tolist(), strict=True):
            if row >= 0 or queries[i] in self.state.statistics.counts:
                written[i] = queries[i]
        return written

    def gather(self, queries: Sequence[str]) -> Candidates:
        """All evidence about different normalised strings."""
        state, k = self.state, self.state.settings.search_names
        queries = self._written_out(queries)
        dense: Found | None = None
        recalled: Found | None = None
        if state.is_dense:
            counted = state.statistics if "memory" in state.settings.evidence else None
            dense, recalled = self.dense.search(queries, k, counted)
        return gather_candidates(
            queries,
            self.kb,
            statistics=state.statistics,
            prior=self._prior,
            dense=dense,
            recalled=recalled,
            spelling=self._spelling(),
            k=k,
            evidence=state.settings.evidence,
        )

    def allowed(self, concepts: NDArray[np.int64], label: str) -> NDArray[np.bool_]:
        """Concepts whose semantic types a mention of this label may link to. Shape (n,)."""
        types = self.state.settings.types_of(label)
        # Of concepts without types, nothing says which labels they are for.
        if types is None or (types and not self.kb.type_names):
            return np.ones(len(concepts), dtype=bool)
        if (mask := self._masks.get(label)) is None:
            mask = self._masks[label] = self.kb.type_mask(types)
        return mask[concepts]

    def allowed_for(
        self, concepts: NDArray[np.int64], labels: NDArray[np.str_]
    ) -> NDArray[np.bool_]:
        """Like `allowed`, with a label for each concept. Shape (n,)."""
        may = np.zeros(len(concepts), dtype=bool)
        for label in dict.fromkeys(labels.tolist()):
            of_label = labels == label
            may[of_label] = self.allowed(concepts[of_label], label)
        return may

    def rank(self, wanted: Sequence[String]) -> dict[String, tuple[Candidate, ...]]:
        """Best candidates of (normalised string, label) pairs, in one batch.

        wanted (Sequence): Different pairs.
        RETURNS (dict): Best first; empty where nothing is known or the string is "".
        """
        with self._lock:
            # Least recently used strings come first.
            ranked = {pair: self._kept.pop(pair) for pair in wanted if pair in self._kept}
            self._kept |= ranked
        new = [pair for pair in wanted if pair not in ranked]
        for start in range(0, len(new), _TOGETHER):
            ranked |= self._rank(new[start : start + _TOGETHER])
        with self._lock:
            self._kept |= {pair: ranked[pair] for pair in new}
            for pair in list(islice(self._kept, max(0, len(self._kept) - KEPT))):
                del self._kept[pair]
        return ranked

    def _rank(self, wanted: Sequence[String]) -> dict[String, tuple[Candidate, ...]]:
        ranked: dict[String, tuple[Candidate, ...]] = dict.fromkeys(wanted, ())
        types_of = self.state.settings.types_of
        linked = [(query, label) for query, label in wanted if query and types_of(label) != ()]
        queries = list(dict.fromkeys(query for query, _ in linked))
        if not queries:
            return ranked
        candidates = self.gather(queries)
        scores = (self.state.fusion or default_fusion()).scores(candidates.features)
        for label in {label for _, label in linked}:
            allowed = self.allowed(candidates.concept, label)
            own = np.where(allowed, scores, -np.inf)
            shares = share_of_equivalents(self.kb, candidates.concept, own, candidates.query)
            top = self.state.settings.max_candidates
            rows = rank(candidates.query, candidates.concept, shares, top=top)
            described = self._describe(candidates, shares, rows[allowed[rows]])
            for query, found in described.items():
                if (queries[query], label) in ranked:
                    ranked[queries[query], label] = tuple(found)
        return ranked

    def _describe(
        self, candidates: Candidates, scores: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> dict[int, list[Candidate]]:
        """Rows of the table as records, by query."""
        described: dict[int, list[Candidate]] = {}
        concepts, names = candidates.concept[rows], candidates.name[rows]
        # A concept that only a training string speaks for is called by its preferred name.
        names = np.where(names >= 0, names, self.kb.preferred_rows(concepts))
        columns = (
            candidates.query[rows].tolist(),
            self.kb.ids_of(concepts),
            scores[rows].tolist(),
            self.kb.names.take(names),
            candidates.sources[rows].tolist(),
        )
        for query, id, score, name, sources in zip(*columns, strict=True):
            candidate = Candidate(
                id, round(score, 4), name, _evidence(sources), self.kb.fingerprint
            )
            described.setdefault(query, []).append(candidate)
        return described


@cache
def _evidence(sources: int) -> str:
    return "+".join(name for bit, name in SOURCES.items() if sources & bit)


def make_generator(
    state: LinkerState, *, before: CandidateGenerator | None = None, pool: NamePool | None = None
) -> CandidateGenerator:
    """Make the generator of a state; arguments are those of `CandidateGenerator`."""
    is_joined = isinstance(state.kb, JoinedKnowledgeBase)
    kind = JoinedGenerator if is_joined else CandidateGenerator
    return kind(state, before=before, pool=pool)


class JoinedGenerator(CandidateGenerator):
    """Candidate generation over a joined knowledge base.

    While training searches a pool of names, labels choose among what was found there.
    """

    kb: JoinedKnowledgeBase

    def _make_parts(self, before: CandidateGenerator | None) -> list[CandidateGenerator]:
        kbs = self.kb.parts
        is_same = before is not None and before.kb is self.kb and before.parts
        earlier = before.parts if before is not None and is_same else [None] * len(kbs)
        return [
            CandidateGenerator(self._state_of(kb), before=generator)
            for kb, generator in zip(kbs, earlier, strict=True)
        ]

    def _state_of(self, kb: KnowledgeBase) -> LinkerState:
        encoder = self.state.encoder
        if encoder is not None and self.state.is_dense:
            encoder = (
                encoder if is_dense(kb, encoder, mentions=self.state.settings.mentions) else None
            )
        return replace(self.state, kb=kb, encoder=encoder)

    @cached_property
    def _of_labels(self) -> dict[str, NDArray[np.bool_]]:
        return {}  # concepts that mentions of a label may link to

    def of(self, label: str) -> CandidateGenerator:
        number = self.kb.part_of(label)
        return self if number is None or not self.parts else self.parts[number]

    def allowed(self, concepts: NDArray[np.int64], label: str) -> NDArray[np.bool_]:
        may = super().allowed(concepts, label)
        if (number := self.kb.part_of(label)) is None:
            return may
        if (mask := self._of_labels.get(label)) is None:
            mask = self._of_labels[label] = self.kb.has_concepts(number)
        return may & mask[concepts]

    def rank(self, wanted: Sequence[String]) -> dict[String, tuple[Candidate, ...]]:
        pairs: dict[CandidateGenerator, list[String]] = {}
        for pair in wanted:
            pairs.setdefault(self.of(pair[1]), []).append(pair)
        ranked = super().rank(pairs.pop(self, []))
        for generator, of_part in pairs.items():
            ranked |= generator.rank(of_part)
        return ranked
