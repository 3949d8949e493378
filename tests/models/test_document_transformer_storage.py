"""`spacy-bioel.Transformer.v1`: files, learning rate, and settings that are refused."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spacy.language import Language
from thinc.api import SGD
from tiny_models import LETTERS, make_transformer

from spacy_bioel.errors import BioelError
from spacy_bioel.models.document_transformer import build_transformer_v1

pytest.importorskip("transformers")


def test_stored_without_pickle_and_read_without_checkpoint(copy: Path, nlp: Language) -> None:
    model = make_transformer(copy, learn_rate_scale=0.5)
    model.initialize()
    docs = [nlp.make_doc(LETTERS), nlp.make_doc("heart " * 50)]
    before = model.predict(docs)
    data = model.to_bytes()
    shutil.rmtree(copy)
    again = make_transformer(copy, learn_rate_scale=0.5).from_bytes(data)
    for one, other in zip(before, again.predict(docs), strict=True):
        assert np.array_equal(one, other)
    assert again.to_bytes() == data
    assert again.shims[0]._model.learn_rate_scales() == {"backbone.": 0.5}
    again.initialize()  # what is there is kept
    assert np.array_equal(again.predict(docs)[0], before[0])


def test_the_form_in_which_it_is_stored(transformer: Any) -> None:
    import srsly
    from safetensors.numpy import load

    data = transformer.shims[0].to_bytes()
    parts = srsly.msgpack_loads(data)
    assert sorted(parts) == ["cfg", "config", "tokenizer", "weights"]
    assert json.loads(parts["config"])["hidden_size"] == 32
    assert len(json.loads(parts["tokenizer"])["model"]["vocab"]) == 84
    assert load(parts["weights"])["backbone.embeddings.word_embeddings.weight"].shape == (84, 32)
    # Neither the zip file of torch.save nor the opcodes with which a pickle begins.
    assert b"PK\x03\x04" not in data and not data.startswith(b"\x80")
    with pytest.raises((pickle.UnpicklingError, EOFError, KeyError, ValueError)):
        pickle.loads(data)


def test_an_untrained_model_is_stored_as_such() -> None:
    empty = make_transformer(None)
    assert empty.shims[0].to_bytes() == b""
    assert make_transformer(None).from_bytes(empty.to_bytes()).shims[0]._model is None


def test_weights_that_do_not_fit(transformer: Any) -> None:
    import srsly
    from safetensors.numpy import load, save

    parts = srsly.msgpack_loads(transformer.shims[0].to_bytes())
    tensors = load(parts["weights"])
    del tensors["backbone.embeddings.word_embeddings.weight"]
    data = srsly.msgpack_dumps(parts | {"weights": save(tensors)})
    with pytest.raises(BioelError, match=r"(?s)\[B041\].*word_embeddings"):
        make_transformer(None).shims[0].from_bytes(data)
    data = srsly.msgpack_dumps(parts | {"weights": parts["weights"][:100]})
    with pytest.raises(BioelError, match=r"\[B041\]"):
        make_transformer(None).shims[0].from_bytes(data)


def test_learning_moves_weights_at_their_own_rate(checkpoint: Path, nlp: Language) -> None:
    def step(scale: float) -> float:
        import torch

        torch.manual_seed(0)
        model = make_transformer(checkpoint, learn_rate_scale=scale)
        model.initialize()
        weight = model.shims[0]._model.backbone.embeddings.word_embeddings.weight
        before = weight.detach().clone()
        _, backprop = model.begin_update([nlp.make_doc("heart"), nlp.make_doc("")])
        # Of one number: the sum of all is the same for any weights, as layers are normalised.
        d_heart = np.zeros((1, 32), "f")
        d_heart[0, 0] = 1.0
        backprop([d_heart, np.zeros((0, 32), "f")])
        model.finish_update(SGD(1e-3, L2=0.0, grad_clip=0.0))
        return float((weight.detach() - before).abs().sum())

    assert step(1.0) > 0
    assert step(0.1) == pytest.approx(0.1 * step(1.0), rel=1e-2)


@pytest.mark.parametrize(
    ("max_pieces", "overlap"), [(7, 0), (0, 0), (100, 26), (512, -1), (-5, -5), (512, 129)]
)
def test_windows_too_short_for_their_overlap(max_pieces: int, overlap: int) -> None:
    found = rf"\[B170\] max_pieces = {max_pieces} .*overlap = {overlap}:"
    with pytest.raises(BioelError, match=found):
        build_transformer_v1(max_pieces=max_pieces, overlap=overlap)


@pytest.mark.parametrize("path", [None, ""])
def test_no_checkpoint_is_named(path: str | None) -> None:
    model = make_transformer(path)
    with pytest.raises(BioelError, match=r"\[B171\].*components.tok2vec.model"):
        model.initialize()


def test_predicting_before_training(checkpoint: Path, nlp: Language) -> None:
    with pytest.raises(BioelError, match=r"\[B172\].*spacy train"):
        make_transformer(checkpoint).predict([nlp("heart")])


def test_another_width(checkpoint: Path) -> None:
    found = r"\[B154\].*found vectors of 32 numbers, expected the setting width, 768"
    with pytest.raises(BioelError, match=found):
        make_transformer(checkpoint, width=768).initialize()


def test_more_pieces_than_positions(checkpoint: Path) -> None:
    with pytest.raises(BioelError, match=r"\[B154\].*found 32 positions.*at least the 33"):
        make_transformer(checkpoint, max_pieces=33).initialize()


def test_no_fast_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(BioelError, match=r"\[B153\].* has no tokenizer.json"):
        make_transformer(copy).initialize()


def test_constructing_reads_nothing() -> None:
    model = make_transformer("/no/such/folder")
    assert model.get_dim("nO") == 32
    with pytest.raises(BioelError, match=r"\[B152\] /no/such/folder"):
        model.initialize()
