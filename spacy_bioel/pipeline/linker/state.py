"""The state of a linker as one frozen value: everything that candidate generation depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock

from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.quantized import quantize
from spacy_bioel.kb.words.trie import NameTrie, build_trie, open_trie
from spacy_bioel.models.marked import MarkedPieces
from spacy_bioel.pipeline.linker.fusion import Fusion
from spacy_bioel.pipeline.linker.names import (
    EncodedNames,
    FrozenEncoder,
    JoinedNames,
    NamePool,
    encoded_names,
    needs_no_folder,
)
from spacy_bioel.pipeline.linker.searches import (
    Found,
    MakeIndex,
    MakeSearch,
    NameSearch,
)
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.pipeline.linker.statistics import MentionStatistics


@dataclass(frozen=True)
class LinkerState:
    """Parts are compared by identity, and settings by value: none of them changes.

    kb (KnowledgeBase): Concepts and names.
    encoder (FrozenEncoder | None): Of names; None: no dense evidence.
    statistics (MentionStatistics): Of the training corpus.
    fusion (Fusion | None): Weights of the evidence; None: those of the package.
    reading (Fusion | None): Weights of what a contextual model reads; None: the default ones.
    finding (Fusion | None): Weights of what is found with the knowledge base; None: those of the
        package.
    settings (LinkerSettings): Of the pipe.
    make_index (Callable): From vectors to a search among them.
    make_spelling (Callable): From the knowledge base to a spelling search.
    """

    kb: KnowledgeBase
    encoder: FrozenEncoder | None
    statistics: MentionStatistics
    fusion: Fusion | None
    reading: Fusion | None
    finding: Fusion | None
    settings: LinkerSettings
    make_index: MakeIndex
    make_spelling: MakeSearch

    @property
    def is_dense(self) -> bool:
        """Whether the encoder is asked."""
        return self.encoder is not None and "dense" in self.settings.evidence


class DenseSearch:
    """Nearest names, and nearest training strings, by the encoder of a state.

    Both are encoded at first use, once, for all threads. Other mention statistics
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


class NameTries:
    """Each is opened or built at first use, once, for all threads.

    pool (NamePool | None): Names that may be written; None: all of the knowledge base.
    """

    def __init__(self, kb: KnowledgeBase, *, pool: NamePool | None = None) -> None:
        self.kb = kb
        self.pool = pool
        self._lock = RLock()
        self._found: dict[str, NameTrie] = {}

    def serves(self, kb: KnowledgeBase, pool: NamePool | None) -> bool:
        """Whether these are the names of another state too."""
        return self.kb is kb and self.pool is pool

    def of(self, pieces: MarkedPieces) -> NameTrie:
        """The trie by some word pieces: of the pool, of the folder, or of a small KB, built here.

        RAISES BioelError: Those of `open_trie`, for a knowledge base that is not small.
        """
        with self._lock:
            if (trie := self._found.get(pieces.fingerprint)) is None:
                trie = self._found[pieces.fingerprint] = self._make(pieces)
            return trie

    def replace(self, pieces: MarkedPieces, trie: NameTrie) -> None:
        """Let other names be written, such as the preferred ones alone."""
        with self._lock:
            self._found[pieces.fingerprint] = trie

    def _make(self, pieces: MarkedPieces) -> NameTrie:
        if self.pool is not None:
            return build_trie(self.kb, pieces.writable, rows=self.pool.rows)
        if needs_no_folder(self.kb) or isinstance(self.kb, JoinedKnowledgeBase):
            return build_trie(self.kb, pieces.writable)
        return open_trie(self.kb, fingerprint=pieces.fingerprint)
