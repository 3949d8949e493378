"""A transformer as name encoder: vectors of names, and checkpoints that are refused."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from thinc.api import Model

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import (
    EncoderSource,
    add_encoder,
    encode_names,
    encoder_parts,
    get_network,
)
from spacy_bioel.plugins.contextual.transformers import build_transformer_names_v1

pytest.importorskip("transformers")
NAMES = ["heart attack", "renal failure", "", "heart attacks of the kidneys", "ζ"]


def make_encoder(path: Path | str | None, embeddings: str | None = None, **settings: Any) -> Model:
    model = build_transformer_names_v1(path=None if path is None else str(path), **settings)
    # No names are needed.
    add_encoder(model, EncoderSource(None, (), embeddings, 0, 0))  # type: ignore[arg-type]
    return model


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_unit_vectors_of_the_width_of_the_checkpoint(checkpoint, pooling):
    model = make_encoder(checkpoint, pooling=pooling)
    vectors = encode_names(model, NAMES)
    assert vectors.shape == (5, 32)
    assert model.get_dim("nO") == 32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    alone = np.concatenate([encode_names(model, [name]) for name in NAMES])
    assert np.abs(alone - vectors).max() < 1e-5
    model.attrs["batch_size"] = 2
    assert np.abs(encode_names(model, NAMES) - vectors).max() < 1e-5


def test_special_pieces_count(checkpoint):
    model = make_encoder(checkpoint, max_tokens=4)
    assert (model.attrs["prefix"], model.attrs["suffix"]) == ([2], [3])
    cut, whole, less = encode_names(model, ["heart attack renal", "heart attack", "heart"])
    assert np.abs(cut - whole).max() < 1e-6
    assert np.abs(cut - less).max() > 0.01


def test_the_path_may_come_at_initialize(checkpoint):
    given = make_encoder(None, embeddings=str(checkpoint))
    assert np.array_equal(encode_names(given, NAMES), encode_names(make_encoder(checkpoint), NAMES))


def test_half_precision_checkpoints_become_single(copy):
    tensors = load_file(copy / "model.safetensors")
    halves = {name: tensor.astype("float16") for name, tensor in tensors.items()}
    save_file(halves, copy / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((copy / "config.json").read_text()) | {"dtype": "float16"}
    (copy / "config.json").write_text(json.dumps(config))
    network = get_network(make_encoder(copy))
    assert {str(p.dtype) for p in network.parameters()} == {"torch.float32"}


def test_an_old_vocabulary_is_converted(copy, checkpoint):
    vocabulary = json.loads((copy / "tokenizer.json").read_text("utf8"))["model"]["vocab"]
    (copy / "tokenizer.json").unlink()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    (copy / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf8")
    names = ["heart attack", "renal failure"]
    found = encode_names(make_encoder(copy), names)
    assert np.abs(found - encode_names(make_encoder(checkpoint), names)).max() < 1e-6


def change(folder: Path, file: str, **changes: Any) -> None:
    about = json.loads((folder / file).read_text("utf8"))
    (folder / file).write_text(json.dumps(about | changes), encoding="utf8")


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_more_pieces(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text("utf8"))["model"]
    model["vocab"] |= {f"new{i}": 84 + i for i in range(9)}
    change(folder, "tokenizer.json", model=model)


FILES = ["config.json", "model.safetensors", "tokenizer.json"]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        *[(partial(lambda f, x: (x / f).unlink(), f), rf"B153\].* has no {f}") for f in FILES],
        *[
            (partial(lambda f, x: (x / f).write_bytes(b"{"), f), r"B153\].* has no readable")
            for f in FILES
        ],
        (  # pickled weights are not read
            lambda x: (x / "model.safetensors").rename(x / "pytorch_model.bin"),
            r"B153\].*model.safetensors.*save_pretrained",
        ),
        (without_a_tensor, r"B154\].*no encoder.layer.1.output.dense.weight"),
        (with_more_pieces, r"B154\].*word pieces.*embeddings"),
        (partial(change, file="tokenizer.json", post_processor=None), r"B154\].*\[CLS\]"),
    ],
)
def test_a_spoilt_checkpoint(copy, spoil, error):
    spoil(copy)
    with pytest.raises(BioelError, match=rf"(?s)\[{error}"):
        make_encoder(copy)
    if "CLS" in error:  # which a mean does not need
        assert encode_names(make_encoder(copy, pooling="mean"), NAMES).shape == (5, 32)


def test_no_checkpoint(checkpoint, tmp_path, monkeypatch):
    import huggingface_hub

    def offline(*args: Any, **kwargs: Any) -> str:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    for path, settings, error in (
        (checkpoint, {"max_tokens": 33}, r"\[B154\].*found 32 positions.*at least 33"),
        (None, {}, r"\[B151\].*embeddings"),
        (tmp_path / "missing", {}, r"\[B152\].*cannot be an id"),
        ("owner/model", {}, r"\[B152\] owner/model .*no network"),
    ):
        with pytest.raises(BioelError, match=error):
            make_encoder(path, **settings)


def test_constructing_reads_nothing_and_checks_the_pooling():
    assert encoder_parts(build_transformer_names_v1(path="/no/such/folder")) == {}
    with pytest.raises(BioelError, match=r"\[B155\].*'max'"):
        build_transformer_names_v1(pooling="max")


def test_without_transformers(checkpoint, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BioelError, match=r"\[B150\].*pip install 'spacy-bioel\[transformers\]'"):
        make_encoder(checkpoint)
