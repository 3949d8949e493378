"""The losses of the linkers."""

from __future__ import annotations

from torch import Tensor


def multi_similarity_loss(
    vectors: Tensor,
    labels: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float = 0.2,
) -> Tensor:
    """Multi-Similarity loss over the pairs that the Multi-Similarity miner keeps.

    Vectors of one label are pulled together and all others apart, by cosine; each pair is
    weighted by how hard it is. The mean runs over all vectors; one without pairs counts as 0.

    vectors (Tensor): Mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each. Shape (n,).
    alpha, beta, base (float): Scales of positive and negative pairs, and the margin.
    epsilon (float): A negative is kept if it is within this of the hardest positive, and the
        other way round.
    RETURNS (Tensor): A scalar.

    Wang et al. (2019), https://arxiv.org/abs/1904.06627; settings of Lai, Ji and Zhai (2021).
    """
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    pairs = MultiSimilarityMiner(epsilon=epsilon)(vectors, labels)
    return MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)(vectors, labels, pairs)
