"""The cross-encoder: a score for each pair, learnt by heart, and checkpoints that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from thinc.api import Adam, Model

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import EncoderSource, add_encoder, get_network
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.plugins.contextual import reranker as cross_encoder
from spacy_bioel.plugins.contextual.networks import ranking_loss
from spacy_bioel.plugins.contextual.reranker import (
    RerankerPair,
    build_cross_encoder_v1,
    score_pairs,
)

pytest.importorskip("transformers")

# All pairs have the same mention and candidates; the context decides which one is right.
PAIRS = [
    RerankerPair(left, "attack", right, candidate)
    for left, right in [("heart", "a b c"), ("renal", ""), ("", "heart"), ("a", "renal")]
    for candidate in ("heart attack", "renal failure", "failure")
]
SOURCE = EncoderSource(None, (), None, 0, 0)  # type: ignore[arg-type]  # not used
GROUPS = np.arange(12) // 3
RIGHT = np.array([1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0], bool)


def make_model(path: Path | str | None, **settings: Any) -> Model:
    torch.manual_seed(1)
    model = build_cross_encoder_v1(
        path=None if path is None else str(path), **({"max_pieces": 24} | settings)
    )
    add_encoder(model, SOURCE)
    return model


def train(model: Model, *, steps: int, rate: float = 0.003) -> list[float]:
    optimizer, losses = Adam(rate), []
    for _ in range(steps):
        logits, backprop = model.begin_update(PAIRS)
        loss, gradient = loss_and_gradients(ranking_loss, logits, GROUPS, RIGHT)
        assert backprop(gradient) == []
        model.finish_update(optimizer)
        losses.append(loss)
    return losses


def state_of(model: Model) -> dict[str, np.ndarray]:
    return {k: tensor.numpy().copy() for k, tensor in get_network(model).state_dict().items()}


def test_a_score_for_each_pair(checkpoint, monkeypatch):
    model = make_model(checkpoint)
    scores = score_pairs(model, PAIRS)
    assert (scores.shape, scores.dtype) == ((12,), np.float32)
    assert scores.std() > 0.01
    assert np.abs(model.predict(PAIRS) - scores).max() < 1e-5
    alone = np.concatenate([score_pairs(model, [pair]) for pair in PAIRS])
    assert np.abs(alone - scores).max() < 1e-5
    monkeypatch.setattr(cross_encoder, "_PAIRS_PER_BATCH", 5)
    assert np.abs(score_pairs(model, PAIRS) - scores).max() < 1e-5
    assert score_pairs(model, []).shape == (0,)


def test_pairs_are_learnt_by_heart(copy):
    config = json.loads((copy / "config.json").read_text())
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (copy / "config.json").write_text(json.dumps(config | without))
    model = make_model(copy)
    losses = train(model, steps=40)
    assert losses[0] > 0.9  # ln(3) = 1.0986, when nothing is known
    assert losses[-1] < 0.1
    best = score_pairs(model, PAIRS).reshape(4, 3).argmax(axis=1)
    assert best.tolist() == [0, 1, 0, 1]


def test_markers_are_added_to_the_embeddings(checkpoint):
    model = make_model(checkpoint)
    assert model.attrs["pieces"].markers == (84, 85)
    words = state_of(model)["backbone.embeddings.word_embeddings.weight"]
    assert words.shape == (86, 32)
    assert np.abs(words[84] - words[85]).max() > 0.01
    assert json.loads(model.attrs["config"])["vocab_size"] == 86
    ids, _, _ = model.attrs["pieces"]([RerankerPair("a", "heart", "b", "renal failures")])
    assert ids.tolist() == [2, 5, 84, 42, 85, 6, 3, 44, 45, 46, 3]


def test_unused_pieces_are_markers(copy):
    text = (copy / "tokenizer.json").read_text("utf8")
    text = text.replace('"0": 31', '"[unused1]": 31').replace('"1": 32', '"[unused2]": 32')
    (copy / "tokenizer.json").write_text(text, encoding="utf8")
    model = make_model(copy)
    assert model.attrs["pieces"].markers == (31, 32)
    assert json.loads(model.attrs["config"])["vocab_size"] == 84


def test_checkpoints_that_are_refused(copy):
    assert score_pairs(make_model(copy, max_pieces=7), PAIRS).shape == (12,)
    for path, room, error in (
        (None, 24, r"\[B159\].*CrossEncoder.*set path"),
        (copy / "missing", 24, r"\[B152\].*cannot be an id"),
        (copy, 6, r"\[B154\].*found max_pieces = 6, expected at least 7"),
        (copy, 33, r"\[B154\].*found 32 positions.*at least 33"),
    ):
        with pytest.raises(BioelError, match=error):
            make_model(path, max_pieces=room)
    tokenizer = json.loads((copy / "tokenizer.json").read_text("utf8"))
    about = json.dumps(tokenizer | {"post_processor": None})
    (copy / "tokenizer.json").write_text(about, encoding="utf8")
    with pytest.raises(BioelError, match=r"\[B154\].*\[CLS\] and \[SEP\]"):
        make_model(copy)
