"""Word pieces and frozen embeddings of a name encoder, from a Hugging Face folder or from names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.embeddings import EmbeddingTables, embed_vocabulary

_UNKNOWN = "[UNK]"
_SPACE = "\u2581"  # before the first piece of a word


def make_vocabulary(
    names: Sequence[str],
    concepts: NDArray[np.int64],
    *,
    more_names: Sequence[str],
    size: int,
    width: int,
    max_tokens: int,
    texts: Sequence[str] = (),
    encode: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
) -> tuple[Tokenizer, EmbeddingTables]:
    """Train word pieces on names, and compute their embeddings.

    names (Sequence[str]): Normalised names.
    concepts (NDArray[int64]): Concept row of each name. Shape (n_names,).
    more_names (Sequence[str]): Names for the word pieces only, e.g. training mentions.
    size, width (int): Number of word pieces, and size of an embedding.
    max_tokens (int): Rows of the table of positions.
    texts (Sequence[str]): Normalised sentences, for `embed_vocabulary`.
    encode (Callable | None): Another encoder, which knows the words that pieces are.
    """
    tokenizer = train_vocabulary([*names, *more_names], size=size)
    tables = embed_vocabulary(
        tokenizer,
        names,
        concepts,
        width=width,
        max_tokens=max_tokens,
        texts=texts,
        known=encode(_texts_of_pieces(tokenizer)) if encode else None,
    )
    return tokenizer, tables


def _texts_of_pieces(tokenizer: Tokenizer) -> list[str]:
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [piece.replace(_SPACE, " ").strip() or piece for piece, _ in vocabulary]


def load_huggingface(folder: Path, *, max_tokens: int) -> tuple[Tokenizer, EmbeddingTables]:
    """Load the WordPiece tokenizer and the embedding layer of a BERT-like checkpoint.

    folder (Path): A folder with tokenizer.json or vocab.txt, and model.safetensors.
    max_tokens (int): Rows to keep of the table of positions.
    RETURNS (tuple): The tokenizer, and the tables for `FrozenEmbeddings`.
    RAISES BioelError: [B043] when a file or a tensor is missing, [B044] when there are fewer
        embeddings than word pieces.
    """
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise BioelError(Errors.B043.format(folder=folder, missing="model.safetensors"))
    tokenizer = _load_tokenizer(folder)
    with _open_tensors(weights) as tensors:
        keys = {
            # Keys from the first "embeddings." on, as in "bert.embeddings.word_embeddings.weight".
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
    if len(tables["words"]) < n_pieces(tokenizer):
        raise BioelError(
            Errors.B044.format(folder=folder, rows=len(tables["words"]), pieces=n_pieces(tokenizer))
        )
    return tokenizer, tables


def n_pieces(tokenizer: Tokenizer) -> int:
    """Rows that an embedding table needs; more than there are pieces if ids have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def _open_tensors(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        missing = f"readable model.safetensors ({error})"
        raise BioelError(Errors.B043.format(folder=path.parent, missing=missing)) from error


def _load_tokenizer(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises bare exceptions
            missing = f"readable tokenizer.json ({error})"
            raise BioelError(Errors.B043.format(folder=folder, missing=missing)) from error
    if not (folder / "vocab.txt").is_file():
        raise BioelError(Errors.B043.format(folder=folder, missing="tokenizer.json or vocab.txt"))
    pieces = (folder / "vocab.txt").read_text(encoding="utf8").splitlines()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train_vocabulary(names: Sequence[str], *, size: int) -> Tokenizer:
    """Train byte-pair encoding of up to `size` pieces on normalised names, deterministically.

    (The library's WordPiece trainer is not deterministic: ids, and ties by them, are random.)
    """
    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[_UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(names, trainer)
    return tokenizer
