"""The cross-encoder against one pair at a time, as the backbone itself reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spacy_bioel.nn import encoders
from spacy_bioel.nn.encoders import CrossEncoder

transformers = pytest.importorskip("transformers")

# Pieces of segment 0 and of segment 1.
PAIRS = [
    ([2, 42, 3], [43, 3]),
    ([2, 3], [3]),
    ([2, *range(5, 25), 3], [9, 10, 3]),
    ([2, 42, 3], [44, 3]),
    ([2, 7, 8, 9, 3], [41, 8, 8, 3]),
]


@pytest.fixture
def backbone(checkpoint: Path) -> Any:
    return transformers.AutoModel.from_pretrained(checkpoint, add_pooling_layer=False)


def make_network(backbone: Any, **settings: Any) -> CrossEncoder:
    torch.manual_seed(1)
    return CrossEncoder(backbone, **settings).eval()


def inputs(pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    ids = [piece for pair in pairs for part in pair for piece in part]
    segments = [i for pair in pairs for i in (0, 1) for _ in pair[i]]
    return (
        torch.tensor(ids),
        torch.tensor(segments),
        torch.tensor([sum(map(len, pair)) for pair in pairs]),
    )


def alone(network: CrossEncoder, pair: tuple[list[int], list[int]]) -> float:
    """The textbook form: one pair, no pads and no mask."""
    ids, segments, _ = inputs([pair])
    with torch.no_grad():
        states = network.backbone(input_ids=ids[None], token_type_ids=segments[None])[0]
        return network.head(states[:, 0]).item()


def test_logits_in_the_order_given(backbone: Any) -> None:
    network = make_network(backbone)
    with torch.no_grad():
        logits = network(*inputs(PAIRS))
    assert logits.shape == (5,)
    assert logits.tolist() == pytest.approx([alone(network, pair) for pair in PAIRS], abs=1e-5)
    assert logits.std() > 0.01


def test_batches_are_bounded_by_their_tokens(
    backbone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_network(backbone)
    with torch.no_grad():
        together = network(*inputs(PAIRS))
    shapes = []
    backbone.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    monkeypatch.setattr(encoders, "_TOKENS", 18)
    with torch.no_grad():
        apart = network(*inputs(PAIRS))
    # One pair is longer than the bound and stands alone.
    assert shapes == [(1, 25), (2, 9), (2, 5)]
    assert float((apart - together).abs().max()) < 1e-5


def test_segments_are_seen(backbone: Any) -> None:
    network = make_network(backbone)
    ids, segments, lengths = inputs(PAIRS)
    with torch.no_grad():
        changed = network(ids, 1 - segments, lengths) - network(ids, segments, lengths)
    assert float(changed.abs().min()) > 1e-4


@pytest.mark.parametrize(
    "config",
    [
        transformers.BertConfig(
            vocab_size=84,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            type_vocab_size=1,
        ),
        transformers.DistilBertConfig(vocab_size=84, dim=8, n_layers=1, n_heads=1, hidden_dim=8),
    ],
    ids=["one", "none"],
)
def test_networks_that_tell_no_segments_apart(config: Any) -> None:
    network = make_network(transformers.AutoModel.from_config(config))
    ids, segments, lengths = inputs(PAIRS)
    with torch.no_grad():
        logits = network(ids, segments, lengths)
        assert logits.shape == (5,)
        assert torch.equal(network(ids, 0 * segments, lengths), logits)


def test_pads_do_not_shift_positions() -> None:
    """RoBERTa counts positions by its pad, whose id is not 0."""
    config = transformers.RobertaConfig(
        vocab_size=84,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=27,  # 2 more than the longest pair has pieces
        type_vocab_size=1,
        pad_token_id=1,
        initializer_range=0.3,
    )
    network = make_network(transformers.AutoModel.from_config(config))
    with torch.no_grad():
        together = network(*inputs(PAIRS))
        one_by_one = torch.cat([network(*inputs([pair])) for pair in PAIRS])
    assert float((together - one_by_one).abs().max()) < 1e-5


def test_the_new_layer_starts_small_and_at_zero(backbone: Any) -> None:
    network = make_network(backbone)
    assert network.head.weight.std().item() == pytest.approx(0.02, rel=0.5)
    assert network.head.bias.tolist() == [0.0]
    assert network.learn_rate_scales() == {"backbone.": 1.0}
    assert make_network(backbone, learn_rate_scale=0.05).learn_rate_scales() == {"backbone.": 0.05}


def test_dropout_before_the_layer_in_training_only(backbone: Any) -> None:
    network = make_network(backbone, dropout=1.0)
    network.train()
    assert network(*inputs(PAIRS)).tolist() == [0.0] * 5
    network.eval()
    assert float(network(*inputs(PAIRS)).detach().abs().min()) > 1e-4


def test_mixed_precision_is_for_training_and_gives_single(backbone: Any) -> None:
    exact, mixed = make_network(backbone), make_network(backbone, dropout=0, mixed_precision=True)
    expected = exact(*inputs(PAIRS))
    assert mixed(*inputs(PAIRS)).tolist() == expected.tolist()
    mixed.train()
    backbone.eval()  # it has dropout, too
    found = mixed(*inputs(PAIRS))
    furthest = float((found - expected).detach().abs().max())
    assert found.dtype == torch.float32
    assert 1e-5 < furthest < 0.05
    found.sum().backward()
    assert {p.grad.dtype for p in mixed.parameters() if p.grad is not None} == {torch.float32}


def test_gradients_reach_all_layers(backbone: Any) -> None:
    network = make_network(backbone)
    network(*inputs(PAIRS)).sum().backward()
    assert network.head.bias.grad.tolist() == [5.0]
    assert all(float(p.grad.abs().sum()) > 0 for p in network.parameters())


def test_no_pairs(backbone: Any) -> None:
    network = make_network(backbone)
    nothing = torch.zeros(0, dtype=torch.int64)
    logits = network(nothing, nothing, nothing)
    assert logits.tolist() == []
    logits.sum().backward()
    assert network.head.bias.grad.tolist() == [0.0]
