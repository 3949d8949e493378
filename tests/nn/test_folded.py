"""The fused network against the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from spacy_bioel.nn.folded import FoldedResCNN
from spacy_bioel.nn.rescnn import FrozenEmbeddings, ResCNN

LENGTHS = [1, 4, 2, 9, 1, 3, 25, 1]


def make(*, positions: bool = False, **settings: Any) -> ResCNN:
    torch.manual_seed(0)
    embeddings = FrozenEmbeddings(
        words=torch.randint(-127, 128, (50, 24), dtype=torch.int8),
        scale=torch.rand(50, 1) / 127,
        positions=torch.randn(25, 24) if positions else torch.zeros(25, 24),
        token_type=torch.randn(24),
        norm_weight=torch.rand(24),
        norm_bias=torch.randn(24),
    )
    return ResCNN(embeddings, **{"dim": 16, "blocks": 3, "filters": 8} | settings).eval()


def names(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, 50, (sum(lengths),), generator=torch.Generator().manual_seed(1))
    return ids, torch.tensor(lengths)


@pytest.mark.parametrize("lengths", [LENGTHS, [1], [2], [3, 1]], ids=len)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "attention"},
        {"positions": True},
        {"widths": [1]},
        {"widths": [3, 7, 1]},
        {"widths": [5]},
    ],
    ids=str,
)
def test_float32_equals_the_reference(settings: dict[str, Any], lengths: list[int]) -> None:
    network = make(**settings)
    folded = FoldedResCNN(network, dtype=torch.float32)
    with torch.inference_mode():
        expected, found = network(*names(lengths)), folded(*names(lengths))
    assert found.shape == (len(lengths), 16)
    assert float((found - expected).abs().max()) < 1e-5
    assert (folded.table is None) == settings.get("positions", False)


@pytest.mark.parametrize("pooling", ["max", "attention"])
def test_bfloat16_is_near(pooling: str) -> None:
    network = make(pooling=pooling)
    folded = FoldedResCNN(network, dtype=torch.bfloat16)
    with torch.inference_mode():
        expected, found = network(*names(LENGTHS)), folded(*names(LENGTHS))
    assert found.dtype == torch.float32
    assert float((found - expected).abs().max()) > 1e-5
    assert float(F.cosine_similarity(found, expected).min()) > 0.999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_name_alone_or_with_others(dtype: torch.dtype) -> None:
    folded = FoldedResCNN(make(), dtype=dtype)
    ids, lengths = names(LENGTHS)
    with torch.inference_mode():
        together = folded(ids, lengths)
        alone = [folded(part, torch.tensor([len(part)])) for part in ids.split(LENGTHS)]
    assert float((together - torch.cat(alone)).abs().max()) < 1e-5
