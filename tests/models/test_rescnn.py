"""ResCNN: shapes and parameters as published, and the packed network against a padded one."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.models.networks import FrozenEmbeddings, ResCNN


def embeddings(rows: int, width: int, *, positions: int = 25) -> FrozenEmbeddings:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return FrozenEmbeddings(
        words=random(rows, width),
        positions=random(positions, width),
        token_type=random(width),
        norm_weight=random(width),
        norm_bias=random(width),
    )


def small_network(pooling: str) -> ResCNN:
    torch.manual_seed(0)
    network = ResCNN(embeddings(50, 12), dim=16, blocks=2, filters=6, pooling=pooling)
    return network.eval()


def encode(network: ResCNN, names: list[list[int]]) -> Tensor:
    ids = torch.tensor([piece for name in names for piece in name])
    with torch.no_grad():
        return network(ids, torch.tensor([len(name) for name in names]))


@pytest.mark.parametrize(("pooling", "expected"), [("max", 1_740_072), ("attention", 1_773_097)])
def test_parameter_counts_of_the_paper(pooling, expected):
    with torch.device("meta"):
        tables = FrozenEmbeddings(
            words=torch.empty(30_522, 768),
            positions=torch.empty(512, 768),
            token_type=torch.empty(768),
            norm_weight=torch.empty(768),
            norm_bias=torch.empty(768),
        )
        network = ResCNN(tables, pooling=pooling)
    assert sum(p.numel() for p in network.parameters()) == expected
    # The checkpoint's second token type is never used by a name, and so not kept: 768 numbers.
    assert sum(table.numel() for table in tables.buffers()) + 768 == 23_837_184
    assert not any(name.startswith("embeddings") for name in network.state_dict())


@pytest.mark.parametrize("pooling", ["max", "attention"])
def test_packed_equals_padded_and_alone(pooling):
    network = small_network(pooling)
    names = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10], [11, 12, 13, 14]]
    expected = padded_forward(network, names)
    assert float((encode(network, names) - expected).abs().max()) < 1e-5
    long, short, single = list(range(25)), [3, 1, 4], [7]
    alone = torch.cat([encode(network, [name]) for name in (short, single, long)])
    together = encode(network, [long, short, single, long, [2, 2]])[[1, 2, 0]]
    assert float((alone - together).abs().max()) < 1e-5
    assert float((alone[0] - alone[1]).abs().max()) > 0.01


def padded_forward(network: ResCNN, names: list[list[int]]) -> Tensor:
    """Encode names in the usual way: pad, mask after every layer, convolve with torch's Conv1d."""
    longest = max(map(len, names))
    ids = torch.tensor([name + [0] * (longest - len(name)) for name in names])
    mask = torch.tensor([[i < len(name) for i in range(longest)] for name in names])
    tables = dict(network.embeddings.named_buffers())
    norm = nn.LayerNorm(network.embeddings.words.shape[1], eps=1e-12)
    norm.load_state_dict({"weight": tables["norm_weight"], "bias": tables["norm_bias"]})
    with torch.no_grad():
        x = tables["words"][ids] + tables["positions"][:longest] + tables["token_type"]
        x = network.project(norm(x)) * mask[..., None]  # (n_names, longest, dim)
        for block in network.blocks:
            channels = x.transpose(1, 2)
            near = [torch.relu(convolve(channels)) for convolve in block.convolutions]
            x = x + block.feed_forward(torch.cat(near, dim=1).transpose(1, 2))
            x = x * mask[..., None]
        if network.attention is None:
            return x.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        scores = network.attention(x)[..., 0].masked_fill(~mask, -torch.inf)
        return (F.softmax(scores, dim=1)[..., None] * x).sum(dim=1)
