"""Candidate generation: from normalised strings to ranked candidates, for one state of a linker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import islice
from threading import Lock, RLock

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.quantized import quantize
from spacy_bioel.pipeline.linker.equivalents import share_of_equivalents
from spacy_bioel.pipeline.linker.evidence import (
    SOURCES,
    Candidates,
    NameSearch,
    gather_candidates,
)
from spacy_bioel.pipeline.linker.fusion import default_fusion, rank
from spacy_bioel.pipeline.linker.names import (
    EncodedNames,
    FrozenEncoder,
    JoinedNames,
    encoded_names,
)
from spacy_bioel.pipeline.linker.sampling import NamePool
from spacy_bioel.pipeline.linker.spelling import Found, SpellingSearch
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.pipeline.linker.tries import NameTries
from spacy_bioel.pipeline.mentions.finder import NameFinder
from spacy_bioel.pipeline.shorthand import shorthand_beside
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Candidate

# Strings whose candidates are kept: some 25 MB.
KEPT = 10_000
_TOGETHER = 1024  # strings that are ranked together: bounds the table of their candidates

String = tuple[str, str]  # normalised, and the label of the mention


class DenseSearch:
    """Nearest names, and nearest training strings, by the encoder of a state.

    Both are encoded at first use, once, whatever the threads that ask. Other mention statistics
    leave the names as they are.

    pool (NamePool | None): Names to search among; None: all of the knowledge base.
    parts (Sequence[DenseSearch | None]): Those of the parts of a joined knowledge base; None of one
        that is not searched by vectors.
    """

    def __init__(
        self,
        state: LinkerState,
        *,
        pool: NamePool | None = None,
        parts: Sequence[DenseSearch | None] = (),
    ) -> None:
        assert state.encoder is not None
        self._state = state
        self._pool = pool
        self._parts = parts
        self._lock = RLock()
        self._names: EncodedNames | JoinedNames | None = None
        self._training_strings: tuple[MentionStatistics, NameSearch] | None = None
        self.encoder: FrozenEncoder = state.encoder

    def serves(self, state: LinkerState, pool: NamePool | None) -> bool:
        """Whether what was encoded here is that of another state too."""
        mine = self._state
        return (
            self._pool is pool
            and mine.kb is state.kb
            and mine.encoder is state.encoder
            and mine.make_index is state.make_index
        )

    @property
    def names(self) -> EncodedNames | JoinedNames:
        """The names that are searched among."""
        with self._lock:
            if self._names is None:
                make_index = self._state.make_index
                if self._pool is not None:
                    self._names = self._pool.encoded(self.encoder.encode, make_index)
                elif isinstance(self._state.kb, JoinedKnowledgeBase):
                    names = [part.names if part else None for part in self._parts]
                    self._names = JoinedNames(self._state.kb, names)
                else:
                    self._names = encoded_names(self._state.kb, self.encoder, make_index)
            return self._names

    def _strings(self, statistics: MentionStatistics) -> NameSearch:
        with self._lock:
            if self._training_strings is None or self._training_strings[0] is not statistics:
                vectors = quantize(self.encoder.encode(statistics.names))
                self._training_strings = statistics, self._state.make_index(vectors)
            return self._training_strings[1]

    def search(
        self, queries: Sequence[str], k: int, statistics: MentionStatistics | None = None
    ) -> tuple[Found, Found | None]:
        """The k nearest names, and the k nearest training strings, of normalised strings.

        statistics (MentionStatistics | None): Of the training strings; None: they do not count.
        """
        vectors = self.encoder.encode(queries)
        names = self.names.search(vectors, k)
        if statistics is None:
            return names, None
        return names, self._strings(statistics).search(vectors, k)


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
        self.spelling: SpellingSearch = (
            before.spelling
            if before is not None
            and before.kb is state.kb
            and before.state.make_spelling is state.make_spelling
            else state.make_spelling(state.kb)
        )
        tries = before.tries if before is not None else None
        if tries is None or not tries.serves(state.kb, pool):
            tries = NameTries(state.kb, pool=pool)
        self.tries: NameTries = tries
        is_same_kb = before is not None and before.kb is state.kb
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
        """Queries with shorthand written out, but for those that are known as they are."""
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
            spelling=self.spelling,
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
        queries = list(dict.fromkeys(query for query, _ in wanted if query))
        if not queries:
            return ranked
        candidates = self.gather(queries)
        scores = (self.state.fusion or default_fusion()).scores(candidates.features)
        for label in {label for _, label in wanted}:
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
