"""Acceptance check 12: prefix sums equal brute force, at document borders too."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from spacy_bioel.nn import spans as module
from spacy_bioel.nn.spans import SpanScorer

MAX_WIDTH, N_LABELS, N_FEATURES = 4, 2, 5
LENGTHS = torch.tensor([3, 0, 1, 6])
TOKENS = torch.randn(10, 7, generator=torch.Generator().manual_seed(0))
# (first token, width - 1, feature), with two matches of one span and one of full width.
SPANS = torch.tensor([[0, 2, 1], [0, 2, 4], [4, 3, 0], [9, 0, 2]])
WORDS = torch.tensor([[1, 0], [1, 3], [8, 4]])
NO_SPANS, NO_WORDS = torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)


def make_scorer(*, context: int = 0) -> SpanScorer:
    torch.manual_seed(0)
    scorer = SpanScorer(
        width=7,
        n_labels=N_LABELS,
        max_width=MAX_WIDTH,
        hidden=6,
        context=context,
        n_features=N_FEATURES,
        dropout=0.2,
    )
    for features in (scorer.word_features, scorer.token_features, scorer.span_features):
        torch.nn.init.normal_(features.weight)
    return scorer.eval()


def brute_force(scorer: SpanScorer, tokens: Tensor) -> Tensor:
    """Each span of each document by itself, its content averaged token by token."""
    x = tokens.clone()
    for token, feature in WORDS.tolist():
        x[token] += scorer.word_features.weight[feature]
    for start, width, feature in SPANS.tolist():
        places = [(0, start), (1, start + width)]
        places += [(2, inside) for inside in range(start + 1, start + width)]
        for place, token in places:
            x[token] += scorer.token_features.weight[feature + place * N_FEATURES]
    scores = torch.full((len(tokens), MAX_WIDTH, N_LABELS), -math.inf)
    ends = torch.repeat_interleave(LENGTHS.cumsum(0), LENGTHS).tolist()
    for start, doc_end in enumerate(ends):
        for width in range(min(MAX_WIDTH, doc_end - start)):
            content = scorer.content(x[start : start + width + 1]).mean(0)
            hidden = scorer.start(x[start]) + scorer.end(x[start + width]) + content
            hidden = hidden + scorer.width.weight[width]
            for at, match_width, feature in SPANS.tolist():
                if (at, match_width) == (start, width):
                    hidden = hidden + scorer.span_features.weight[feature]
            scores[start, width] = scorer.output(torch.relu(hidden))
    return scores


@pytest.mark.parametrize("block", [4096, 4, 1])
def test_scores_equal_brute_force(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    scorer = make_scorer()
    with torch.no_grad():
        scores = scorer(TOKENS, LENGTHS, SPANS, WORDS)
        torch.testing.assert_close(scores, brute_force(scorer, TOKENS), atol=1e-5, rtol=1e-5)


def test_spans_stay_in_their_document() -> None:
    scores = make_scorer()(TOKENS, LENGTHS, SPANS, WORDS)
    widths = torch.isfinite(scores).all(dim=2).sum(dim=1)
    assert widths.tolist() == [3, 2, 1, 1, 4, 4, 4, 3, 2, 1]


@pytest.mark.parametrize("context", [0, 3])
def test_a_document_scores_the_same_alone(context: int) -> None:
    scorer = make_scorer(context=context)
    with torch.no_grad():
        together = scorer(TOKENS, LENGTHS, NO_SPANS, NO_WORDS)
        for start, end in ((0, 3), (3, 4), (4, 10)):
            length = torch.tensor([end - start])
            alone = scorer(TOKENS[start:end], length, NO_SPANS, NO_WORDS)
            torch.testing.assert_close(alone, together[start:end], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("context", [0, 3])
def test_no_tokens(context: int) -> None:
    scores = make_scorer(context=context)(TOKENS[:0], torch.tensor([0]), NO_SPANS, NO_WORDS)
    assert scores.shape == (0, 4, 2)


def test_the_gradient_is_that_of_finite_differences() -> None:
    scorer = make_scorer(context=2).double()
    tokens = TOKENS.double().requires_grad_()

    def finite_scores(x: Tensor) -> Tensor:
        scores = scorer(x, LENGTHS, SPANS, WORDS)
        return scores[torch.isfinite(scores)]

    assert finite_scores(tokens).shape == (50,)
    assert torch.autograd.gradcheck(finite_scores, (tokens,), fast_mode=True)
