"""Searches among names: by spelling, and by the vectors of a frozen encoder."""

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
from spacy_bioel.kb.vectors import QuantizedVectors, coarse_codes_of, quantize
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
    """Nearest names of unit vectors; `kb.vectors.ExactIndex` is one."""

    def search(self, queries: FloatArray, k: int) -> SearchResult: ...


class NgramSearch(Protocol):
    """Names that are spelled like a query."""

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        """The k names most alike to each query.

        queries (Sequence[str]): Normalised strings.
        RETURNS (tuple): Rows and scores between 0 and 1, best first, lower row first among
            equals; -1 and 0 where fewer than k names are found. Shape (n_queries, k) each.
        """
        ...


MakeSearch = Callable[[KnowledgeBase], NgramSearch]


def create_ngrams_v1() -> MakeSearch:
    """spacy-bioel.Ngrams.v1: the 3-grams that come with the knowledge base, `kb.spelling`."""
    return attrgetter("ngrams")


Encode = Callable[[Sequence[str]], FloatArray]
# A knowledge base of up to this many names is encoded in memory when it comes without vectors.
ENCODE_ON_LOAD = 60_000


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """An encoder of names for inference, with the weights of one moment.

    model (NameEncoder): With its word pieces.
    infer (Callable): Made by `inference_of` from the network of the model.
    """

    model: NameEncoder
    infer: Infer

    @classmethod
    def of(cls, model: NameEncoder) -> FrozenEncoder:
        """The encoder as it is now."""
        return cls(model, inference_of(model))

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the encoder: weights, word pieces and the normalisation of names."""
        digest = blake2b(str(NORMALIZER_VERSION).encode(), digest_size=8)
        for name, part in encoder_parts(self.model).items():
            digest.update(name.encode() + part())
        return digest.hexdigest()

    def encode(self, names: Sequence[str]) -> FloatArray:
        """Unit vectors of normalised names. Shape (n_names, dim)."""
        return encode_names(self.model, names, infer=self.infer)

    def write(self, kb: KnowledgeBase, *, progress: Callable[[int], None] | None = None) -> Encoded:
        """Encode all names of a knowledge base into its folder, see `write_vectors`."""
        name, dim = self.fingerprint, self.model.get_dim("nO")
        return write_vectors(kb, self.encode, fingerprint=name, dim=dim, progress=progress)


@dataclass(frozen=True)
class EncodedNames:
    """Names of a knowledge base with their vectors, and the search among them.

    vectors (QuantizedVectors): Unit rows, possibly mapped. Shape (n, dim).
    index (NameSearch): Over them.
    rows (IntArray | None): Their name rows, ascending; None: they are all names. Shape (n,).
    """

    vectors: QuantizedVectors
    index: NameSearch
    rows: IntArray | None = None

    def search(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Like `ExactIndex.search`, with name rows of the knowledge base."""
        found, scores = self.index.search(queries, k)
        if self.rows is not None:
            found = np.where(found >= 0, self.rows[found], -1)
        return found, scores

    def take(self, rows: IntArray) -> FloatArray:
        """Vectors of name rows; zeros of those that are not here. Shape (len(rows), dim)."""
        if self.rows is None:
            return self.vectors.take(rows)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where((self.rows[at] == rows)[:, None], self.vectors.take(at), np.float32(0))


class JoinedNames:
    """Names of a joined knowledge base, each with the vector that its part has.

    of_parts (Sequence): All names of each part; None of one whose names have no vectors.
    """

    def __init__(
        self, kb: JoinedKnowledgeBase, of_parts: Sequence[EncodedNames | JoinedNames | None]
    ) -> None:
        self._names = kb.names
        self._of_parts = of_parts
        pairs = zip(of_parts, kb.name_rows, strict=True)
        found = [(names, rows) for names, rows in pairs if names is not None]
        search = JoinedSearch([n for n, _ in found], [r for _, r in found], nothing=-np.inf)
        self.search = search.search  # like `EncodedNames.search`, with joined name rows

    def take(self, rows: IntArray) -> FloatArray:
        """Vectors of joined name rows; zeros of those without. Shape (len(rows), dim)."""
        parts = [(at, own, self._of_parts[number]) for number, at, own in self._names.local(rows)]
        found = [(at, names.take(own)) for at, own, names in parts if names is not None]
        # Some part has an encoder, or there is no dense search.
        vectors = np.zeros((len(rows), found[0][1].shape[1]), dtype=np.float32)
        for at, of_part in found:
            vectors[at] = of_part
        return vectors


def needs_no_folder(kb: KnowledgeBase) -> bool:
    """Whether a knowledge base, or each of several, is small enough to be encoded in memory, by
    each process."""
    return all(part.n_names <= ENCODE_ON_LOAD for part in parts_of(kb))


def encoded_names(kb: KnowledgeBase, encoder: FrozenEncoder) -> EncodedNames:
    """All names of a knowledge base: by the vectors in its folder, or encoded in memory.

    RAISES BioelError: Those of `open_vectors`, for a knowledge base that is not small.
    """
    outdated = are_outdated(kb, encoder.fingerprint)
    if needs_no_folder(kb) and (outdated or not has_vectors(kb, encoder.fingerprint)):
        if outdated:
            warnings.warn(Warnings.W181.format(path=kb.where), stacklevel=2)
        vectors = quantize(encoder.encode(normalize_names(list(kb.names))))
        vectors.coarse = coarse_codes_of(vectors)
    else:
        vectors = open_vectors(kb, fingerprint=encoder.fingerprint)
    return EncodedNames(vectors, choose_index(vectors))


class NamePool:
    """The part of a knowledge base that training encodes again and again.

    Encoding all names at every refresh would cost more than the training itself. The pool has all
    names of the concepts of the training corpus, then those of the concepts with the most names,
    which are the most mentioned ones too. It is where negatives are mined, and what the
    development documents are linked against while training; `bioel kb encode` then encodes all.

    mentioned (Iterable[str]): Ids of the concepts of the training corpus.
    rows (IntArray): Name rows in the pool. Shape (n_pool,).
    """

    def __init__(self, kb: KnowledgeBase, mentioned: Iterable[str], *, size: int) -> None:
        gold_rows = kb.find_all(sorted(mentioned))
        n_names = np.diff(kb.concept_offsets)
        order = np.argsort(-n_names, kind="stable")
        wanted = np.unique(np.concatenate([gold_rows[gold_rows >= 0], order]), return_index=True)
        by_need = wanted[0][np.argsort(wanted[1], kind="stable")]
        n_fitting = int(np.searchsorted(np.cumsum(n_names[by_need]), size, side="right"))
        chosen = by_need[: max(1, n_fitting)]
        entries = np.zeros(len(kb), dtype=bool)
        entries[chosen] = True
        self.rows = np.unique(kb.concept_names[np.repeat(entries, n_names)]).astype(np.int64)
        self.names = normalize_names(kb.names.take(self.rows))

    def encoded(self, encode: Encode) -> EncodedNames:
        """All names of the pool."""
        vectors = quantize(encode(self.names))
        return EncodedNames(vectors, choose_index(vectors), self.rows)
