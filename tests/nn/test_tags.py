from __future__ import annotations

import pytest
import torch

from spacy_bioel.nn.spans import TagScorer

NO_SPANS, NO_WORDS = torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)


def make_scorer(*, context: int = 0) -> TagScorer:
    torch.manual_seed(0)
    scorer = TagScorer(
        n_tags=3, width=1, max_width=4, context=context, n_features=2, dropout=0.5
    ).eval()
    torch.nn.init.constant_(scorer.output.bias, 0.0)
    return scorer


def test_one_linear_layer_over_vectors_and_matches() -> None:
    scorer = make_scorer()
    for features, weights in (
        (scorer.word_features, [0.5, 0.25]),
        (scorer.token_features, [10.0, 0.0, 20.0, 0.0, 30.0, 0.0]),  # first, last, inside
    ):
        features.weight.data = torch.tensor(weights)[:, None]
    scorer.output.weight.data = torch.tensor([[1.0], [2.0], [-1.0]])
    tokens = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    # A match of feature 0 from token 0 to 2, a word of feature 1 at token 3.
    spans, words = torch.tensor([[0, 2, 0]]), torch.tensor([[3, 1]])
    scores = scorer(tokens, torch.tensor([3, 1]), spans, words)
    assert scores[:, 0].tolist() == [11.0, 32.0, 23.0, 4.25]
    assert scores[1].tolist() == [32.0, 64.0, -32.0]


@pytest.mark.parametrize("context", [0, 2])
def test_a_document_scores_the_same_alone(context: int) -> None:
    scorer = make_scorer(context=context)
    tokens = torch.randn(5, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = scorer(tokens, torch.tensor([2, 0, 3]), NO_SPANS, NO_WORDS)
        alone = scorer(tokens[2:], torch.tensor([3]), NO_SPANS, NO_WORDS)
    torch.testing.assert_close(together[2:], alone, atol=1e-6, rtol=1e-6)
    assert scorer(tokens[:0], torch.tensor([0]), NO_SPANS, NO_WORDS).shape == (0, 3)
