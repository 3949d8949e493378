"""The transformer of names against padded batches, and with restricted attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from spacy_bioel.nn.transformer import NameTransformer

NAMES = [[2, 9, 12, 3], [2, 3], [2, 5, 3], [2, 7, 20, 30, 41, 8, 8, 3], [2, 44, 10, 3]]


@pytest.fixture
def backbone(checkpoint: Path) -> Any:
    return pytest.importorskip("transformers").AutoModel.from_pretrained(checkpoint).eval()


def encode(network: NameTransformer, names: list[list[int]], **options: Any) -> Tensor:
    ids = torch.tensor([piece for name in names for piece in name])
    with torch.no_grad():
        return network(ids, torch.tensor([len(name) for name in names]), **options)


def padded(backbone: Any, names: list[list[int]], *, pooling: str) -> Tensor:
    """The textbook form: pad, and mask the pads."""
    longest = max(map(len, names))
    ids = torch.tensor([name + [0] * (longest - len(name)) for name in names])
    mask = torch.tensor([[int(i < len(name)) for i in range(longest)] for name in names])
    with torch.no_grad():
        states = backbone(input_ids=ids, attention_mask=mask).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    return (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_unpadded_equals_padded_and_masked(backbone: Any, pooling: str) -> None:
    found = encode(NameTransformer(backbone, pooling=pooling), NAMES)
    assert found.shape == (5, 32)
    assert float((found - padded(backbone, NAMES, pooling=pooling)).abs().max()) < 1e-5


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_vector_does_not_depend_on_its_batch(backbone: Any, pooling: str) -> None:
    network = NameTransformer(backbone, pooling=pooling)
    alone = torch.cat([encode(network, [name]) for name in NAMES])
    together = encode(network, [*NAMES, [2, *range(5, 28), 3], *NAMES])
    assert float((alone - together[:5]).abs().max()) < 1e-5
    assert float((alone - together[6:]).abs().max()) < 1e-5
    assert float((alone[0] - alone[4]).abs().max()) > 0.01


def test_each_layer_has_its_own_mask(backbone: Any) -> None:
    """With [CLS] shut off from all others in all layers, nothing reaches its vector."""
    network = NameTransformer(backbone, pooling="cls")
    asked: list[tuple[int, bool]] = []

    def only_itself(length: int, last: bool) -> np.ndarray:
        asked.append((length, last))
        return np.eye(length, dtype=bool)

    shut = encode(network, [[2, 9, 12, 3], [2, 44, 10, 3], [2, 7, 3]], attention=only_itself)
    assert float((shut[1:] - shut[0]).abs().max()) < 1e-6
    assert asked == [(3, False), (3, True), (4, False), (4, True)]

    def everyone(length: int, last: bool) -> np.ndarray:
        return np.ones((length, length), dtype=bool)

    free = encode(network, NAMES)
    assert float((encode(network, NAMES, attention=everyone) - free).abs().max()) < 1e-5
    assert torch.equal(encode(network, NAMES), free)  # nothing of it stays


def test_restrictions_end_with_an_error(backbone: Any) -> None:
    network = NameTransformer(backbone, pooling="cls")
    free = encode(network, NAMES)

    def broken(length: int, last: bool) -> np.ndarray:
        if last:
            raise RuntimeError("stop")
        return np.eye(length, dtype=bool)

    with pytest.raises(RuntimeError, match="stop"):
        encode(network, NAMES, attention=broken)
    assert torch.equal(encode(network, NAMES), free)


def test_a_network_without_attention_masks_has_no_layers_to_restrict(backbone: Any) -> None:
    assert len(NameTransformer(backbone, pooling="cls").attention_layers()) == 2

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = backbone.config
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])

    assert NameTransformer(Plain(), pooling="cls").attention_layers() == []


def test_gradients_flow(backbone: Any) -> None:
    network = NameTransformer(backbone, pooling="mean").train()
    network(torch.tensor([2, 9, 3, 2, 3]), torch.tensor([3, 2])).square().sum().backward()
    gradients = [p.grad for name, p in network.named_parameters() if "layer.1." in name]
    assert gradients and all(g is not None and g.abs().sum() > 0 for g in gradients)
    network.zero_grad()
