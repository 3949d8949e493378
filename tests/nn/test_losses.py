"""Acceptance checks 2 and 3 of the Multi-Similarity loss, and its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from pytorch_metric_learning.miners import MultiSimilarityMiner

from spacy_bioel.nn.losses import multi_similarity_loss


def unit(*cosines: float) -> torch.Tensor:
    """An anchor (1, 0, ...) and one vector for each cosine with it, in dimensions of their own."""
    vectors = torch.zeros(len(cosines) + 1, len(cosines) + 1, dtype=torch.float64)
    vectors[0, 0] = 1.0
    for i, cosine in enumerate(cosines, start=1):
        vectors[i, 0] = cosine
        vectors[i, i] = math.sqrt(1 - cosine**2)
    return vectors


def test_the_loss_at_the_margin() -> None:
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


def test_the_miner_keeps_hard_pairs() -> None:
    # Positives {0.9, 0.4}, negatives {0.5, 0.1}: 0.5 > 0.4 - 0.2 but not 0.1; 0.4 < 0.5 + 0.2 but
    # not 0.9.
    vectors, labels = unit(0.9, 0.4, 0.5, 0.1), torch.tensor([0, 0, 0, 1, 2])
    anchors, positives, others, negatives = MultiSimilarityMiner(epsilon=0.2)(vectors, labels)
    assert positives[anchors == 0].tolist() == [2]
    assert negatives[others == 0].tolist() == [3]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0, 1, 2], 0.0), ([0, 0, 0], 0.0)],
    ids=["no positives", "no negatives"],
)
def test_nothing_to_learn(labels: list[int], expected: float) -> None:
    assert float(multi_similarity_loss(unit(0.3, 0.2), torch.tensor(labels))) == expected


def test_the_gradient_is_that_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(6, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1, 2, 0])
    assert float(multi_similarity_loss(vectors, labels).detach()) > 0.1
    assert torch.autograd.gradcheck(lambda v: multi_similarity_loss(v, labels), (vectors,))


def test_scale_does_not_matter() -> None:
    vectors, labels = unit(0.6, 0.5), torch.tensor([0, 0, 1])
    loss = multi_similarity_loss(vectors, labels)
    assert float(multi_similarity_loss(7 * vectors, labels)) == pytest.approx(float(loss))
