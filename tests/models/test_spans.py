"""Scores of spans equal brute force, also at document borders; scores of tags are one layer."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from spacy_bioel.models import networks as module
from spacy_bioel.models.networks import SpanScorer, TagScorer

MAX_WIDTH, N_LABELS, N_FEATURES = 4, 2, 5
LENGTHS = torch.tensor([3, 0, 1, 6])
TOKENS = torch.randn(10, 7, generator=torch.Generator().manual_seed(0))
# (first token, width - 1, feature), with two matches of one span and one of full width.
SPANS = torch.tensor([[0, 2, 1], [0, 2, 4], [4, 3, 0], [9, 0, 2]])
WORDS = torch.tensor([[1, 0], [1, 3], [8, 4]])
NO_SPANS, NO_WORDS = torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)


def make(kind: str) -> Any:
    """Make a scorer in which weights that start at zero are random."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 7, "n_labels": N_LABELS, "max_width": MAX_WIDTH}
    sizes |= {"n_features": N_FEATURES, "dropout": 0.2}
    hidden = {"spans": {"hidden": 6}, "linear": {"hidden": 0}, "tags": {}}[kind]
    scorer = (TagScorer if kind == "tags" else SpanScorer)(**sizes, **hidden)
    for name, parameter in scorer.named_parameters():
        if "features" in name:
            torch.nn.init.normal_(parameter)
    return scorer.eval()


both = pytest.mark.parametrize("kind", ["spans", "linear"])


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
    scorer = make("spans")
    with torch.no_grad():
        scores = scorer(TOKENS, LENGTHS, SPANS, WORDS)
        torch.testing.assert_close(scores, brute_force(scorer, TOKENS), atol=1e-5, rtol=1e-5)


def test_linear_scores_are_equation_4():
    """w_s.h_i + w_e.h_j + w_m.h_i + ... + w_m.h_j, and a bias."""
    scorer = SpanScorer(width=1, n_labels=1, max_width=3, hidden=0, n_features=1, dropout=0)
    for linear, weight in ((scorer.start, 1.0), (scorer.end, 10.0), (scorer.content, 100.0)):
        torch.nn.init.constant_(linear.weight, weight)
    torch.nn.init.constant_(scorer.word_features.weight, 1.0)
    tokens, words = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[3, 0]])
    logits = scorer(tokens, torch.tensor([3, 1]), NO_SPANS, words)[..., 0] + 4  # the bias
    # 1 + 10 + 100, 1 + 20 + 300, 1 + 30 + 600; 2 + 20 + 200, 2 + 30 + 500; ...
    out = -math.inf
    expected = [[111, 321, 631], [222, 532, out], [333, out, out], [555, out, out]]
    assert logits.tolist() == expected
    # Three vectors and a bias; the published code has one bias for each of the three.
    published = SpanScorer(width=768, n_labels=1, max_width=10, hidden=0, n_features=0, dropout=0.0)
    assert sum(p.numel() for p in published.parameters()) == 2305


@pytest.mark.parametrize("kind", ["spans", "linear", "tags"])
def test_scores_do_not_depend_on_the_batch(kind):
    scorer = make(kind)
    with torch.no_grad():
        together = scorer(TOKENS, LENGTHS, NO_SPANS, NO_WORDS)
        for start, end in ((0, 3), (3, 4), (4, 10)):
            length = torch.tensor([end - start])
            alone = scorer(TOKENS[start:end], length, NO_SPANS, NO_WORDS)
            torch.testing.assert_close(alone, together[start:end], atol=1e-5, rtol=1e-5)
        assert scorer(TOKENS[:0], length[:0], NO_SPANS, NO_WORDS).shape == (0, *together.shape[1:])


@both
def test_the_gradient_is_that_of_finite_differences(kind):
    scorer = make(kind).double()
    tokens = TOKENS.double().requires_grad_()

    def finite_scores(x: Tensor) -> Tensor:
        scores = scorer(x, LENGTHS, SPANS, WORDS)
        return scores[torch.isfinite(scores)]

    assert finite_scores(tokens).shape == (50,)
    assert torch.autograd.gradcheck(finite_scores, (tokens,), fast_mode=True)


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
