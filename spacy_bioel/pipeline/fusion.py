"""The one decision: features of candidates -> a probability each -> ranked candidates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.pipeline.evidence import FEATURES, Candidates

# Fitted by `fit_weights` on the development split of BC5CDR, with a ResCNN encoder.
DEFAULT_WEIGHTS: dict[str, float] = {
    "bias": -9.0,
    "exact": 1.5,
    "preferred": 1.0,
    "unique": 2.0,
    "memory": 5.0,
    "seen": 0.5,
    "dense": 5.0,
    "nearest": 0.7,
    "sparse": 3.0,
    "alike": 0.7,
    "recalled": 2.0,
    "recalled_dense": 2.0,
    "prior": 0.2,
}


def score(features: NDArray[np.float32], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """Probability that each candidate is the concept meant: a logistic model.

    features (NDArray[float32]): Shape (n, len(FEATURES)).
    RETURNS (NDArray[float64]): Shape (n,).
    """
    w = np.array([weights[name] for name in FEATURES])
    return 1 / (1 + np.exp(-(features @ w + weights["bias"])))


def rank(candidates: Candidates, scores: NDArray[np.float64], *, top: int) -> NDArray[np.int64]:
    """Rows of the `top` best candidates of each query, grouped by query, best first.

    Ties go to the lower concept row, which is the lower id.
    """
    order = np.lexsort((candidates.concept, -scores, candidates.query))
    query = candidates.query[order]
    first = np.searchsorted(query, query)
    return order[np.arange(len(order)) - first < top]


def fit_weights(
    features: NDArray[np.float32], right: NDArray[np.bool_], *, l2: float = 1.0
) -> dict[str, float]:
    """Logistic regression of "this candidate is right" on its features.

    features (NDArray[float32]): Candidates of development mentions. Shape (n, len(FEATURES)).
    right (NDArray[bool]): Shape (n,).
    l2 (float): Strength of the penalty on the weights.
    RETURNS (dict[str, float]): For `score`.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / l2, max_iter=1000).fit(features, right)
    weights = dict(zip(FEATURES, model.coef_[0].tolist(), strict=True))
    return {"bias": float(model.intercept_[0])} | {k: round(v, 4) for k, v in weights.items()}
