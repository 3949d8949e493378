"""Losses of contextual models: scalars, 0 where there is nothing to learn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from spacy_bioel.models.networks import missed


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
    return missed(mentions @ F.normalize(names, dim=1).T / temperature, right)


def ranking_loss(logits: Tensor, groups: Tensor, right: Tensor) -> Tensor:
    """Negative log of the total probability of the right candidates of a mention.

    Probabilities are a softmax over the candidates of the mention; with one right candidate the
    loss is cross-entropy. It is the mean over the mentions with a right candidate. Wu et al.
    (2020), https://aclanthology.org/2020.emnlp-main.519; several right candidates as in
    `models.networks.marginal_loss`.

    logits (Tensor): Logits of pairs of a mention and a candidate. Shape (n_pairs,).
    groups (Tensor): Index of the mention of each pair, in any order. Shape (n_pairs,).
    right (Tensor): Whether the candidate is right; bool. Shape (n_pairs,).
    """
    own = torch.unique(groups[right])[:, None] == groups  # (n_mentions, n_pairs)
    return missed(torch.where(own, logits, -torch.inf), own & right)


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
