"""Frozen embeddings of word pieces: from the concepts that they name, from co-occurrence, and from
what another encoder makes of them.

All parts are singular value decompositions; nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

EmbeddingTables = dict[str, NDArray]
# Random share of an embedding, which distinguishes word pieces that always occur together.
_IDENTITY_SHARE = 0.25
_IDENTITY_SHARE_WITH_TEXTS = 0.125
_WINDOW = 5


def embed_vocabulary(
    tokenizer: Tokenizer,
    names: Sequence[str],
    concepts: NDArray[np.int64],
    *,
    width: int,
    max_tokens: int,
    texts: Sequence[str] = (),
    known: NDArray[np.float32] | None = None,
    seed: int = 0,
) -> EmbeddingTables:
    """Compute embeddings of word pieces.

    names (Sequence[str]): Normalised names.
    concepts (NDArray[int64]): Concept of each name. Shape (n_names,).
    width (int): Size of an embedding.
    max_tokens (int): Rows of the table of positions.
    texts (Sequence[str]): Normalised sentences. If given, half of the part that is not random
        comes from co-occurrence.
    known (NDArray[float32] | None): Vectors of the pieces by another encoder, half of the part that
        is not random. Shape (n_pieces, n).
    RETURNS (EmbeddingTables): Tables for `FrozenEmbeddings`; positions are zero.
    """
    share = _IDENTITY_SHARE_WITH_TEXTS if texts else _IDENTITY_SHARE
    n_latent = int(width * (1 - share))
    counts = _piece_concepts(tokenizer, names, concepts)
    matrices = [counts, _piece_contexts(tokenizer, texts)] if texts else [counts]
    shares = [1 / len(matrices)] * len(matrices)
    if known is not None:
        matrices = [known - known.mean(axis=0), *matrices]
        shares = [0.5, *(share / 2 for share in shares)]
    borders = (n_latent * np.cumsum([0, *shares])).astype(int)
    # Rows are of unit length: a part of half the share is to have half of the squared length.
    latent = [
        _latent(matrix, size, seed=seed) * np.sqrt(share / shares[0])
        for matrix, size, share in zip(matrices, np.diff(borders), shares, strict=True)
    ]
    n_identity = width - sum(part.shape[1] for part in latent)
    identity = np.random.default_rng(seed).standard_normal((tokenizer.get_vocab_size(), n_identity))
    identity *= np.sqrt(_IDENTITY_SHARE) / np.linalg.norm(identity, axis=1, keepdims=True)
    words = np.concatenate([*latent, identity], axis=1).astype(np.float32)
    # Bytes with one scale per piece: a quarter of the memory, without an effect on accuracy.
    scale = np.abs(words).max(axis=1, keepdims=True) / 127
    return {
        "words": np.round(words / np.maximum(scale, 1e-8)).astype(np.int8),
        "scale": scale,
        "positions": np.zeros((max_tokens, width), dtype=np.float32),
        "token_type": np.zeros(width, dtype=np.float32),
        "norm_weight": np.ones(width, dtype=np.float32),
        "norm_bias": np.zeros(width, dtype=np.float32),
    }


def _piece_concepts(tokenizer: Tokenizer, names: Sequence[str], concepts: NDArray[np.int64]) -> Any:
    """Weighted counts of pieces in the names of concepts, a sparse matrix (n_pieces, n_concepts).

    Pieces that name the same concepts, such as "renal" and "kidney", get similar rows (latent
    semantic analysis, Deerwester et al., 1990).
    """
    from scipy.sparse import coo_array

    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(names))]
    rows = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
    columns = np.repeat(concepts, [len(name_ids) for name_ids in ids])
    n_pieces, n_concepts = tokenizer.get_vocab_size(), int(concepts.max(initial=0)) + 1
    ones = np.ones(len(rows), dtype=np.float32)
    counts = coo_array((ones, (rows, columns)), shape=(n_pieces, n_concepts)).tocsr()
    counts.data = np.log1p(counts.data)
    # Inverse document frequency: a piece of every concept is uninformative.
    frequency = np.diff(counts.indptr)
    rarity = np.log((1 + n_concepts) / (1 + frequency)).astype(np.float32)
    return counts.multiply(rarity[:, None]).tocsr()


def _piece_contexts(tokenizer: Tokenizer, texts: Sequence[str]) -> Any:
    """Positive pointwise mutual information of neighbouring pieces, sparse (n_pieces, n_pieces).

    Levy and Goldberg (2014), Neural Word Embedding as Implicit Matrix Factorization.
    """
    from scipy.sparse import coo_array

    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
    flat = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
    owner = np.repeat(np.arange(len(ids)), [len(text_ids) for text_ids in ids])
    first, second, weight = [], [], []
    for distance in range(1, _WINDOW + 1):
        together = np.flatnonzero(owner[:-distance] == owner[distance:])
        first += [flat[together], flat[together + distance]]
        second += [flat[together + distance], flat[together]]
        weight.append(np.full(2 * len(together), 1 / distance, dtype=np.float32))
    n = tokenizer.get_vocab_size()
    places = (np.concatenate(first), np.concatenate(second))
    counts = coo_array((np.concatenate(weight), places), shape=(n, n)).tocsr().tocoo()
    total = np.asarray(counts.sum(axis=1)).ravel()
    smoothed = total**0.75 / (total**0.75).sum()
    information = np.log(counts.data / (total[counts.row] * smoothed[counts.col]))
    counts.data = np.maximum(information, 0).astype(np.float32)
    return counts.tocsr()


def _latent(matrix: Any, n_latent: int, *, seed: int) -> NDArray[np.float64]:
    """Truncated SVD of a matrix: unit rows of at most `n_latent` dimensions."""
    from sklearn.utils.extmath import randomized_svd

    size = max(1, min(n_latent, min(matrix.shape) - 1))
    left, singular, _ = randomized_svd(matrix, size, n_iter=3, random_state=seed)
    latent = left * np.sqrt(singular)
    return latent / np.maximum(np.linalg.norm(latent, axis=1, keepdims=True), 1e-8)
