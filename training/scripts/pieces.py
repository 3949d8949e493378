"""Word pieces and word embeddings of a BERT, cut to what biomedical names and texts use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from spacy_bioel.models.embeddings import EmbeddingTables, table_of
from spacy_bioel.models.vocabulary import load_huggingface

_SPECIAL = ("[UNK]",)


def cut_pieces(
    folder: Path, texts: Sequence[str], *, width: int, max_tokens: int
) -> tuple[Tokenizer, EmbeddingTables]:
    """A tokenizer with the pieces that texts use, and all single characters, and their embeddings.

    The embeddings are those of the checkpoint after its LayerNorm, without positions, turned to
    their principal components, of which the first `width` stay.

    texts (Sequence[str]): Normalised.
    """
    tokenizer, tables = load_huggingface(folder, max_tokens=max_tokens)
    vocabulary = tokenizer.get_vocab()
    used = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        np.add.at(used, encoding.ids, 1)
    kept = [
        piece
        for piece, row in sorted(vocabulary.items(), key=lambda item: item[1])
        if used[row] or piece in _SPECIAL or len(piece.removeprefix("##")) == 1
    ]
    rows = np.array([vocabulary[piece] for piece in kept])
    vectors = _normed(tables["words"][rows] + tables["token_type"], tables)
    words = _principal(vectors, weights=np.log1p(used[rows]), n=width)
    return _with_pieces(tokenizer, kept), table_of(words, max_tokens=max_tokens)


def _normed(vectors: NDArray[np.float32], tables: EmbeddingTables) -> NDArray[np.float32]:
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    scaled = centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-6)
    return scaled * tables["norm_weight"] + tables["norm_bias"]


def _principal(vectors: NDArray, *, weights: NDArray, n: int) -> NDArray[np.float32]:
    """The first principal components, rows weighted; the mean says nothing."""
    centred = vectors - np.average(vectors, axis=0, weights=weights)
    _, axes = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    return (centred @ axes[:, ::-1][:, :n]).astype(np.float32)


def _with_pieces(tokenizer: Tokenizer, pieces: Sequence[str]) -> Tokenizer:
    """The tokenizer with these pieces alone, numbered anew."""
    model = json.loads(tokenizer.to_str())
    model["model"]["vocab"] = {piece: row for row, piece in enumerate(pieces)}
    model |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(model))
