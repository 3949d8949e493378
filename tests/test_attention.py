"""Restricted attention of a tiny transformer with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.probing import attention_layers, restricted_attention
from spacy_bioel.nn.encoders import NameTransformer

NAMES = [[2, 9, 12, 3], [2, 3], [2, 5, 3], [2, 7, 20, 30, 41, 8, 8, 3], [2, 44, 10, 3]]


@pytest.fixture(scope="module")
def network(checkpoint: Path) -> NameTransformer:
    transformers = pytest.importorskip("transformers")
    backbone = transformers.AutoModel.from_pretrained(checkpoint).eval()
    return NameTransformer(backbone, pooling="cls")


def encode(network: NameTransformer, names: list[list[int]]) -> Tensor:
    ids = torch.tensor([piece for name in names for piece in name])
    with torch.no_grad():
        return network(ids, torch.tensor([len(name) for name in names]))


def only_itself(length: int, last: bool) -> np.ndarray:
    return np.eye(length, dtype=bool)


def test_each_layer_has_its_own_mask(network: NameTransformer) -> None:
    """With [CLS] shut off from all others in all layers, nothing reaches its vector."""
    asked: list[tuple[int, bool]] = []

    def asks(length: int, last: bool) -> np.ndarray:
        asked.append((length, last))
        return only_itself(length, last)

    with restricted_attention(network, asks):
        shut = encode(network, [[2, 9, 12, 3], [2, 44, 10, 3], [2, 7, 3]])
    assert float((shut[1:] - shut[0]).abs().max()) < 1e-6
    assert asked == [(3, False), (3, True), (4, False), (4, True)]


def test_a_mask_of_everyone_changes_nothing_and_nothing_stays(network: NameTransformer) -> None:
    free = encode(network, NAMES)
    with restricted_attention(network, lambda length, last: np.ones((length, length), dtype=bool)):
        assert float((encode(network, NAMES) - free).abs().max()) < 1e-5
    assert torch.equal(encode(network, NAMES), free)


def test_networks_without_attention_masks_have_no_layers(network: NameTransformer) -> None:
    assert len(attention_layers(network)) == 2

    class Plain(torch.nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])

    plain: Any = Plain(network.backbone.config)
    assert attention_layers(NameTransformer(plain, pooling="cls")) == []
    assert attention_layers(plain) == []
