"""Name searches: n-gram search, and dense search with a frozen encoder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Protocol

import numpy as np

from spacy_bioel.errors import Warnings
from spacy_bioel.kb.faiss_index import choose_index
from spacy_bioel.kb.joined import JoinedKnowledgeBase, JoinedSearch, SearchResult, parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import (
    Encoded,
    are_outdated,
    has_vectors,
    open_vectors,
    write_vectors,
)
from spacy_bioel.kb.vectors import EncodeNames, QuantizedVectors, quantize
from spacy_bioel.models.name_encoder import (
    Infer,
    NameEncoder,
    encode_names,
    encoder_parts,
    inference_of,
)
from spacy_bioel.text.normalize import NORMALIZER_VERSION, normalize_names
from spacy_bioel.types import FloatArray, IntArray


class NameSearch(Protocol):
    """Interface for finding the names nearest to unit vectors; see `kb.vectors.ExactIndex`."""

    def search(self, queries: FloatArray, k: int) -> SearchResult: ...


class NgramSearch(Protocol):
    """Interface for finding names that are spelled like a query."""

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """Return the k most similar names for each query.

        queries (Sequence[str]): Normalised strings.
        RETURNS (tuple): Rows and scores from 0 to 1, best first; ties go to the lower row. If fewer
            than k names are found, the rest have row -1 and score 0. Shape (n_queries, k) each.
        """
        ...


MakeSearch = Callable[[KnowledgeBase], NgramSearch]


def create_ngrams_v1() -> MakeSearch:
    """Registered as `spacy-bioel.Ngrams.v1`: search a KB by 3-grams (see `kb.spelling`)."""
    return attrgetter("ngrams")


# Knowledge bases with up to this many names are encoded in memory if they have no vectors.
ENCODE_ON_LOAD = 60_000


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """Name encoder with fixed weights, for inference.

    model (NameEncoder): The encoder, including its word pieces.
    infer (Callable): Inference function for its network, from `inference_of`.
    """

    model: NameEncoder
    infer: Infer

    @classmethod
    def of(cls, model: NameEncoder) -> FrozenEncoder:
        """Freeze an encoder at its current weights."""
        return cls(model, inference_of(model))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the weights, the word pieces and the name normalisation version."""
        digest = blake2b(str(NORMALIZER_VERSION).encode(), digest_size=8)
        for name, part in encoder_parts(self.model).items():
            digest.update(name.encode() + part())
        return digest.hexdigest()

    def encode(self, names: Sequence[str]) -> FloatArray:
        """Encode normalised names as unit vectors. Shape (n_names, dim)."""
        return encode_names(self.model, names, infer=self.infer)

    def write(self, kb: KnowledgeBase, *, progress: Callable[[int], None] | None = None) -> Encoded:
        """Write the vectors of all names to the knowledge base folder (see `write_vectors`)."""
        name, dim = self.fingerprint, self.model.get_dim("nO")
        return write_vectors(kb, self.encode, fingerprint=name, dim=dim, progress=progress)


@dataclass(frozen=True)
class EncodedNames:
    """Knowledge base names with their vectors, and a dense search over them.

    vectors (QuantizedVectors): Unit vectors, possibly memory-mapped. Shape (n, dim).
    index (NameSearch): Index of the vectors.
    rows (IntArray | None): Name row of each vector, ascending; None if all names have vectors.
        Shape (n,).
    """

    vectors: QuantizedVectors
    index: NameSearch
    rows: IntArray | None = None

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Search like `ExactIndex.search`, but return name rows in the knowledge base."""
        rows, scores = self.index.search(queries, k)
        if self.rows is not None:
            rows = np.where(rows >= 0, self.rows[rows], -1)
        return rows, scores

    def take(self, rows: IntArray) -> FloatArray:
        """Return the vectors for name rows (zeros if a name has none). Shape (len(rows), dim)."""
        if self.rows is None:
            return self.vectors.take(rows)
        positions = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        has_vector = (self.rows[positions] == rows)[:, None]
        return np.where(has_vector, self.vectors.take(positions), np.float32(0))


class JoinedNames:
    """Names in a joined knowledge base, with the vectors from its parts.

    parts (Sequence): Encoded names of each part; None for parts without vectors.
    """

    def __init__(
        self, kb: JoinedKnowledgeBase, parts: Sequence[EncodedNames | JoinedNames | None]
    ) -> None:
        self._names = kb.names
        self._parts = parts
        rows = [rows for names, rows in zip(parts, kb.name_rows, strict=True) if names is not None]
        # `search` works like `EncodedNames.search`, but returns rows of the joined names.
        self.search = JoinedSearch([*filter(None, parts)], rows, nothing=-np.inf).search

    def take(self, rows: IntArray) -> FloatArray:
        """Return the vectors for joined name rows (zeros if a name has none). Shape (n, dim)."""
        blocks = []
        for number, positions, part_rows in self._names.local(rows):
            if (names := self._parts[number]) is not None:
                blocks.append((positions, names.take(part_rows)))
        # At least one part has vectors; otherwise the dense search would be disabled.
        vectors = np.zeros((len(rows), blocks[0][1].shape[1]), dtype=np.float32)
        for positions, part_vectors in blocks:
            vectors[positions] = part_vectors
        return vectors


def needs_no_folder(kb: KnowledgeBase) -> bool:
    """Return whether a knowledge base, or each of its parts, is small enough to encode on load."""
    return all(part.n_names <= ENCODE_ON_LOAD for part in parts_of(kb))


def encoded_names(kb: KnowledgeBase, encoder: FrozenEncoder) -> EncodedNames:
    """Open the vectors in the knowledge base folder, or encode the names in memory.

    Raises the same errors as `open_vectors`, unless the knowledge base is small.
    """
    outdated = are_outdated(kb, encoder.fingerprint)
    if needs_no_folder(kb) and (outdated or not has_vectors(kb, encoder.fingerprint)):
        if outdated:
            warnings.warn(Warnings.W181.format(path=kb.where), stacklevel=2)
        vectors = quantize(encoder.encode(normalize_names(list(kb.names))))
    else:
        vectors = open_vectors(kb, fingerprint=encoder.fingerprint)
    return EncodedNames(vectors, choose_index(vectors))


class NamePool:
    """Knowledge base names that are repeatedly re-encoded during training.

    Encoding all names at every refresh would take longer than the training itself. The pool is
    filled with all names for concepts in the training corpus, then with the names for the concepts
    that have the most names, because texts mention these concepts most often. During training, hard
    negatives come from the pool, and development documents are linked against it; `bioel kb encode`
    encodes all names afterwards.

    mentioned (Iterable[str]): Ids of the concepts in the training corpus.
    size (int): Maximum number of names.
    rows (IntArray): Name rows in the pool. Shape (n_pool,).
    """

    def __init__(self, kb: KnowledgeBase, mentioned: Iterable[str], *, size: int) -> None:
        gold_rows = kb.find_all(sorted(mentioned))
        n_names = np.diff(kb.concept_offsets)
        order = np.argsort(-n_names, kind="stable")
        with_repeats = np.concatenate([gold_rows[gold_rows >= 0], order])
        concepts, first = np.unique(with_repeats, return_index=True)
        by_priority = concepts[np.argsort(first, kind="stable")]
        n_fitting = int(np.searchsorted(np.cumsum(n_names[by_priority]), size, side="right"))
        is_chosen = np.zeros(len(kb), dtype=bool)
        is_chosen[by_priority[: max(1, n_fitting)]] = True
        self.rows = np.unique(kb.concept_names[np.repeat(is_chosen, n_names)]).astype(np.int64)
        self.names = normalize_names(kb.names.take(self.rows))

    def encoded(self, encode: EncodeNames) -> EncodedNames:
        """Encode the names in the pool."""
        vectors = quantize(encode(self.names))
        return EncodedNames(vectors, choose_index(vectors), self.rows)
