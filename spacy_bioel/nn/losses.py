"""Losses of encoders of names: scalars, 0 where there is nothing to learn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def multi_similarity_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Multi-Similarity loss over the pairs mined by the Multi-Similarity miner.

    The loss raises the cosine of vectors with one label and lowers all other cosines; each pair is
    weighted by its difficulty. It is the mean over all vectors; a vector without pairs counts as 0.
    Wang et al. (2019), https://arxiv.org/abs/1904.06627; settings of Lai, Ji and Zhai (2021).

    vectors (Tensor): Vectors of mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each vector. Shape (n,).
    """
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    pairs = MultiSimilarityMiner(epsilon=0.2)(vectors, labels)
    return MultiSimilarityLoss(alpha=2.0, beta=50.0, base=0.5)(vectors, labels, pairs)


def info_nce_loss(vectors: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.05) -> Tensor:
    """InfoNCE with several positives: each positive is contrasted with all vectors of other labels.

    Positives of one vector do not compete with each other. The loss is the mean over all positive
    pairs. Khosla et al. (2020), https://arxiv.org/abs/2004.11362.

    vectors, labels (Tensor): See `multi_similarity_loss`.
    temperature (float | Tensor): Divisor of the cosines, as in all losses.
    """
    unit = F.normalize(vectors, dim=1)
    logits = unit @ unit.T / temperature
    same = labels[:, None] == labels[None, :]
    negatives = torch.logsumexp(logits.masked_fill(same, -torch.inf), dim=1)
    # A copy: the backward pass needs the mask above.
    pairs = same.clone().fill_diagonal_(False).nonzero(as_tuple=True)
    losses = F.softplus(negatives[pairs[0]] - logits[pairs])
    return losses.sum() / max(1, len(losses))


def marginal_loss(vectors: Tensor, labels: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Negative log of the total probability of the positives among all other vectors.

    One near synonym suffices, while `info_nce_loss` requires all of them to be near. The loss is
    the mean over the vectors with a positive. Sung et al. (2020), Biomedical Entity Representations
    with Synonym Marginalization, https://aclanthology.org/2020.acl-main.335, with the names of the
    batch as candidates.

    vectors, labels (Tensor): See `multi_similarity_loss`.
    """
    unit = F.normalize(vectors, dim=1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    logits = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    return missed(logits, positive)


def missed(logits: Tensor, right: Tensor) -> Tensor:
    """Negative log of the probability of the right ones of each row, mean over rows with any."""
    found = right.any(dim=1)
    logits, right = logits[found], right[found]
    positive = torch.logsumexp(logits.masked_fill(~right, -torch.inf), dim=1)
    return (torch.logsumexp(logits, dim=1) - positive).sum() / max(1, len(logits))
