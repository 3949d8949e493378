"""The network of documents against the backbone on one window at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spacy_bioel.nn import documents
from spacy_bioel.nn.documents import DocumentTransformer

transformers = pytest.importorskip("transformers")

WINDOWS = [[2, 42, 43, 3], [2, 9, 3], [2, *range(5, 30), 3], [2, 44, 45, 46, 3], [2, 9, 3]]
STARTS = [0, 4, 7, 34, 39]
LENGTHS = [4, 3, 27, 5, 3]
# Pieces of the documents: all but the special ones.
USED = [1, 2, 5, *range(8, 33), 35, 36, 37, 40]


@pytest.fixture
def backbone(checkpoint: Path) -> Any:
    return transformers.AutoModel.from_pretrained(checkpoint, add_pooling_layer=False)


def make_network(backbone: Any, **settings: Any) -> DocumentTransformer:
    settings = {"learn_rate_scale": 1.0, "mixed_precision": False} | settings
    return DocumentTransformer(backbone, **settings).eval()


def inputs(pairs: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The windows, and pairs of a piece of the documents and a token."""
    return (
        torch.tensor([piece for window in WINDOWS for piece in window]),
        torch.tensor(LENGTHS),
        torch.tensor(USED),
        torch.tensor([piece for piece, _ in pairs]),
        torch.tensor([token for _, token in pairs]),
    )


def states_one_by_one(backbone: Any) -> Tensor:
    """The textbook form: one window, no pads and no mask."""
    with torch.no_grad():
        rows = [backbone(input_ids=torch.tensor([window]))[0][0] for window in WINDOWS]
    return torch.cat(rows)


@pytest.mark.parametrize("most", [1, 8, 30, 10_000])
def test_each_piece_as_if_its_window_were_alone(
    backbone: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setitem(documents._PIECES, "cpu", most)
    network = make_network(backbone)
    pairs = [(i, i) for i in range(len(USED))]
    with torch.no_grad():
        vectors = network(*inputs(pairs), len(USED))
    assert vectors.shape == (32, 32)
    expected = states_one_by_one(backbone)[USED]
    assert (vectors - expected).abs().max() < 1e-5
    assert expected.std() > 0.1


def test_a_token_is_the_mean_of_its_pieces(backbone: Any) -> None:
    # Token 1 has three pieces, one of them of another window; tokens 2 and 4 have none, and
    # piece 5 is part of both 3 and 5.
    pairs = [(0, 0), (1, 1), (2, 1), (3, 1), (5, 3), (5, 5)]
    with torch.no_grad():
        vectors = make_network(backbone)(*inputs(pairs), 7)
    states = states_one_by_one(backbone)
    assert (vectors[0] - states[1]).abs().max() < 1e-5
    assert (vectors[1] - (states[2] + states[5] + states[8]) / 3).abs().max() < 1e-5
    assert (vectors[3] - states[10]).abs().max() < 1e-5
    assert torch.equal(vectors[3], vectors[5])
    assert not vectors[[2, 4, 6]].any()


def test_no_pieces_at_all(backbone: Any) -> None:
    nothing = [torch.zeros(0, dtype=torch.int64)] * 5
    vectors = make_network(backbone)(*nothing, 3)
    assert torch.equal(vectors, torch.zeros(3, 32))


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [
        ([5], 2, [[0]]),
        ([5, 5, 5], 10, [[0, 1], [2]]),
        ([9, 2, 3, 2], 10, [[1, 3, 2], [0]]),  # 3 x 3 pieces with pads, then 9
        ([9, 2, 3, 2], 8, [[1, 3], [2], [0]]),
        ([1, 1, 1], 100, [[0, 1, 2]]),
    ],
)
def test_windows_that_are_read_together(
    lengths: list[int], most: int, expected: list[list[int]]
) -> None:
    parts = documents._batches(torch.tensor(lengths), max_pieces=most)
    assert [part.tolist() for part in parts] == expected


def test_gradients_reach_the_first_layer_and_the_pieces_that_are_used(backbone: Any) -> None:
    network = make_network(backbone)
    network(*inputs([(0, 0)]), 1)[0, 0].backward()
    table = backbone.embeddings.word_embeddings.weight.grad
    changed = table.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert changed == [2, 3, 42, 43]  # of its own window, no others
    for layer in backbone.encoder.layer:
        assert layer.output.dense.weight.grad.abs().sum() > 0


def test_mixed_precision_is_for_training_only(backbone: Any) -> None:
    pairs = [(i, i) for i in range(len(USED))]
    exact, mixed = make_network(backbone), make_network(backbone, mixed_precision=True)
    for module in backbone.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        expected = exact(*inputs(pairs), 32)
        assert torch.equal(mixed(*inputs(pairs), 32), expected)
        mixed.train()
        found = mixed(*inputs(pairs), 32)
    assert found.dtype == torch.float32
    assert 0 < (found - expected).abs().max()
    assert (found - expected).abs().mean() < 0.1


def test_all_weights_learn_at_one_scale(backbone: Any) -> None:
    network = make_network(backbone, learn_rate_scale=0.25)
    assert network.learn_rate_scales() == {"backbone.": 0.25}
    assert all(name.startswith("backbone.") for name, _ in network.named_parameters())
