"""An encoder in a folder comes back as it was, and damage to each of its files has a code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import (
    NameEncoder,
    add_rescnn,
    build_rescnn_v1,
    encode_names,
    encoder_settings,
    get_network,
    infer_by_torch,
    read_encoder,
    write_encoder,
)
from spacy_bioel.models.vocabulary import make_vocabulary

CPU = torch.device("cpu")
NAMES = ["renal failure", "kidney failure", "heart attack"]


def empty(*, dim: int = 8, dropout: float = 0.2) -> NameEncoder:
    return build_rescnn_v1(dim=dim, blocks=1, filters=2, max_tokens=6, dropout=dropout)


@pytest.fixture
def model() -> NameEncoder:
    model = empty()
    tokenizer, tables = make_vocabulary(
        NAMES, np.array([0, 0, 1]), size=200, width=16, max_tokens=6
    )
    add_rescnn(model, tokenizer, tables)
    return model


@pytest.fixture
def folder(model, tmp_path) -> Path:
    write_encoder(model, tmp_path / "encoder")
    return tmp_path / "encoder"


def test_round_trip(model, folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "embeddings.safetensors", "encoder.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    assert json.loads((folder / "encoder.json").read_text("utf8")) == encoder_settings(model)
    # Dropout may differ: it is not stored with an encoder.
    assert encoder_settings(model) == encoder_settings(empty(dropout=0.5)) == {
        "encoder": "rescnn", "max_tokens": 6, "dim": 8, "blocks": 1, "filters": 2,
        "widths": [1, 3, 5], "pooling": "max",
    }  # fmt: skip
    again = empty(dropout=0.5)
    read_encoder(again, folder)
    assert np.array_equal(encode_names(again, NAMES), encode_names(model, NAMES))


def test_an_encoder_of_another_size(folder):
    with pytest.raises(BioelError, match=r"\[B047\].*'dim': 8.*'dim': 16.*\[model\] block"):
        read_encoder(empty(dim=16), folder)


def test_names_that_do_not_fit_into_memory_are_encoded_in_parts(model):
    fitting = []

    def predict(ids: Any, lengths: Any) -> Any:
        if len(lengths) > 2:
            raise torch.cuda.OutOfMemoryError
        fitting.append(len(lengths))
        return get_network(model)(ids, lengths)

    vectors = encode_names(model, [*NAMES, "heart"], infer=infer_by_torch(predict, CPU))
    assert fitting == [2, 2]
    assert np.abs(vectors - encode_names(model, [*NAMES, "heart"])).max() < 1e-6

    def never(ids: Any, lengths: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("there is no more")

    with pytest.raises(torch.cuda.OutOfMemoryError, match="there is no more"):
        encode_names(model, NAMES, infer=infer_by_torch(never, CPU))


def outcome(model: NameEncoder, folder: Path) -> str:
    """Read and use an encoder; return the code of the error, or ""."""
    try:
        read_encoder(model, folder)
        encode_names(model, NAMES)
    except BioelError as error:
        return str(error)[:6]
    return ""


@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("encoder.json", {"[B046]", "[B047]"}),
        ("tokenizer.json", {"[B240]", "[B044]", ""}),
        ("embeddings.safetensors", {"[B240]", ""}),
        ("model.safetensors", {"[B041]", ""}),
    ],
)
def test_each_damaged_file_has_a_coded_error(folder, file, codes):
    with pytest.raises(BioelError, match=r"\[B046\].*nowhere"):
        read_encoder(empty(), folder / "nowhere")
    whole, found = (folder / file).read_bytes(), set()
    (folder / file).unlink()
    message = rf"\[B046\].*encoder does not contain.*{file}.*pretrain\.py"
    with pytest.raises(BioelError, match=message):
        read_encoder(empty(), folder)
    for number, place in enumerate(range(0, len(whole), max(1, len(whole) // 97))):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << number % 8
        (folder / file).write_bytes(damaged)
        found.add(outcome(empty(), folder))
    assert found <= codes and len(found - {""}) > 0
    for text in ("[" * 100_000, "9" * 5000, ""):
        (folder / file).write_text(text, "utf8")
        assert outcome(empty(), folder) in codes - {""}


def test_tables_that_do_not_fit_the_encoder(folder):
    tables = load_file(folder / "embeddings.safetensors")
    more = {"more": np.zeros(16, np.float32)}
    for wrong in (more, {"positions": tables["positions"][:2]}, {"norm_bias": np.zeros(16)}):
        save_file(tables | wrong, folder / "embeddings.safetensors")
        with pytest.raises(BioelError, match=r"\[B240\] embeddings.safetensors .*expected float32"):
            read_encoder(empty(), folder)


def test_a_piece_without_a_row(folder):
    about = json.loads((folder / "tokenizer.json").read_text("utf8"))
    piece = next(piece for piece in about["model"]["vocab"] if piece != "[UNK]")
    about["model"]["vocab"][piece] += 500
    (folder / "tokenizer.json").write_text(json.dumps(about), "utf8")
    with pytest.raises(BioelError, match=r"\[B044\] embeddings.safetensors.* rows"):
        read_encoder(empty(), folder)
