"""Losses of the contextual models against values computed by hand, and their gradients."""

import math

import pytest
import torch

from spacy_bioel.plugins.contextual.networks import ranking_loss
from spacy_bioel.plugins.contextual.token_networks import collective_loss, restricted_softmax_loss


def random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


def restricted(states: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    target, weight = torch.tensor([0, 2, 2, 6]), torch.tensor([0.1, 1.0, 2.0, 1.0])
    others = torch.tensor([4])
    return restricted_softmax_loss(
        states, weights.__getitem__, bias, target, weight=weight, others=others
    )


def test_gradients_are_those_of_finite_differences():
    vectors, names, logits = random(4, 3), random(5, 3), random(6)
    groups = torch.tensor([0, 0, 1, 1, 1, 2])
    right = torch.tensor([True, False, True, True, False, False])
    table = torch.tensor([[1, 0, 0, 0, 1], [0, 1, 0, 0, 0], [0] * 5, [0, 0, 1, 1, 0]]).bool()
    for function, inputs in (
        (lambda x: ranking_loss(x, groups, right), (logits,)),
        (lambda v, n: collective_loss(v, n, table, temperature=0.5), (vectors, names)),
        (restricted, (vectors, random(7, 3), random(7))),
    ):
        assert torch.autograd.gradcheck(function, inputs)


def test_the_ranking_loss_by_hand():
    # Mention 5: scores 1, 3 and 4, of which 3 is right; mention 2: 2 and 6, both right, and 8.
    # Mention 9 has no right candidate.
    logits = torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 7.0]).log()
    groups = torch.tensor([5, 2, 5, 5, 2, 2, 9])
    right = torch.tensor([False, True, True, False, True, False, False])
    expected = (math.log(8 / 3) + math.log(16 / 8)) / 2
    assert float(ranking_loss(logits, groups, right)) == pytest.approx(expected)
    only = groups == 5
    single = torch.nn.functional.cross_entropy(logits[only][None], torch.tensor([1]))
    found = ranking_loss(logits[only], groups[only], right[only])
    assert float(found) == pytest.approx(float(single)) == pytest.approx(math.log(8 / 3))


@pytest.mark.parametrize("n", [0, 3])
def test_the_ranking_loss_has_nothing_to_learn(n):
    logits = torch.ones(n, requires_grad=True)
    loss = ranking_loss(logits, torch.zeros(n, dtype=torch.int64), torch.zeros(n).bool())
    loss.backward()
    assert (float(loss.detach()), logits.grad.tolist()) == (0.0, [0.0] * n)


def test_restricted_softmax_by_hand():
    """Class 3 is in no softmax; the others are those of the batch, and class 1."""
    classes = torch.nn.Embedding(4, 2)
    classes.weight.data = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    bias = torch.tensor([0.0, 1.0, 0.0, 50.0])
    states, target = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 2])
    weight = torch.tensor([0.25, 1.0])
    loss = restricted_softmax_loss(
        states, classes, bias, target, weight=weight, others=torch.tensor([1, 2])
    )
    first = math.log(1 + math.exp(3) + 1)  # logits 0, 3, 0
    second = math.log(1 + math.exp(1) + math.exp(2)) - 2  # logits 0, 1, 2
    assert loss.item() == pytest.approx((0.25 * first + second) / 1.25)
