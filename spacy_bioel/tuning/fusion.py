"""Fits the weights of the evidence on development mentions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.pipeline.linker.fusion import FloatArray, Fusion, share
from spacy_bioel.tuning.development import Development

# How many mentions it takes to outweigh a prior that is off by one.
_PRIOR_MENTIONS = 80.0
# How many mentions a start is chosen on.
_CHOOSING_MENTIONS = 1000


def fit_fusion(
    development: Development,
    *,
    prior: Fusion | None = None,
    n_hidden: int = 12,
    l2: float = 0.02,
    seed: int = 0,
) -> Fusion:
    """Maximise the probability of right candidates, and of NIL where none is right.

    prior (Fusion | None): Weights fitted on other corpora, to stay near to: a few hundred
        mentions are too few to fit all weights on. None: start from nothing.
    l2 (float): Strength of the penalty on the weights, where there is no prior.
    """
    from scipy.optimize import minimize

    features = development.features
    mean, spread = features.mean(0, dtype=float), features.std(0, dtype=float)
    if prior is not None:
        mean, spread, n_hidden = prior.mean, prior.scale, len(prior.output)
    # A feature that never varied, as "trained" in one corpus, is left as large as it is: divided
    # by next to nothing, it would rule wherever it is another, and `to_json` would round it to 0.
    scale = np.where(spread > 1e-3, spread, 1.0)
    loss = _Loss((features - mean) / scale, development, l2=l2, n_hidden=n_hidden)
    if prior is None:
        start = np.random.default_rng(seed).standard_normal(loss.n_weights) * 0.1
    else:
        start = loss.centre = prior.weights()
        loss.l2 = _PRIOR_MENTIONS / len(development)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    hidden, hidden_bias, output, direct, bias = loss.split(best.x)
    return Fusion(mean, scale, hidden, hidden_bias, output, direct, float(bias[0]))


def fit_nearest(
    development: Development, priors: Sequence[Fusion | None], *, folds: int = 5, seed: int = 0
) -> Fusion:
    """`fit_fusion` from whichever start makes mentions likeliest that it was not fitted on.

    Phrases of patients have little in common with what the package's weights were fitted on.
    Mentions of one string are in one fold: they have the same evidence.

    priors (Sequence): Weights of other corpora; None: nothing.
    """
    # Where there are more mentions than these, the start matters little.
    sample = np.random.default_rng(seed).permutation(len(development))[:_CHOOSING_MENTIONS]
    fold = string_folds([development.strings[i] for i in sample], folds=folds, seed=seed)
    losses = [0.0] * len(priors)
    for number in sorted(set(fold.tolist())) if fold.any() else []:
        fitting = development.take(sample[fold != number])
        held_out = development.take(sample[fold == number])
        for i, prior in enumerate(priors):
            losses[i] += log_loss(fit_fusion(fitting, prior=prior, seed=seed), held_out)
    return fit_fusion(development, prior=priors[int(np.argmin(losses))], seed=seed)


def string_folds(strings: Sequence[str], *, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each mention, equal strings in the same one. Shape (n,)."""
    different, string = np.unique(np.array(strings, dtype=object), return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(different)) % folds)[string]


def log_loss(fusion: Fusion, development: Development) -> float:
    """Sum of the negative log-likelihood of mentions under some weights."""
    if not len(development):
        return 0.0
    z = (development.features - fusion.mean) / fusion.scale
    loss = _Loss(z, development, l2=0.0, n_hidden=len(fusion.output))
    return loss(fusion.weights())[0] * len(development)


class _Loss:
    """Mean negative log-likelihood with its gradient, as a function of one vector of weights."""

    def __init__(
        self, z: FloatArray, development: Development, *, l2: float, n_hidden: int
    ) -> None:
        d, rows = z.shape[1], development.rows
        self.z, self.right = z[np.concatenate(rows)], np.concatenate(development.right)
        self.groups = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
        self.n_mentions, self.l2 = len(rows), l2
        self.centre: FloatArray | float = 0.0  # where the penalty draws the weights to
        self._shapes = [(d, n_hidden), (n_hidden,), (n_hidden,), (d,), (1,)]
        self.n_weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self._has_right = np.bincount(self.groups, self.right, len(rows)) > 0

    def split(self, weights: FloatArray) -> list[FloatArray]:
        parts = np.split(weights, np.cumsum([int(np.prod(s)) for s in self._shapes])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def __call__(self, weights: FloatArray) -> tuple[float, FloatArray]:
        hidden, hidden_bias, output, direct, bias = self.split(weights)
        active = np.tanh(self.z @ hidden + hidden_bias)
        probability = share(active @ output + self.z @ direct + bias, self.groups)
        total = np.bincount(self.groups, probability, self.n_mentions)
        right = np.bincount(self.groups, probability * self.right, self.n_mentions)
        likelihood = np.maximum(np.where(self._has_right, right, 1 - total), 1e-9)
        value = -np.log(likelihood).mean() + self.l2 * ((weights - self.centre) ** 2).sum()
        wanted = probability * self.right / likelihood[self.groups]
        d_scores = (probability - wanted * self._has_right[self.groups]) / self.n_mentions
        d_active = np.outer(d_scores, output) * (1 - active**2)
        parts = [
            self.z.T @ d_active,
            d_active.sum(0),
            active.T @ d_scores,
            self.z.T @ d_scores,
            d_scores.sum(keepdims=True),
        ]
        gradient = np.concatenate([part.ravel() for part in parts])
        gradient += 2 * self.l2 * (weights - self.centre)
        return float(value), gradient
