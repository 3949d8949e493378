"""Word pieces and their embeddings come from a checkpoint, or from the names themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import (
    EncoderSource,
    add_encoder,
    add_rescnn,
    build_rescnn_v1,
    encode_names,
)
from spacy_bioel.models.vocabulary import load_huggingface, make_vocabulary

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "heart", "attack", "cardi", "##ac", "-", "17"]
TENSORS = {
    "word_embeddings.weight": (10, 6),
    "position_embeddings.weight": (16, 6),
    "token_type_embeddings.weight": (2, 6),
    "LayerNorm.weight": (6,),
    "LayerNorm.bias": (6,),
}


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """A folder with the files of a BERT, and random tables."""
    write_tensors(tmp_path, TENSORS)
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf8")
    return tmp_path


def write_tensors(folder: Path, shapes: dict[str, tuple[int, ...]], prefix: str = "bert.") -> None:
    generator = np.random.default_rng(0)
    tensors = {
        f"{prefix}embeddings.{name}": generator.standard_normal(shape).astype("float16")
        for name, shape in shapes.items()
    }
    tensors["cls.predictions.bias"] = np.zeros(3, "f")
    save_file(tensors, folder / "model.safetensors")


def test_tables_and_word_pieces(checkpoint):
    tokenizer, tables = load_huggingface(checkpoint, max_tokens=5)
    assert tokenizer.encode("Heart-attack 17 CARDIAC zebra").tokens == [
        "heart", "-", "attack", "17", "cardi", "##ac", "[UNK]",
    ]  # fmt: skip
    vectors = dict.fromkeys(("token_type", "norm_weight", "norm_bias"), (6,))
    shapes = {name: table.shape for name, table in tables.items()}
    assert shapes == {"words": (10, 6), "positions": (5, 6)} | vectors
    assert {table.dtype.name for table in tables.values()} == {"float32"}


def test_tokenizer_json_comes_first_and_adds_no_special_tokens(checkpoint):
    tokenizer, tables = load_huggingface(checkpoint, max_tokens=5)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    (checkpoint / "vocab.txt").unlink()
    again, _ = load_huggingface(checkpoint, max_tokens=5)
    assert again.encode("heart").tokens == ["heart"]
    model = build_rescnn_v1(dim=4, blocks=1, filters=2, max_tokens=2)
    add_rescnn(model, again, tables)
    vectors = encode_names(model, ["heart attack", "heart attack 17", "heart", ""])
    assert vectors.shape == (4, 4)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert np.allclose(vectors[0], vectors[1], atol=1e-6)  # cut to two pieces
    assert not np.allclose(vectors[0], vectors[2], atol=1e-5)


@pytest.mark.parametrize("prefix", ["", "model.bert."])
def test_tensor_names_of_any_model(checkpoint, prefix):
    write_tensors(checkpoint, TENSORS, prefix)
    assert load_huggingface(checkpoint, max_tokens=9)[1]["words"].shape == (10, 6)
    # The norm of old checkpoints.
    old = {k: v for k, v in TENSORS.items() if "LayerNorm" not in k}
    write_tensors(checkpoint, old | {"LayerNorm.gamma": (6,), "LayerNorm.beta": (6,)}, prefix)
    assert load_huggingface(checkpoint, max_tokens=9)[1]["norm_bias"].shape == (6,)


@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        (lambda x: (x / "model.safetensors").unlink(), "model.safetensors"),
        (lambda x: (x / "model.safetensors").write_bytes(b"none"), "readable model.safetensors"),
        (lambda x: (x / "vocab.txt").unlink(), "tokenizer.json or vocab.txt"),
        (
            lambda x: write_tensors(x, {"word_embeddings.weight": (10, 6)}),
            "embeddings.position_embeddings.weight",
        ),
    ],
)
def test_a_spoilt_checkpoint(checkpoint, spoil, missing):
    spoil(checkpoint)
    with pytest.raises(BioelError, match=rf"\[B043\].* has no {missing}"):
        load_huggingface(checkpoint, max_tokens=5)


def test_more_pieces_than_rows(checkpoint):
    with (checkpoint / "vocab.txt").open("a", encoding="utf8") as file:
        file.write("kidney\n")
    source = EncoderSource(None, (), str(checkpoint), 0, 0)  # type: ignore[arg-type]
    with pytest.raises(BioelError, match=rf"\[B044\] {checkpoint}.* 10 rows .* 11 pieces"):
        add_encoder(build_rescnn_v1(max_tokens=5), source)


NAMES = ["renal failure", "kidney failure", "renal disease", "kidney disease", "heart attack"] * 2
CONCEPTS = np.array([0, 0, 1, 1, 2] * 2)


def embed(**settings: Any) -> tuple[Tokenizer, dict[str, Any]]:
    settings = {"size": 300, "width": 16, "max_tokens": 7} | settings
    return make_vocabulary(NAMES, CONCEPTS, **settings)


def test_pieces_of_the_same_concepts_are_alike():
    tokenizer, tables = embed()
    assert tokenizer.encode("renal failure").tokens == ["▁renal", "▁failure"]
    assert "[UNK]" in tokenizer.encode("ζ").tokens
    assert tables["words"].shape == (tokenizer.get_vocab_size(), 16)
    assert tables["positions"].shape == (7, 16)
    words = tables["words"] * tables["scale"]
    renal, kidney, heart = (
        words[tokenizer.token_to_id(f"▁{word}")] for word in ("renal", "kidney", "heart")
    )
    assert cosine(renal, kidney) > 0.7
    assert cosine(renal, heart) < 0.4
    # The random part of a vector adds a quarter to the squared length of the rest, which is 1.
    assert np.linalg.norm(heart) == pytest.approx(1.25**0.5, abs=0.01)


def test_computed_embeddings_are_bytes_with_a_scale():
    tokenizer, tables = embed()
    assert np.array_equal(embed()[1]["words"], tables["words"])
    words, scale = tables["words"], tables["scale"]
    assert (words.dtype.name, scale.dtype.name) == ("int8", "float32")
    assert scale.shape == (len(words), 1)
    # The largest number of each word is 127 or -127 steps.
    assert np.abs(words.astype(int)).max(axis=1).tolist() == [127] * len(words)
    numbers = {name: table for name, table in tables.items() if name != "scale"}
    numbers["words"] = words * scale
    vectors = []
    for made in (tables, numbers):
        torch.manual_seed(0)
        model = build_rescnn_v1(dim=4, blocks=1, filters=2, max_tokens=7)
        add_rescnn(model, tokenizer, made)
        vectors.append(encode_names(model, NAMES[:5]))
    assert np.allclose(vectors[0], vectors[1], atol=1e-6)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_knowledge_bases(n):
    tokenizer, tables = make_vocabulary(NAMES[:n], CONCEPTS[:n], size=300, width=8, max_tokens=3)
    assert tables["words"].shape == (tokenizer.get_vocab_size(), 8)
    assert np.isfinite(tables["words"]).all()


def test_unknown_pooling():
    with pytest.raises(BioelError, match=r"\[B045\].*'mean'"):
        build_rescnn_v1(pooling="mean")
