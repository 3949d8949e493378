"""Losses of the linkers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def multi_similarity_loss(
    vectors: Tensor,
    labels: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float = 0.2,
) -> Tensor:
    """Multi-Similarity loss over the pairs mined by the Multi-Similarity miner.

    The loss raises the cosine of vectors with one label and lowers all other cosines; each pair is
    weighted by its difficulty. It is the mean over all vectors; a vector without pairs counts as 0.

    vectors (Tensor): Vectors of mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each vector. Shape (n,).
    alpha, beta, base (float): Scales of positive and negative pairs, and the margin.
    epsilon (float): Mining margin: a negative is kept within it of the hardest positive, a
        positive within it of the hardest negative.
    RETURNS (Tensor): A scalar.

    Wang et al. (2019), https://arxiv.org/abs/1904.06627; settings of Lai, Ji and Zhai (2021).
    """
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    pairs = MultiSimilarityMiner(epsilon=epsilon)(vectors, labels)
    return MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)(vectors, labels, pairs)


def info_nce_loss(vectors: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.05) -> Tensor:
    """InfoNCE with several positives: each positive is contrasted with all vectors of other labels.

    Positives of one vector do not compete with each other. The loss is the mean over all positive
    pairs; without any it is 0.

    vectors (Tensor): Vectors of mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each vector. Shape (n,).
    temperature (float | Tensor): Divisor of the cosines.
    RETURNS (Tensor): A scalar.

    Khosla et al. (2020), https://arxiv.org/abs/2004.11362.
    """
    unit = F.normalize(vectors, dim=1)
    logits = unit @ unit.T / temperature
    same = labels[:, None] == labels[None, :]
    negatives = torch.logsumexp(logits.masked_fill(same, -torch.inf), dim=1)
    # A copy: the backward pass needs the mask above.
    pairs = same.clone().fill_diagonal_(False).nonzero(as_tuple=True)
    losses = F.softplus(negatives[pairs[0]] - logits[pairs])
    return losses.sum() / max(1, len(losses))


def marginal_loss(vectors: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.05) -> Tensor:
    """Negative log of the total probability of the positives among all other vectors.

    One near synonym suffices, while `info_nce_loss` requires all of them to be near. The loss is
    the mean over the vectors with a positive; without any it is 0.

    vectors (Tensor): Vectors of mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each vector. Shape (n,).
    temperature (float | Tensor): Divisor of the cosines.
    RETURNS (Tensor): A scalar.

    Sung et al. (2020), Biomedical Entity Representations with Synonym Marginalization,
    https://aclanthology.org/2020.acl-main.335, with the names of the batch as candidates.
    """
    unit = F.normalize(vectors, dim=1)
    logits = unit @ unit.T / temperature
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    found = positive.any(dim=1)
    logits, positive, itself = logits[found], positive[found], itself[found]
    everything = torch.logsumexp(logits.masked_fill(itself, -torch.inf), dim=1)
    right = torch.logsumexp(logits.masked_fill(~positive, -torch.inf), dim=1)
    return (everything - right).sum() / max(1, len(logits))


def collective_loss(
    mentions: Tensor, names: Tensor, right: Tensor, *, temperature: float = 0.05
) -> Tensor:
    """Negative log of the probability of a mention's right candidates among those of the batch.

    All mentions of a batch share their candidates, both sampled and mined. The loss is the mean
    over the mentions with a right candidate; without any it is 0.

    mentions (Tensor): Unit vectors of the mentions. Shape (n_mentions, dim).
    names (Tensor): Vectors of the candidates. Shape (n_candidates, dim).
    right (Tensor): True where the candidate is right for the mention; bool. Shape
        (n_mentions, n_candidates).
    temperature (float): Divisor of the cosines.
    RETURNS (Tensor): A scalar.

    Bhowmik, Stratos and de Melo (2021), https://aclanthology.org/2021.louhi-1.4, with cosines.
    """
    found = right.any(dim=1)
    logits = mentions[found] @ F.normalize(names, dim=1).T / temperature
    positive = torch.logsumexp(logits.masked_fill(~right[found], -torch.inf), dim=1)
    return (torch.logsumexp(logits, dim=1) - positive).sum() / max(1, len(logits))


def ranking_loss(logits: Tensor, groups: Tensor, right: Tensor) -> Tensor:
    """Negative log of the total probability of the right candidates of a mention.

    Probabilities are a softmax over the candidates of the mention; with one right candidate the
    loss is cross-entropy. It is the mean over the mentions with a right candidate; without any it
    is 0.

    logits (Tensor): Logits of pairs of a mention and a candidate. Shape (n_pairs,).
    groups (Tensor): Index of the mention of each pair, in any order. Shape (n_pairs,).
    right (Tensor): Whether the candidate is right; bool. Shape (n_pairs,).
    RETURNS (Tensor): A scalar.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519; several right candidates as in
    `marginal_loss`.
    """
    mentions = torch.unique(groups[right])
    scores = logits[:, None].masked_fill(groups[:, None] != mentions, -torch.inf)
    everything = torch.logsumexp(scores, dim=0)  # (n_mentions,)
    positive = torch.logsumexp(scores.masked_fill(~right[:, None], -torch.inf), dim=0)
    return (everything - positive).sum() / max(1, len(mentions))


def restricted_softmax_loss(
    states: Tensor,
    classes: Callable[[Tensor], Tensor],
    bias: Tensor,
    target: Tensor,
    *,
    weight: Tensor,
    others: Tensor | None = None,
) -> Tensor:
    """Cross-entropy over the classes that occur in the batch, and a sample of others.

    Logits of no other classes are computed, so that time and memory do not grow with their number.
    The loss is the weighted mean: dividing by the size of a padded batch, as published, would
    let padding scale the loss.

    states (Tensor): Vectors of tokens or mentions. Shape (n, dim).
    classes (Callable): From classes to their vectors, (m,) to (m, dim), as an embedding is.
    bias (Tensor): Shape (n_classes,).
    target (Tensor): Class of each vector. Shape (n,).
    weight (Tensor): Weight of each vector. Shape (n,).
    others (Tensor | None): Further classes to tell the right ones from; any that are right for a
        vector of the batch change nothing. Shape (m,).
    RETURNS (Tensor): A scalar; 0 for an empty batch.

    Zhu et al., Simple hierarchical multi-task neural end-to-end entity linking for biomedical text,
    section 3.1, whose classes are those of the batch alone.
    """
    wanted = target if others is None else torch.cat([target, others])
    present, place = torch.unique(wanted, return_inverse=True)
    logits = states @ classes(present).T + bias[present]
    losses = F.cross_entropy(logits, place[: len(target)], reduction="none")
    return (losses * weight).sum() / weight.sum().clamp(min=1e-12)
