"""The transformer of names against padded batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spacy_bioel.nn.transformer import NameTransformer

NAMES = [[2, 9, 12, 3], [2, 3], [2, 5, 3], [2, 7, 20, 30, 41, 8, 8, 3], [2, 44, 10, 3]]


@pytest.fixture
def backbone(checkpoint: Path) -> Any:
    return pytest.importorskip("transformers").AutoModel.from_pretrained(checkpoint).eval()


def encode(network: NameTransformer, names: list[list[int]]) -> Tensor:
    ids = torch.tensor([piece for name in names for piece in name])
    with torch.no_grad():
        return network(ids, torch.tensor([len(name) for name in names]))


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


def test_gradients_flow(backbone: Any) -> None:
    network = NameTransformer(backbone, pooling="mean").train()
    network(torch.tensor([2, 9, 3, 2, 3]), torch.tensor([3, 2])).square().sum().backward()
    gradients = [p.grad for name, p in network.named_parameters() if "layer.1." in name]
    assert gradients and all(g is not None and g.abs().sum() > 0 for g in gradients)
    network.zero_grad()
