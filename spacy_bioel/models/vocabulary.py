"""Word pieces and frozen embeddings for a name encoder, from a Hugging Face folder or from names.

Word piece embeddings are computed by singular value decomposition, from the concepts whose names
contain a piece; nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import DoubleArray, FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

EmbeddingTables = dict[str, NDArray]
_UNKNOWN_PIECE = "[UNK]"
# Fraction of an embedding that is random, to distinguish pieces that always occur together.
RANDOM_SHARE = 0.25


def make_vocabulary(
    names: Sequence[str],
    concepts: IntArray,
    *,
    size: int,
    width: int,
    max_tokens: int,
    more_names: Sequence[str] = (),
) -> tuple[Tokenizer, EmbeddingTables]:
    """Train word pieces on names and compute their embeddings.

    names (Sequence[str]): Normalised names.
    concepts (NDArray[int64]): Concept row of each name. Shape (n_names,).
    size, width (int): Number of word pieces, and size of an embedding.
    max_tokens (int): Number of rows in the position table.
    more_names (Sequence[str]): Names for the word pieces only, e.g. training mentions.
    RETURNS (tuple): Word pieces, and tables for `FrozenEmbeddings` with all positions zero.
    """
    tokenizer = train_vocabulary([*names, *more_names], size=size)
    counts = piece_concepts(tokenizer, names, concepts)
    latent = latent_vectors(counts, int(width * (1 - RANDOM_SHARE)))
    return tokenizer, embedding_tables(latent, width=width, max_tokens=max_tokens)


def embedding_tables(latent: DoubleArray, *, width: int, max_tokens: int) -> EmbeddingTables:
    """Add a random part to word piece embeddings, and return an encoder's tables.

    latent (DoubleArray): The part that is not random. Shape (n_pieces, less than width).
    """
    n, n_latent = latent.shape
    random = np.random.default_rng(0).standard_normal((n, width - n_latent))
    random *= np.sqrt(RANDOM_SHARE) / np.linalg.norm(random, axis=1, keepdims=True)
    words = np.concatenate([latent, random], axis=1).astype(np.float32)
    # Stored as bytes with one scale per piece, embeddings need a quarter of the memory at the same
    # accuracy.
    scale = np.abs(words).max(axis=1, keepdims=True) / 127
    return {
        "words": np.round(words / np.maximum(scale, 1e-8)).astype(np.int8),
        "scale": scale,
        "positions": np.zeros((max_tokens, width), dtype=np.float32),
        "token_type": np.zeros(width, dtype=np.float32),
        "norm_weight": np.ones(width, dtype=np.float32),
        "norm_bias": np.zeros(width, dtype=np.float32),
    }


def load_huggingface(folder: Path, *, max_tokens: int) -> tuple[Tokenizer, EmbeddingTables]:
    """Load the WordPiece tokenizer and the embedding layer of a BERT-like checkpoint.

    folder (Path): A folder with tokenizer.json or vocab.txt, and model.safetensors.
    max_tokens (int): Number of rows of the position table to keep.
    RETURNS (tuple): The tokenizer, and the tables for `FrozenEmbeddings`.
    RAISES BioelError: [B043] if a file or a tensor is missing.
    """
    if not (folder / "model.safetensors").is_file():
        raise _missing_file_error(folder, "model.safetensors")
    tokenizer = _load_wordpiece_tokenizer(folder)
    try:
        tensors: Any = safe_open(folder / "model.safetensors", framework="numpy")
    except SafetensorError as error:
        raise _missing_file_error(folder, f"readable model.safetensors ({error})") from error
    # Drop everything up to "embeddings.", as in "bert.embeddings.word_embeddings.weight".
    keys = {key.split("embeddings.", 1)[1]: key for key in tensors.keys() if "embeddings." in key}

    def table(*names: str) -> FloatArray:
        for name in names:
            if name in keys:
                return tensors.get_tensor(keys[name]).astype(np.float32)
        raise _missing_file_error(folder, f"embeddings.{names[0]}")

    return tokenizer, {
        "words": table("word_embeddings.weight"),
        "positions": table("position_embeddings.weight")[:max_tokens],
        "token_type": table("token_type_embeddings.weight")[0],
        "norm_weight": table("LayerNorm.weight", "LayerNorm.gamma"),
        "norm_bias": table("LayerNorm.bias", "LayerNorm.beta"),
    }


def _missing_file_error(folder: Path, missing: str) -> BioelError:
    return BioelError(Errors.B043.format(folder=folder, missing=missing))


def _load_wordpiece_tokenizer(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises plain `Exception`
            raise _missing_file_error(folder, f"readable tokenizer.json ({error})") from error
    if not (folder / "vocab.txt").is_file():
        raise _missing_file_error(folder, "tokenizer.json or vocab.txt")
    vocabulary = str(folder / "vocab.txt")
    tokenizer = Tokenizer(models.WordPiece.from_file(vocabulary, unk_token=_UNKNOWN_PIECE))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def n_pieces(tokenizer: Tokenizer) -> int:
    """Return the number of rows that an embedding table needs: the highest piece id plus 1."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def train_vocabulary(names: Sequence[str], *, size: int) -> Tokenizer:
    """Train a byte-pair encoding with up to `size` pieces on normalised names.

    The library's WordPiece trainer is not deterministic: it assigns random ids to pieces.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN_PIECE))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[_UNKNOWN_PIECE], show_progress=False
    )
    tokenizer.train_from_iterator(names, trainer)
    return tokenizer


def flat_pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the piece ids of all texts in one array, and the index of each piece's text."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
    flat = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
    return flat, np.repeat(np.arange(len(ids)), [len(text_ids) for text_ids in ids])


def piece_concepts(tokenizer: Tokenizer, names: Sequence[str], concepts: IntArray) -> csr_array:
    """Return weighted counts of each piece in each concept's names. Sparse (n_pieces, n_concepts).

    Pieces that occur in the same concepts' names, such as "renal" and "kidney", get similar rows,
    as in latent semantic analysis (Deerwester et al., 1990).
    """
    from scipy.sparse import coo_array

    rows, name = flat_pieces(tokenizer, names)
    columns = concepts[name]
    shape = tokenizer.get_vocab_size(), int(concepts.max(initial=0)) + 1
    ones = np.ones(len(rows), dtype=np.float32)
    counts = coo_array((ones, (rows, columns)), shape=shape).tocsr()
    counts.data = np.log1p(counts.data)
    n_concepts_of_piece = np.diff(counts.indptr)
    inverse_frequency = np.log((1 + shape[1]) / (1 + n_concepts_of_piece)).astype(np.float32)
    return counts.multiply(inverse_frequency[:, None]).tocsr()


def latent_vectors(matrix: csr_array | FloatArray, n_latent: int) -> DoubleArray:
    """Return the truncated SVD of a matrix: unit rows with at most `n_latent` dimensions."""
    from sklearn.utils.extmath import randomized_svd

    size = max(1, min(n_latent, min(matrix.shape) - 1))
    left, singular, _ = randomized_svd(matrix, size, n_iter=3, random_state=0)
    latent = left * np.sqrt(singular)
    return latent / np.maximum(np.linalg.norm(latent, axis=1, keepdims=True), 1e-8)
