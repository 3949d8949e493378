"""Losses against values computed by hand, and their gradients."""

import math

import pytest
import torch

from spacy_bioel.models.networks import info_nce_loss, marginal_loss, multi_similarity_loss


def unit(*cosines: float) -> torch.Tensor:
    """Return an anchor (1, 0, ...), and a vector for each cosine with it, each in its dimension."""
    vectors = torch.zeros(len(cosines) + 1, len(cosines) + 1, dtype=torch.float64)
    vectors[0, 0] = 1.0
    for i, cosine in enumerate(cosines, start=1):
        vectors[i, 0] = cosine
        vectors[i, i] = math.sqrt(1 - cosine**2)
    return vectors


def random(*shape: int) -> torch.Tensor:
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


def test_the_gradient_of_the_temperature():
    vectors = random(4, 3)
    temperature = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])

    def loss(vectors: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return info_nce_loss(vectors, labels, temperature=temperature)

    assert torch.autograd.gradcheck(loss, (vectors, temperature))


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
