"""Where an encoder's word pieces and frozen embeddings come from: a Hugging Face model directory,
or the names of the knowledge base themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from spacy_bioel.errors import BioelError, Errors

EmbeddingTables = dict[str, NDArray]
_UNKNOWN = "[UNK]"
# Share of an own embedding that is random and so tells word pieces apart that always co-occur.
_IDENTITY_SHARE = 0.25


def make_vocabulary(
    names: Sequence[str],
    concepts: NDArray[np.int64],
    *,
    more_names: Sequence[str],
    size: int,
    width: int,
    max_tokens: int,
) -> tuple[Tokenizer, EmbeddingTables]:
    """Word pieces of names, and embeddings by the concepts that the pieces name.

    names (Sequence[str]), concepts (NDArray[int64]): Normalised names and a concept row of each.
    more_names (Sequence[str]): For the word pieces only, e.g. training mentions.
    size, width (int): Word pieces, and size of an embedding.
    """
    tokenizer = train_vocabulary([*names, *more_names], size=size)
    tables = embed_vocabulary(tokenizer, names, concepts, width=width, max_tokens=max_tokens)
    return tokenizer, tables


def load_huggingface(folder: Path, *, max_tokens: int) -> tuple[Tokenizer, EmbeddingTables]:
    """The WordPiece tokenizer and the embedding layer of a BERT-like checkpoint.

    folder (Path): Has tokenizer.json or vocab.txt, and model.safetensors.
    max_tokens (int): Rows of the position table that are kept.
    RETURNS (tuple): The tokenizer, and the tables that `FrozenEmbeddings` takes.
    RAISES BioelError: [B043] when a file or a tensor is missing.
    """
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise BioelError(Errors.B043.format(folder=folder, missing="model.safetensors"))
    tokenizer = _load_tokenizer(folder)
    with _open_tensors(weights) as tensors:
        keys = {
            # After the first "embeddings.": "bert.embeddings.word_embeddings.weight".
            key.split("embeddings.", 1)[1]: key
            for key in tensors.keys()
            if "embeddings." in key
        }

        def table(*names: str) -> NDArray[np.float32]:
            for name in names:
                if name in keys:
                    return tensors.get_tensor(keys[name]).astype(np.float32)
            raise BioelError(Errors.B043.format(folder=folder, missing=f"embeddings.{names[0]}"))

        tables = {
            "words": table("word_embeddings.weight"),
            "positions": table("position_embeddings.weight")[:max_tokens],
            "token_type": table("token_type_embeddings.weight")[0],
            "norm_weight": table("LayerNorm.weight", "LayerNorm.gamma"),
            "norm_bias": table("LayerNorm.bias", "LayerNorm.beta"),
        }
    if len(tables["words"]) < tokenizer.get_vocab_size():
        raise BioelError(
            Errors.B044.format(
                folder=folder, rows=len(tables["words"]), pieces=tokenizer.get_vocab_size()
            )
        )
    return tokenizer, tables


def _open_tensors(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        missing = f"readable model.safetensors ({error})"
        raise BioelError(Errors.B043.format(folder=path.parent, missing=missing)) from error


def _load_tokenizer(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    if not (folder / "vocab.txt").is_file():
        raise BioelError(Errors.B043.format(folder=folder, missing="tokenizer.json or vocab.txt"))
    pieces = (folder / "vocab.txt").read_text(encoding="utf8").splitlines()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train_vocabulary(names: Sequence[str], *, size: int) -> Tokenizer:
    """A byte-pair vocabulary of up to `size` pieces for normalised names, the same in every run.

    (The WordPiece trainer of the library numbers its pieces by chance, and breaks ties by number.)
    """
    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[_UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(names, trainer)
    return tokenizer


def embed_vocabulary(
    tokenizer: Tokenizer,
    names: Sequence[str],
    concepts: NDArray[np.int64],
    *,
    width: int,
    max_tokens: int,
    seed: int = 0,
) -> EmbeddingTables:
    """Embeddings of word pieces by the concepts whose names they occur in.

    Pieces that name the same concepts, as "renal" and "kidney" do, get similar vectors: latent
    semantic analysis (Deerwester et al., 1990) of the piece-by-concept matrix.

    names (Sequence[str]): Normalised names.
    concepts (NDArray[int64]): A concept of each name. Shape (n_names,).
    width (int): Size of an embedding.
    RETURNS (EmbeddingTables): The tables that `FrozenEmbeddings` takes; positions are zero.
    """
    from scipy.sparse import coo_array
    from sklearn.utils.extmath import randomized_svd

    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(names))]
    rows = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
    columns = np.repeat(concepts, [len(name_ids) for name_ids in ids])
    n_pieces, n_concepts = tokenizer.get_vocab_size(), int(concepts.max(initial=0)) + 1
    ones = np.ones(len(rows), dtype=np.float32)
    counts = coo_array((ones, (rows, columns)), shape=(n_pieces, n_concepts)).tocsr()
    counts.data = np.log1p(counts.data)
    # A piece that occurs in every concept says nothing; one that occurs in few says much.
    frequency = np.diff(counts.indptr)
    rarity = np.log((1 + n_concepts) / (1 + frequency)).astype(np.float32)
    counts = counts.multiply(rarity[:, None]).tocsr()

    generator = np.random.default_rng(seed)
    n_latent = min(int(width * (1 - _IDENTITY_SHARE)), n_pieces - 1, n_concepts - 1)
    left, singular, _ = randomized_svd(counts, max(1, n_latent), n_iter=3, random_state=seed)
    latent = left * np.sqrt(singular)
    latent /= np.maximum(np.linalg.norm(latent, axis=1, keepdims=True), 1e-8)
    identity = generator.standard_normal((n_pieces, width - latent.shape[1]))
    identity *= np.sqrt(_IDENTITY_SHARE) / np.linalg.norm(identity, axis=1, keepdims=True)
    words = np.concatenate([latent, identity], axis=1).astype(np.float32)
    # Bytes, with a step for each piece: a quarter of the memory, and nothing that training or
    # linking could notice.
    scale = np.abs(words).max(axis=1, keepdims=True) / 127
    return {
        "words": np.round(words / np.maximum(scale, 1e-8)).astype(np.int8),
        "scale": scale,
        "positions": np.zeros((max_tokens, width), dtype=np.float32),
        "token_type": np.zeros(width, dtype=np.float32),
        "norm_weight": np.ones(width, dtype=np.float32),
        "norm_bias": np.zeros(width, dtype=np.float32),
    }
