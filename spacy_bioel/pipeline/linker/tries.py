"""Tries of the names that a generative linker may write, kept by candidate generation."""

from __future__ import annotations

from threading import RLock

from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.stored_trie import open_trie
from spacy_bioel.kb.words.trie import NameTrie, build_trie
from spacy_bioel.models.marked import MarkedPieces
from spacy_bioel.pipeline.linker.names import needs_no_folder
from spacy_bioel.pipeline.linker.sampling import NamePool


class NameTries:
    """Each is opened or built at first use, once, whatever the threads that ask.

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
