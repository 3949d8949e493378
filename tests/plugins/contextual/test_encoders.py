"""Networks around a backbone, compared with the backbone on one row at a time or on padded rows."""

from typing import Any

import pytest
import torch
from tables import cases
from torch import Tensor

from spacy_bioel.plugins.contextual import networks as encoders
from spacy_bioel.plugins.contextual.networks import (
    CrossEncoder,
    DocumentTransformer,
    NameTransformer,
)

transformers = pytest.importorskip("transformers")


@pytest.fixture
def backbone(checkpoint) -> Any:
    return transformers.AutoModel.from_pretrained(checkpoint, add_pooling_layer=False)


def flat(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([piece for row in rows for piece in row])
    return ids, torch.tensor([len(row) for row in rows])


@pytest.mark.parametrize(("lengths", "max_pieces", "expected"), cases(__file__, "batches"))
def test_rows_that_are_batched_together(lengths, max_pieces, expected):
    batches = encoders.batches_by_length(torch.tensor(lengths, dtype=torch.int64), max_pieces)
    assert [(*batch.tolist(),) for batch in batches] == [*expected]


# Names.

NAMES = [[2, 9, 12, 3], [2, 3], [2, 5, 3], [2, 7, 20, 30, 41, 8, 8, 3], [2, 44, 10, 3]]


def padded(backbone: Any, names: list[list[int]], *, pooling: str) -> Tensor:
    """Return the vectors of the textbook form, padded and masked."""
    longest = max(map(len, names))
    ids = torch.tensor([name + [0] * (longest - len(name)) for name in names])
    mask = torch.tensor([[int(i < len(name)) for i in range(longest)] for name in names])
    states = backbone(input_ids=ids, attention_mask=mask).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    return (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_names_unpadded_equal_padded_and_masked(backbone, pooling):
    network = NameTransformer(backbone, pooling=pooling)
    found = network(*flat(NAMES))
    assert found.shape == (5, 32)
    assert float((found - padded(backbone, NAMES, pooling=pooling)).abs().max()) < 1e-5
    together = network(*flat([*NAMES, [2, *range(5, 28), 3], *NAMES]))
    assert float((found - together[:5]).abs().max()) < 1e-5
    assert float((found - together[6:]).abs().max()) < 1e-5
    assert float((found[0] - found[4]).abs().max()) > 0.01


# Documents.

WINDOWS = [[2, 42, 43, 3], [2, 9, 3], [2, *range(5, 30), 3], [2, 44, 45, 46, 3], [2, 9, 3]]
# Pieces of the documents, without the special pieces.
USED = torch.tensor([1, 2, 5, *range(8, 33), 35, 36, 37, 40])
ALL = torch.arange(len(USED))


@torch.no_grad()
@pytest.mark.parametrize("max_pieces", [1, 8, 30, 10_000])
def test_windows_do_not_depend_on_their_batch(backbone, monkeypatch, max_pieces):
    monkeypatch.setitem(encoders._WINDOW_PIECES_PER_BATCH, "cpu", max_pieces)
    vectors = DocumentTransformer(backbone)(*flat(WINDOWS), USED, ALL, ALL, len(USED))
    assert vectors.shape == (32, 32)
    states = [backbone(input_ids=torch.tensor([window]))[0][0] for window in WINDOWS]
    expected = torch.cat(states)[USED]
    assert (vectors - expected).abs().max() < 1e-5
    assert expected.std() > 0.1


def test_gradients_reach_the_first_layer_and_the_pieces_that_are_used(backbone):
    network = DocumentTransformer(backbone)
    network(*flat(WINDOWS), USED, ALL[:1], ALL[:1], 1)[0, 0].backward()
    table = backbone.embeddings.word_embeddings.weight.grad
    changed = table.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert changed == [2, 3, 42, 43]  # the pieces of the same window only
    for layer in backbone.encoder.layer:
        assert layer.output.dense.weight.grad.abs().sum() > 0


# Pairs: pieces of segment 0 and of segment 1.

PAIRS = [
    ([2, 42, 3], [43, 3]),
    ([2, 3], [3]),
    ([2, *range(5, 25), 3], [9, 10, 3]),
    ([2, 42, 3], [44, 3]),
    ([2, 7, 8, 9, 3], [41, 8, 8, 3]),
]


def make_network(backbone: Any, **settings: Any) -> CrossEncoder:
    torch.manual_seed(1)
    return CrossEncoder(backbone, **settings).eval()


def inputs(pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    ids, lengths = flat([[*first, *second] for first, second in pairs])
    segments = [i for pair in pairs for i in (0, 1) for _ in pair[i]]
    return ids, torch.tensor(segments), lengths


def alone(network: CrossEncoder, pair: tuple[list[int], list[int]]) -> float:
    """Return the logit of a single pair, without padding and mask."""
    ids, segments, _ = inputs([pair])
    states = network.backbone(input_ids=ids[None], token_type_ids=segments[None])[0]
    return network.head(states[:, 0]).item()


@torch.no_grad()
@pytest.mark.parametrize("max_pieces", [4096, 18])  # one pair is longer than 18
def test_logits_keep_the_order_of_the_pairs(backbone, monkeypatch, max_pieces):
    network = make_network(backbone)
    expected = [alone(network, pair) for pair in PAIRS]
    monkeypatch.setattr(encoders, "_PIECES_PER_BATCH", max_pieces)
    logits = network(*inputs(PAIRS))
    assert logits.tolist() == pytest.approx(expected, abs=1e-5)
    assert logits.std() > 0.01


SMALL = {"vocab_size": 84, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
SMALL |= {"intermediate_size": 8, "type_vocab_size": 1}


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        transformers.BertConfig(**SMALL),
        transformers.DistilBertConfig(vocab_size=84, dim=8, n_layers=1, n_heads=1, hidden_dim=8),
    ],
    ids=["one", "none"],
)
def test_networks_without_segment_embeddings(config):
    network = make_network(transformers.AutoModel.from_config(config))
    ids, segments, lengths = inputs(PAIRS)
    logits = network(ids, segments, lengths)
    assert logits.shape == (5,)
    assert torch.equal(network(ids, 0 * segments, lengths), logits)


@torch.no_grad()
def test_padding_does_not_shift_positions():
    """RoBERTa counts positions by its padding piece, whose id is not 0."""
    config = transformers.RobertaConfig(
        **SMALL,
        max_position_embeddings=27,  # 2 more than the pieces of the longest pair
        pad_token_id=1,
        initializer_range=0.3,
    )
    network = make_network(transformers.AutoModel.from_config(config))
    together = network(*inputs(PAIRS))
    one_by_one = torch.cat([network(*inputs([pair])) for pair in PAIRS])
    assert float((together - one_by_one).abs().max()) < 1e-5


def test_mixed_precision_is_for_training_where_it_is_faster(backbone, monkeypatch):
    exact, mixed = make_network(backbone), make_network(backbone, mixed_precision=True)
    mixed.dropout.p = 0.0
    expected = exact(*inputs(PAIRS))
    monkeypatch.setattr(encoders, "has_bfloat16", lambda: True)
    assert mixed(*inputs(PAIRS)).tolist() == expected.tolist()
    mixed.train()
    backbone.eval()  # the backbone has dropout too
    found = mixed(*inputs(PAIRS))
    assert found.dtype == torch.float32
    assert 1e-5 < float((found - expected).detach().abs().max()) < 0.05
    found.sum().backward()
    assert {p.grad.dtype for p in mixed.parameters() if p.grad is not None} == {torch.float32}
    monkeypatch.setattr(encoders, "has_bfloat16", lambda: False)
    assert mixed(*inputs(PAIRS)).tolist() == expected.tolist()
