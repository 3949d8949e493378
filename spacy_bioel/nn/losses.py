"""Losses of the linkers: scalars, 0 where there is nothing to learn."""

from __future__ import annotations

from collections.abc import Callable

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
    return _missed(logits, positive)


def collective_loss(
    mentions: Tensor, names: Tensor, right: Tensor, *, temperature: float
) -> Tensor:
    """Negative log of the probability of a mention's right candidates among those of the batch.

    All mentions of a batch share their candidates, both sampled and mined. The loss is the mean
    over the mentions with a right candidate. Bhowmik, Stratos and de Melo (2021),
    https://aclanthology.org/2021.louhi-1.4, with cosines.

    mentions (Tensor): Unit vectors. Shape (n_mentions, dim).
    names (Tensor): Vectors of the candidates. Shape (n_candidates, dim).
    right (Tensor): Whether a candidate is right; bool. Shape (n_mentions, n_candidates).
    """
    return _missed(mentions @ F.normalize(names, dim=1).T / temperature, right)


def ranking_loss(logits: Tensor, groups: Tensor, right: Tensor) -> Tensor:
    """Negative log of the total probability of the right candidates of a mention.

    Probabilities are a softmax over the candidates of the mention; with one right candidate the
    loss is cross-entropy. It is the mean over the mentions with a right candidate. Wu et al.
    (2020), https://aclanthology.org/2020.emnlp-main.519; several right candidates as in
    `marginal_loss`.

    logits (Tensor): Logits of pairs of a mention and a candidate. Shape (n_pairs,).
    groups (Tensor): Index of the mention of each pair, in any order. Shape (n_pairs,).
    right (Tensor): Whether the candidate is right; bool. Shape (n_pairs,).
    """
    own = torch.unique(groups[right])[:, None] == groups  # (n_mentions, n_pairs)
    return _missed(torch.where(own, logits, -torch.inf), own & right)


def _missed(logits: Tensor, right: Tensor) -> Tensor:
    """Negative log of the probability of the right ones of each row, mean over rows with any."""
    found = right.any(dim=1)
    logits, right = logits[found], right[found]
    positive = torch.logsumexp(logits.masked_fill(~right, -torch.inf), dim=1)
    return (torch.logsumexp(logits, dim=1) - positive).sum() / max(1, len(logits))


def restricted_softmax_loss(
    states: Tensor,
    classes: Callable[[Tensor], Tensor],
    bias: Tensor,
    target: Tensor,
    *,
    weight: Tensor,
    others: Tensor,
) -> Tensor:
    """Cross-entropy over the classes that occur in the batch, and a sample of others.

    Logits of no other classes are computed, so that time and memory do not grow with their number.
    The loss is the weighted mean: dividing by the size of a padded batch, as published, would
    let padding scale the loss. Zhu et al., Simple hierarchical multi-task neural end-to-end entity
    linking for biomedical text, section 3.1, whose classes are those of the batch alone.

    states (Tensor): Vectors of tokens or mentions. Shape (n, dim).
    classes (Callable): From classes to their vectors, (m,) to (m, dim), as an embedding is.
    bias (Tensor): Of all classes. Shape (n_classes,).
    target, weight (Tensor): Class and weight of each vector. Shape (n,).
    others (Tensor): Further classes to tell the right ones from; any that are right for a vector
        of the batch change nothing. Shape (m,).
    """
    present, place = torch.unique(torch.cat([target, others]), return_inverse=True)
    logits = states @ classes(present).T + bias[present]
    losses = F.cross_entropy(logits, place[: len(target)], reduction="none")
    return weighted_mean(losses, weight)


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp(min=1e-12)
