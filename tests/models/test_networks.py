"""Networks and losses equal definitions that are slow but plain, or values computed by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.models import networks as module
from spacy_bioel.models.networks import (
    FrozenEmbeddings,
    ResCNN,
    SpanScorer,
    TagScorer,
    info_nce_loss,
    marginal_loss,
    multi_similarity_loss,
)

# Scores of spans, also at document borders, and of tags.

MAX_WIDTH, N_LABELS, N_FEATURES = 4, 2, 5
LENGTHS = torch.tensor([3, 0, 1, 6])
TOKENS = torch.randn(10, 7, generator=torch.Generator().manual_seed(0))
# (first token, width - 1, feature), with two matches of one span and one of full width.
SPANS = torch.tensor([[0, 2, 1], [0, 2, 4], [4, 3, 0], [9, 0, 2]])
WORDS = torch.tensor([[1, 0], [1, 3], [8, 4]])


def make_scorer() -> Any:
    """Make a scorer in which weights that start at zero are random."""
    torch.manual_seed(0)
    scorer = SpanScorer(
        width=7,
        n_labels=N_LABELS,
        max_width=MAX_WIDTH,
        n_features=N_FEATURES,
        hidden=6,
        dropout=0.2,
    )
    for name, parameter in scorer.named_parameters():
        if "features" in name:
            torch.nn.init.normal_(parameter)
    return scorer.eval()


def brute_force(scorer: SpanScorer, tokens: Tensor) -> Tensor:
    """Score each span of each document by itself, averaging its content token by token."""
    x = tokens.clone()
    for token, feature in WORDS.tolist():
        x[token] += scorer.word_features.weight[feature]
    for start, width, feature in SPANS.tolist():
        positions = [(0, start), (1, start + width)]  # first, last, inner
        positions += [(2, inside) for inside in range(start + 1, start + width)]
        for position, token in positions:
            x[token] += scorer.token_features.weight[feature + position * N_FEATURES]

    def score(i: int, j: int) -> Tensor:
        hidden = scorer.start(x[i]) + scorer.end(x[j]) + scorer.content(x[i : j + 1]).mean(0)
        hidden = hidden + scorer.width.weight[j - i]
        for start, width, feature in SPANS.tolist():
            if (start, width) == (i, j - i):
                hidden = hidden + scorer.span_features.weight[feature]
        return scorer.output(torch.relu(hidden))

    scores = torch.full((int(LENGTHS.sum()), MAX_WIDTH, N_LABELS), -math.inf)
    first = 0
    for length in LENGTHS.tolist():
        for i in range(first, first + length):
            for j in range(i, min(i + MAX_WIDTH, first + length)):
                scores[i, j - i] = score(i, j)
        first += length
    return scores


@pytest.mark.parametrize("block", [4096, 4, 1])
def test_scores_equal_brute_force(block, monkeypatch):
    monkeypatch.setattr(module, "STARTS_PER_BLOCK", block)
    scorer = make_scorer()
    with torch.no_grad():
        scores = scorer(TOKENS, LENGTHS, SPANS, WORDS)
        torch.testing.assert_close(scores, brute_force(scorer, TOKENS), atol=1e-5, rtol=1e-5)
        assert scorer(TOKENS[:0], LENGTHS[:0], SPANS[:0], WORDS[:0]).shape == (0, *scores.shape[1:])


def test_linear_scores_are_equation_4():
    """w_s.h_i + w_e.h_j + w_m.h_i + ... + w_m.h_j, and a bias."""
    scorer = SpanScorer(width=1, n_labels=1, max_width=3, hidden=0, n_features=1, dropout=0)
    for linear, weight in ((scorer.start, 1.0), (scorer.end, 10.0), (scorer.content, 100.0)):
        torch.nn.init.constant_(linear.weight, weight)
    torch.nn.init.constant_(scorer.word_features.weight, 1.0)
    tokens, words = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[3, 0]])
    logits = scorer(tokens, torch.tensor([3, 1]), SPANS[:0], words)[..., 0] + 4  # the bias
    # 1 + 10 + 100, 1 + 20 + 300, 1 + 30 + 600; 2 + 20 + 200, 2 + 30 + 500; ...
    out = -math.inf
    expected = [[111, 321, 631], [222, 532, out], [333, out, out], [555, out, out]]
    assert logits.tolist() == expected
    # Three vectors and a bias; the published code has one bias for each of the three.
    published = SpanScorer(width=768, n_labels=1, max_width=10, hidden=0, n_features=0, dropout=0.0)
    assert sum(p.numel() for p in published.parameters()) == 2305


def test_tags_are_one_linear_layer_over_vectors_and_matches():
    scorer = TagScorer(n_labels=1, width=1, max_width=4, n_features=2, dropout=0.5)
    torch.nn.init.constant_(scorer.eval().output.bias, 0.0)
    scorer.word_features.weight.data = torch.tensor([[0.5], [0.25]])
    # First, last, inside.
    scorer.token_features.weight.data = torch.tensor([10.0, 0.0, 20.0, 0.0, 30.0, 0.0])[:, None]
    scorer.output.weight.data = torch.tensor([[1.0], [2.0], [-1.0]])
    tokens = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    # A match of feature 0 from token 0 to 2, a word of feature 1 at token 3.
    spans, words = torch.tensor([[0, 2, 0]]), torch.tensor([[3, 1]])
    scores = scorer(tokens, torch.tensor([3, 1]), spans, words)
    assert scores[:, 0].tolist() == [11.0, 32.0, 23.0, 4.25]
    assert scores[1].tolist() == [32.0, 64.0, -32.0]


# Encoder of names.


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


# Losses.


def unit(*cosines: float) -> Tensor:
    """Return an anchor (1, 0, ...), and a vector for each cosine with it, each in its dimension."""
    vectors = torch.zeros(len(cosines) + 1, len(cosines) + 1, dtype=torch.float64)
    vectors[0, 0] = 1.0
    for i, cosine in enumerate(cosines, start=1):
        vectors[i, 0] = cosine
        vectors[i, i] = math.sqrt(1 - cosine**2)
    return vectors


def random(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


BATCH_LOSSES = [multi_similarity_loss, info_nce_loss, marginal_loss]


@pytest.mark.parametrize("loss", BATCH_LOSSES)
@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0]], ids=["no positives", "no negatives"])
def test_nothing_to_learn(loss, labels):
    vectors = unit(0.3, 0.2).requires_grad_()
    value = loss(vectors, torch.tensor(labels))
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-12)
    value.backward()
    assert vectors.grad is not None and float(vectors.grad.abs().max()) < 1e-12


@pytest.mark.parametrize("loss", BATCH_LOSSES)
def test_the_gradient_is_that_of_finite_differences(loss):
    vectors, labels = random(6, 4), torch.tensor([0, 0, 1, 1, 2, 0])
    before = labels.clone()
    assert float(loss(vectors, labels).detach()) > 0.1
    assert torch.autograd.gradcheck(lambda v: loss(v, labels), (vectors,))
    assert torch.equal(labels, before)


def test_the_loss_at_the_margin():
    # Two anchors, each with one positive at S = 0.5 and one negative at S = 0.5:
    # ln(2) / 2 + ln(2) / 50 = 0.3604 each. The third vector (two negatives, no positive) has none:
    # the mean over all three is 2/3 of it.
    half = math.sqrt(0.75)
    third = math.sqrt(1 - 0.25 - (0.25 / half) ** 2)
    vectors = torch.tensor([[1, 0, 0], [0.5, half, 0], [0.5, 0.25 / half, third]])
    assert (vectors @ vectors.T).flatten().tolist() == pytest.approx(
        [1, 0.5, 0.5, 0.5, 1, 0.5, 0.5, 0.5, 1], abs=1e-6
    )
    loss = multi_similarity_loss(vectors, torch.tensor([0, 0, 1]))
    assert float(loss) * 3 / 2 == pytest.approx(0.3604, abs=1e-4)


def log_sum(*logits: float) -> float:
    return math.log(sum(math.exp(logit) for logit in logits))


def test_info_nce_of_two_pairs():
    # At angles of 0, 60, 90 and 180 degrees, and not of length 1.
    vectors = torch.tensor([[2.0, 0.0], [0.5, math.sqrt(0.75)], [0.0, 3.0], [-1.0, 0.0]])
    loss = info_nce_loss(vectors, torch.tensor([7, 7, 4, 4]), temperature=0.5)
    # Cosines by 0.5: 0-1 are 1, 0-2 are 0, 0-3 are -2, 1-2 are sqrt(3), 1-3 are -1, 2-3 are 0.
    root = math.sqrt(3)
    expected = [
        log_sum(1, 0, -2) - 1,
        log_sum(1, root, -1) - 1,
        log_sum(0, 0, root) - 0,
        log_sum(0, -2, -1) - 0,
    ]
    assert float(loss) == pytest.approx(sum(expected) / 4, abs=1e-6)


def test_info_nce_leaves_the_other_positives_out():
    # Three of one label, one of another: six pairs, each against the same one.
    vectors, labels = unit(0.9, 0.4, 0.2), torch.tensor([0, 0, 0, 1])
    cosines = (vectors @ vectors.T).tolist()
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    expected = [math.log1p(math.exp(cosines[i][3] - cosines[i][j])) for i, j in pairs]
    loss = info_nce_loss(vectors, labels, temperature=1.0)
    assert float(loss) == pytest.approx(sum(expected) / 6)


def test_the_marginal_loss_adds_the_positives_up():
    # The anchor and two of its label at 0.9 and 0.4, one of another at 0.5; with temperature 1
    # the anchor's is ln((e^.9 + e^.4 + e^.5) / (e^.9 + e^.4)). The fourth has no positive.
    vectors, labels = unit(0.9, 0.4, 0.5), torch.tensor([3, 3, 3, 8])
    pairs = vectors @ vectors.T
    expected = [
        log_sum(*(float(pairs[i, j]) for j in range(4) if j != i))
        - log_sum(*(float(pairs[i, j]) for j in range(3) if j != i))
        for i in range(3)
    ]
    assert expected[0] == pytest.approx(0.34872, abs=1e-4)
    loss = marginal_loss(vectors, labels, temperature=1.0)
    assert float(loss) == pytest.approx(sum(expected) / 3)
    assert float(marginal_loss(5 * vectors, labels, temperature=1.0)) == pytest.approx(float(loss))
